"""Translators of the texts of a request, and the options for them."""

from __future__ import annotations

from service.calls.backend import Backend
from service.calls.charging import prioritized
from service.calls.glossaries import find_glossary
from service.calls.memories import memory_stage
from service.calls.requests import TextRequest
from service.common.fairness import in_thread
from service.errors import InvalidArgumentError
from service.glossaries.glossary import NO_GLOSSARY, Glossary
from service.models.routing import Route
from service.text.options import MAX_IGNORED_TAGS, TextOptions, mime_type_of
from service.text.text_translator import text_translator
from service.things.interface import LinkedTranslator
from service.translation.options import TranslateOptions

# Entries of a request that are indexed on the event loop; more take some milliseconds.
_FEW_ENTRIES = 50


async def text_stages(
    backend: Backend, route: Route, request: TextRequest, *, streams: bool = False
) -> tuple[LinkedTranslator, TranslateOptions]:
    """The translator of a request's texts, and the options for it.

    Raises:
        InvalidArgumentError: an option is invalid; names the field.
        NotFoundError: there is no such glossary or memory.
        FailedPreconditionError: the server has no memories.
    """
    *before, last = (leg.translator for leg in route.legs)
    defaults = [each.default_options for each in before]
    defaults.append(last.stream_options if streams else last.default_options)
    *first, options = (prioritized(request.options(default), request) for default in defaults)
    languages = route.legs[0].source, route.legs[-1].target
    memory = await memory_stage(backend, request, languages, last.limits)
    named = await find_glossary(backend, request.glossary, *languages)
    asked = await text_options(request, named)
    return text_translator(route.translator(*first), asked, languages, memory), options


async def text_options(request: TextRequest, named: Glossary = NO_GLOSSARY) -> TextOptions:
    """The options of the stages above the translation of sentences: format, things, glossary.

    Args:
        named: the glossary that the request names.

    Raises:
        InvalidArgumentError: an unknown format, too many tags, or bad entries; names the field.
    """
    if len(request.entries) <= _FEW_ENTRIES:
        return _text_options(request, named)

    def options() -> TextOptions:
        found = _text_options(request, named)
        found.glossary.prepare()
        return found

    return await in_thread(options)


def _text_options(request: TextRequest, named: Glossary) -> TextOptions:
    if (count := len(request.ignore_tags)) > MAX_IGNORED_TAGS:
        raise InvalidArgumentError(
            "options.ignore_tags", f"{count:,} are more than {MAX_IGNORED_TAGS}, the limit"
        )
    return TextOptions(
        mime_type=mime_type_of(request.mime_type),
        ignore_tags=tuple(request.ignore_tags),
        verbatim=request.verbatim,
        adapt_letter_case=request.adapt_letter_case,
        glossary=Glossary.of(request.entries).over(named) if request.entries else named,
        line_breaks=request.line_breaks,
    )
