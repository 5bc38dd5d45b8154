"""Stacks the stages that a request needs."""

from __future__ import annotations

from service.text.interface import LinkedTranslator
from service.text.options import TextOptions


def text_translator(sentences: LinkedTranslator, options: TextOptions) -> LinkedTranslator:
    """What translates the texts of a request: stages, or the sentence translator itself.

    Args:
        sentences: the sentence translator of the request's route.
        options: what the request asks for.
    """
    return sentences
