"""Detects the languages of texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from service.calls.backend import Backend
from service.calls.charging import charge
from service.calls.requests import ModelRequest
from service.text.detection import LanguageGuess

MAX_DETECTED = 5
"""The most languages that are returned for a text."""


async def detect(
    backend: Backend, texts: Sequence[str], only: Iterable[str] | None = None
) -> list[Sequence[LanguageGuess]]:
    """The languages that each text may be in, the likeliest first. Raises DragomanError.

    The list is empty for a text that shows nothing of its language.

    Args:
        only: the languages to choose from; by default, all that the detector knows.
    """
    charge(ModelRequest(), texts)
    backend.check_count("contents", len(texts), "texts")
    await backend.any_translator.check_texts(texts)
    models = backend.allowed_models
    served = dict.fromkeys(code for model in models for code in model.directions.sources)
    found = await backend.detector.detect(texts, tuple(served if only is None else only))
    if only is not None:
        found = [[each for each in languages if each.is_served] for languages in found]
    return [languages[:MAX_DETECTED] for languages in found]
