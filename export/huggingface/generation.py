"""The default search of an imported model, with the names of our options."""

from __future__ import annotations

from typing import Any

from export.errors import ExportError
from export.huggingface.directory import CONFIG_FILE, ModelDirectory
from model.bundle.config import ModelConfig
from model.bundle.search_limits import MAX_ROWS, SearchLimitError, check_search, check_search_fits

_FILE = "generation_config.json"
_EARLY_STOPPING = {False: "heuristic", None: "heuristic", True: "first", "never": "never"}
# Fields that would make it another search, with the values at which they do not.
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "do_sample": (None, False),
    "num_beam_groups": (None, 1),
    "diversity_penalty": (None, 0.0),
    "penalty_alpha": (None, 0.0),
    "constraints": (None,),
    "force_words_ids": (None,),
    "sequence_bias": (None,),
    "begin_suppress_tokens": (None, []),
    "forced_decoder_ids": (None, []),
    "encoder_repetition_penalty": (None, 1.0),
    "encoder_no_repeat_ngram_size": (None, 0),
    "exponential_decay_length_penalty": (None,),
    "guidance_scale": (None, 1.0),
}
# Fields that take probability from tokens. With `renormalize_logits` the others share it.
_TAKES = (
    *("suppress_tokens", "repetition_penalty", "no_repeat_ngram_size"),
    *("min_length", "min_new_tokens"),
)
_TAKES_NOTHING: tuple[Any, ...] = (None, 0, 1, [])

# The names that transformers has for our options; the first one that is set counts.
_THEIR_NAMES = {
    "beam_size": ("num_beams",),
    "max_new_tokens": ("max_new_tokens", "max_length"),
    "min_new_tokens": ("min_new_tokens", "min_length"),
    "suppressed_ids": ("suppress_tokens", "bad_words_ids"),
}


def forbids_pad(directory: ModelDirectory) -> bool:
    """Whether padding is never chosen, but keeps its probability: older files of OPUS-MT."""
    return _lacks_pad(directory) and not directory.generation.get("renormalize_logits")


def excludes_pad(directory: ModelDirectory) -> bool:
    """Whether padding has no probability: OPUS-MT since 2023, by `renormalize_logits`."""
    return _lacks_pad(directory) and bool(directory.generation.get("renormalize_logits"))


def _lacks_pad(directory: ModelDirectory) -> bool:
    """Whether padding is never chosen. It is what the decoder of OPUS-MT starts with."""
    return [directory.config.get("pad_token_id")] in (
        directory.generation.get("bad_words_ids") or []
    )


def default_search(directory: ModelDirectory, num_start: int = 0) -> dict[str, Any]:
    """The bundle's `search`: fields of `SearchOptions` that the model's authors chose.

    Padding is not among the forbidden tokens (`ModelConfig.forbid_pad`).

    Args:
        num_start: tokens of a language that each translation begins with. `transformers` counts
            them in lengths, requests do not.

    Raises:
        ExportError: a field has a value that isn't supported; names it.
    """
    try:
        _check_eos(directory)
        lengths = _lengths(directory, num_start)
        search = {**_search(directory), **lengths, **_forbidden(directory)}
        check_search(**{name: value for name, value in search.items() if name != "forced_eos"})
        return search
    except ExportError:
        raise
    except SearchLimitError as exc:
        raise _out_of_range(directory, exc) from exc
    except (TypeError, ValueError, OverflowError, AttributeError) as exc:
        raise ExportError(f"{directory.path}: its generation configuration: {exc}") from exc


def check_default_search(
    directory: ModelDirectory, search: dict[str, Any], config: ModelConfig, num_start: int = 0
) -> None:
    """Check that a server of the model can do the search of `default_search`.

    The server lowers a `max_new_tokens` above the model's.

    Raises:
        ExportError: a field is out of range; names it.
    """
    most = config.num_target_positions - num_start
    longest = search.get("max_new_tokens")
    try:
        check_search_fits(
            max_new_tokens=None if longest is None else min(longest, most),
            min_new_tokens=search.get("min_new_tokens", 0),
            no_repeat_ngram_size=search.get("no_repeat_ngram_size", 0),
            beam_size=search["beam_size"],
            max_target_positions=most,
            max_rows=MAX_ROWS,
            vocab_size=config.vocab_size,
        )
        for token_id in search.get("suppressed_ids", ()):
            if not 0 <= token_id < config.vocab_size:
                raise SearchLimitError(
                    "suppressed_ids", f"{token_id} is no token: there are {config.vocab_size}"
                )
    except SearchLimitError as exc:
        raise _out_of_range(directory, exc) from exc


def _out_of_range(directory: ModelDirectory, error: SearchLimitError) -> ExportError:
    names = _THEIR_NAMES.get(error.field, (error.field,))
    name = next((name for name in names if directory.generation.get(name)), names[-1])
    return ExportError(
        f"{directory.path}: its generation configuration: {name}: {error.description}"
    )


def _check_eos(directory: ModelDirectory) -> None:
    """Another EOS, or one of several, would end translations elsewhere."""
    eos_id = directory.config.get("eos_token_id")
    if directory.generation.get("eos_token_id") not in (None, eos_id, [eos_id]):
        _refuse(directory, "eos_token_id")


def _search(directory: ModelDirectory) -> dict[str, Any]:
    given = directory.generation
    for name, neutral in _UNSUPPORTED.items():
        if given.get(name) not in neutral:
            _refuse(directory, name)
    beam_size = int(given.get("num_beams") or 1)
    search: dict[str, Any] = {"beam_size": beam_size}
    stopping, penalty = given.get("early_stopping"), given.get("length_penalty")
    penalty = 1.0 if penalty is None else float(penalty)
    if stopping not in _EARLY_STOPPING:
        _refuse(directory, "early_stopping")
    if beam_size > 1 or stopping or penalty != 1.0:  # requests may ask for beams
        search["early_stopping"] = _EARLY_STOPPING[stopping]
        search["length_penalty_kind"] = "power"
        search["length_penalty"] = penalty
    if size := int(given.get("no_repeat_ngram_size") or 0):
        search["no_repeat_ngram_size"] = size
    if (penalty := float(given.get("repetition_penalty") or 1.0)) != 1.0:
        if penalty < 1.0:
            _refuse(directory, "repetition_penalty")
        search["repetition_penalty"] = penalty
    return search


def _lengths(directory: ModelDirectory, num_start: int) -> dict[str, Any]:
    """Limits of the length, in which the start token counts there, and EOS at the limit."""
    given, found = directory.generation, dict[str, Any]()
    if longest := given.get("max_new_tokens") or (given.get("max_length") or 1) - 1:
        found["max_new_tokens"] = int(longest) - num_start
    least = int(given.get("min_new_tokens") or (given.get("min_length") or 1) - 1) - num_start
    if least > 0:
        found["min_new_tokens"] = least
    forced, eos_id = given.get("forced_eos_token_id"), directory.config.get("eos_token_id")
    if forced is not None:
        if forced not in (eos_id, [eos_id]):
            _refuse(directory, "forced_eos_token_id")
        found["forced_eos"] = True
    return found


def _forbidden(directory: ModelDirectory) -> dict[str, Any]:
    given, config = directory.generation, directory.config
    words = given.get("bad_words_ids") or []
    if any(len(word) != 1 for word in words):
        raise ExportError(f"{directory.path}: bad_words_ids of several tokens are not supported")
    ids = {int(word[0]) for word in words} - {config.get("eos_token_id")}  # as the library does
    if _lacks_pad(directory):
        ids -= {config.get("pad_token_id")}
    ids |= set(map(int, given.get("suppress_tokens") or ()))
    if given.get("renormalize_logits"):
        for name in ("bad_words_ids", *_TAKES) if ids else _TAKES:
            if given.get(name) not in _TAKES_NOTHING:
                _refuse(directory, "renormalize_logits", f" together with {name}")
    return {"suppressed_ids": sorted(ids)} if ids else {}


def _refuse(directory: ModelDirectory, name: str, together: str = "") -> None:
    # Old versions wrote it into config.json, and native Marian has neither.
    files = (directory.path / _FILE, directory.path / CONFIG_FILE)
    file = next((file for file in files if file.is_file()), directory.path)
    raise ExportError(
        f"{file}: {name} {directory.generation[name]!r} is not supported{together}: remove the "
        f"field to import the model without it"
    )
