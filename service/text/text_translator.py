"""Stacks the stages that a request needs."""

from __future__ import annotations

from service.text.interface import LinkedTranslator
from service.text.markup.markup_translator import MarkupTranslator
from service.text.options import MimeType, TextOptions
from service.text.things.sentence_repair import TermRules
from service.text.things.terms_translator import TermsTranslator
from service.translation.pivot import PivotTranslator
from service.translation.translator import Translator


def text_translator(
    sentences: Translator | PivotTranslator,
    options: TextOptions,
    languages: tuple[str, str] = ("", ""),
) -> LinkedTranslator:
    """The translator for the texts of a request: stages, or the sentence translator itself.

    Args:
        sentences: the sentence translator of the request's route.
        options: what the request asks for.
        languages: BCP-47 codes of the texts and of the translations.
    """
    translator: LinkedTranslator = sentences
    if options.needs_terms:
        rules = TermRules(
            *languages,
            kinds=options.verbatim,
            letter_case=options.adapt_letter_case,
            glossary=options.glossary,
        )
        translator = TermsTranslator(translator, rules, sentences.limits)
    if options.mime_type is not MimeType.PLAIN:
        translator = MarkupTranslator(translator, options, sentences.limits)
    return translator
