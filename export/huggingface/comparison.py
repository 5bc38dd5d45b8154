"""Compares an imported network with the network of `transformers` that it was made from."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from export.errors import ExportError
from export.layers import NEVER
from model.bundle.limits import default_max_new_tokens
from model.bundle.out_of_memory import is_out_of_memory
from model.bundle.piece_tokenizer import PieceTokenizer
from model.evaluation.search import greedy_search
from model.network.transformer import Transformer

# Times a stage's largest number: what rounding makes of a dozen layers in float32 is far less.
_TOLERANCE = 1e-3


@dataclass(frozen=True)
class TransformersComparison:
    """Outcome of the comparison.

    Attributes:
        transformers: the library's version.
        num_sentences: number of sentences that were compared; their token ids, states, logits and
            greedy translations agree.
        largest_difference: the largest difference between the two networks' logits.
    """

    transformers: str
    num_sentences: int
    largest_difference: float

    def __str__(self) -> str:
        """The comparison in words."""
        return (
            f"tokens and logits are those of transformers {self.transformers} (which differ by at "
            f"most {self.largest_difference:.2g})"
        )


def can_compare() -> bool:
    """Whether `transformers` is installed."""
    return importlib.util.find_spec("transformers") is not None


@torch.inference_mode()
def compare_with_transformers(
    path: Path,
    model: Transformer,
    tokenizer: PieceTokenizer,
    sentences: Sequence[str],
    language_ids: Mapping[str, int] = MappingProxyType({}),
    *,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> TransformersComparison:
    """Run both networks on real text, stage by stage.

    Args:
        model: our network, in evaluation mode.
        language_ids: tokens of languages, by the model's names for them.
        on_progress: called with the stage, the number of finished sentences and of all sentences.

    Raises:
        ExportError: they differ, with the stage in which that began; or `transformers` cannot read
            the directory.
    """
    import transformers

    theirs: Any
    their_tokenizer: Any
    try:
        theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(
            path, dtype=torch.float32, local_files_only=True
        )
        their_tokenizer = _their_tokenizer(path, tokenizer, language_ids)
    except Exception as exc:  # whatever a field that only it reads leads to
        if is_out_of_memory(exc):
            raise
        reason = str(exc).strip().partition("\n")[0]
        raise ExportError(f"transformers cannot read {path}: {reason:.300}") from exc
    theirs.eval()
    for name, token_id in language_ids.items():
        if (expected_id := their_tokenizer.convert_tokens_to_ids(name)) != token_id:
            raise ExportError(
                f"the imported tokenizer differs from transformers': {name} is {token_id}, not "
                f"{expected_id}"
            )
    opening = "".join(map(tokenizer.id_to_piece, tokenizer.vocabulary.prefix_ids))
    if opening == "<s>":  # which their tokenizer adds by itself
        opening = ""
    if hasattr(their_tokenizer, "src_lang"):
        their_tokenizer.src_lang, opening = opening.strip("_"), ""
    largest, start_ids = 0.0, tokenizer.target.start_ids
    for done, sentence in enumerate(sentences):
        if on_progress is not None:
            on_progress("comparing with transformers", done, len(sentences))
        ids = [*tokenizer.encode(sentence), tokenizer.eos_id]
        expected = list(their_tokenizer(opening + sentence)["input_ids"])
        if ids != expected:
            raise ExportError(
                f"the imported tokenizer differs from transformers': {ids}, not {expected}, for "
                f"{sentence!r}"
            )
        cut = [*ids[:-1][: model.config.num_source_positions - 1], tokenizer.eos_id]
        largest = max(largest, _compare(model, theirs, cut, start_ids, sentence))
    if on_progress is not None:
        on_progress("comparing with transformers", len(sentences), len(sentences))
    return TransformersComparison(transformers.__version__, len(sentences), largest)


def _their_tokenizer(path: Path, tokenizer: PieceTokenizer, language_ids: Mapping[str, int]) -> Any:
    """The library's tokenizer, with languages that it does not know by itself.

    Version 5 does not read the names in special_tokens_map.json, by which version 4 numbered NLLB's
    languages, and then knows none. Of M2M-100, it takes no other languages for a text's than those
    of the first models.
    """
    import transformers

    def read(**changes: Any) -> Any:
        return transformers.AutoTokenizer.from_pretrained(path, local_files_only=True, **changes)

    found = read()
    if hasattr(found, "lang_code_to_token"):
        for name, token_id in language_ids.items():
            found.lang_code_to_token.setdefault(name.strip("_"), name)
            found.lang_token_to_id.setdefault(name, token_id)
    ids = {found.convert_tokens_to_ids(name) for name in language_ids}
    if ids != {found.unk_token_id} or len(language_ids) < 2:
        return found
    added = [*language_ids, "<mask>"]
    numbers = {piece: i for i, piece in enumerate(tokenizer.vocabulary.pieces) if piece in added}
    token: Any = transformers.AddedToken
    return read(added_tokens_decoder={i: token(name, special=True) for name, i in numbers.items()})


def _compare(
    model: Transformer, theirs: Any, ids: Sequence[int], start_ids: Sequence[int], sentence: str
) -> float:
    """The largest difference of a logit, along our greedy translation of one sentence."""
    config = model.config
    source = torch.tensor([ids])
    mask = torch.ones_like(source, dtype=torch.bool)
    limit = default_max_new_tokens(len(ids), config.num_target_positions)
    [translation] = greedy_search(model, source, mask, limit, start_ids)
    target = [*translation.token_ids, *([config.eos_id] if translation.finished else [])]
    fed = torch.tensor([[config.bos_id, *target[:-1]]])
    with _recorded(model) as own, _recorded(theirs.model) as other:
        logits = model.decode(fed, model.encode(source, mask), mask)
        expected = theirs(
            input_ids=source, attention_mask=mask.long(), decoder_input_ids=fed, use_cache=False
        ).logits
    # Tokens that ours never chooses have no probability, whatever logits they had.
    num_tokens = expected.size(-1)
    bias: Tensor | None = model.output_projection.bias
    possible = torch.ones(num_tokens).bool() if bias is None else bias[:num_tokens] > NEVER
    own["output"] = logits[..., :num_tokens][..., possible]
    other["output"] = expected[..., possible]
    for stage, states in own.items():
        difference = float((states - other[stage]).abs().max())
        if not difference <= _TOLERANCE * max(1.0, float(other[stage].abs().max())):
            raise ExportError(
                f"the imported network differs from transformers': it begins in {stage}, by "
                f"{difference:.3g}, for {sentence!r}. Nothing was written"
            )
    possible[config.pad_id] &= not config.forbid_pad  # compared above, but never chosen
    chosen = slice(len(start_ids), None)
    choices = expected[0].masked_fill(~possible, -torch.inf)[chosen]
    _check_choices(torch.tensor(target[chosen]), choices, sentence)
    return float((own["output"] - other["output"]).abs().max())


def _check_choices(target: Tensor, logits: Tensor, sentence: str) -> None:
    """Each token is the best one in theirs too, or rounding decides between the two."""
    best = logits.max(dim=-1).values  # [T]
    chosen = logits.gather(1, target.unsqueeze(1)).squeeze(1)
    if not bool(((best - chosen) <= _TOLERANCE * best.abs().clamp(min=1.0)).all()):
        raise ExportError(f"the greedy translation differs from transformers': {sentence!r}")


@contextlib.contextmanager
def _recorded(model: Any) -> Iterator[dict[str, Tensor]]:
    """Inputs of the first layer of each stack and outputs of all layers, by stage, in order."""
    states: dict[str, Tensor] = {}
    hooks = []

    def keep(stage: str, value: Any) -> None:
        states[stage] = value[0] if isinstance(value, tuple) else value

    for name, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for number, layer in enumerate(stack.layers):
            if number == 0:

                def before(_: Any, inputs: Any, stage: str = f"the {name}'s embedding") -> None:
                    keep(stage, inputs)

                hooks.append(layer.register_forward_pre_hook(before))

            def after(_: Any, __: Any, output: Any, stage: str = f"{name} layer {number}") -> None:
                keep(stage, output)

            hooks.append(layer.register_forward_hook(after))
    try:
        yield states
    finally:
        for hook in hooks:
            hook.remove()
