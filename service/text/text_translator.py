"""Stacks the stages that a request needs."""

from __future__ import annotations

from service.text.interface import LinkedTranslator
from service.text.markup.markup_translator import MarkupTranslator
from service.text.options import MimeType, TextOptions
from service.translation.pivot import PivotTranslator
from service.translation.translator import Translator


def text_translator(
    sentences: Translator | PivotTranslator, options: TextOptions
) -> LinkedTranslator:
    """What translates the texts of a request: stages, or the sentence translator itself.

    Args:
        sentences: the sentence translator of the request's route.
        options: what the request asks for.
    """
    translator: LinkedTranslator = sentences
    if options.mime_type is not MimeType.PLAIN:
        translator = MarkupTranslator(translator, options, sentences.limits)
    return translator
