"""How an imported model is searched by default, in the words of our search."""

from __future__ import annotations

from typing import Any

from export.errors import ExportError
from export.huggingface.directory import ModelDirectory

_EARLY_STOPPING = {False: "heuristic", None: "heuristic", True: "first", "never": "never"}


def default_search(directory: ModelDirectory) -> dict[str, Any]:
    """The bundle's `search`: fields of `SearchOptions` that the model's authors chose.

    Forbidden tokens are not among them: the output's bias keeps them from being chosen.

    Raises:
        ExportError: a field has a value that isn't supported; names it.
    """
    given = directory.generation
    beam_size = int(given.get("num_beams") or 1)
    search: dict[str, Any] = {"beam_size": beam_size}
    if beam_size > 1:
        stopping = given.get("early_stopping")
        if stopping not in _EARLY_STOPPING:
            raise ExportError(f"{directory.path}: early_stopping {stopping!r} is not supported")
        search["early_stopping"] = _EARLY_STOPPING[stopping]
        search["length_penalty_kind"] = "power"
        search["length_penalty"] = float(given.get("length_penalty", 1.0))
    if size := int(given.get("no_repeat_ngram_size") or 0):
        search["no_repeat_ngram_size"] = size
    if (penalty := float(given.get("repetition_penalty") or 1.0)) != 1.0:
        search["repetition_penalty"] = penalty
    if longest := given.get("max_length"):
        search["max_new_tokens"] = int(longest) - 1  # the start token counts there
    if any(len(word) != 1 for word in given.get("bad_words_ids") or ()):
        raise ExportError(f"{directory.path}: bad_words_ids of several tokens are not supported")
    return search
