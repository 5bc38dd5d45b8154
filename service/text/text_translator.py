"""Stacks the stages that a request needs."""

from __future__ import annotations

from service.text.interface import LinkedTranslator
from service.text.options import TextOptions
from service.text.sentence_repair import TermRules
from service.text.terms_translator import TermsTranslator
from service.translation.options import TranslatorLimits

_USUAL_LIMITS = TranslatorLimits()


def text_translator(
    sentences: LinkedTranslator,
    options: TextOptions,
    languages: tuple[str, str] = ("", ""),
    limits: TranslatorLimits = _USUAL_LIMITS,
) -> LinkedTranslator:
    """What translates the texts of a request: stages, or the sentence translator itself.

    Args:
        sentences: the sentence translator of the request's route.
        options: what the request asks for.
        languages: BCP-47 codes of the texts and of the translations.
        limits: of the sentence translator.
    """
    if not options.needs_terms:
        return sentences
    rules = TermRules(
        *languages,
        kinds=options.verbatim,
        letter_case=options.adapt_letter_case,
        glossary=options.glossary,
    )
    return TermsTranslator(sentences, rules, limits)
