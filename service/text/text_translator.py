"""Stacks the stages that a request needs."""

from __future__ import annotations

from collections.abc import Callable

from model.bundle.carriers import SENTINELS
from service.text.line_breaks import LineJoiner
from service.text.markup.markup_translator import MarkupTranslator
from service.text.options import LineBreaks, MimeType, TextOptions
from service.text.rest_links import RestLinkTranslator
from service.things.interface import LinkedTranslator
from service.things.scanned import TermRules
from service.things.terms_translator import TermsTranslator
from service.things.things import ThingKind
from service.translation.pivot import PivotTranslator
from service.translation.translator import Translator


def text_translator(
    sentences: Translator | PivotTranslator,
    options: TextOptions,
    languages: tuple[str, str] = ("", ""),
    over: Callable[[LinkedTranslator], LinkedTranslator] = lambda below: below,
) -> LinkedTranslator:
    """The translator for the texts of a request: stages, or the sentence translator itself.

    Args:
        sentences: the sentence translator of the request's route.
        options: options of the request.
        languages: BCP-47 codes of the texts and of the translations.
        over: puts another stage over that of things, terms and letter case.
    """
    translator: LinkedTranslator = sentences
    if options.needs_terms or any(carrier.form == SENTINELS for carrier in sentences.carriers):
        rules = TermRules(
            *languages,
            kinds=options.verbatim,
            letter_case=options.adapt_letter_case,
            glossary=options.glossary,
            carriers=sentences.carriers,
        )
        translator = TermsTranslator(translator, rules, sentences.limits)
    translator = over(translator)
    if options.mime_type is not MimeType.PLAIN:
        return MarkupTranslator(translator, options, sentences.limits)
    if ThingKind.CODE in options.verbatim:
        translator = RestLinkTranslator(translator, options, sentences.limits)
    if options.line_breaks not in (None, LineBreaks.KEEP):
        mode = options.line_breaks
        translator = LineJoiner(translator, mode, sentences.limits, languages[0])
    return translator
