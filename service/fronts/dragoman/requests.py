"""Converts the contract's requests to those of the use cases."""

from __future__ import annotations

import functools
from typing import Any

from dragoman.v1 import translation_pb2 as pb
from service.calls.requests import ModelRequest, TextRequest
from service.domain.requests import Priority
from service.errors import InvalidArgumentError
from service.fronts.dragoman.conversions import (
    LINE_BREAKS,
    PRIORITIES,
    given_fields,
    known,
    options_of,
    refuse_unknown,
)
from service.things.things import ThingKind
from service.translation.options import TranslateOptions


def model_request_of(request: pb.ScoreRequest | pb.AttentionRequest) -> ModelRequest:
    """The languages, the model and the priority of a request."""
    return ModelRequest(
        source=request.source_language_code,
        target=request.target_language_code,
        model=request.model,
        priority=_priority_of(request.options),
    )


def text_request_of(
    request: pb.TranslateRequest | pb.StreamTranslateRequest | pb.TranslateDocumentRequest,
) -> TextRequest:
    """The options of a request. They are checked for each model that uses them."""
    options, glossary, given = request.options, request.glossary, dict[str, Any]()
    if isinstance(request, pb.TranslateDocumentRequest):
        given["memory_threshold"] = 1.0  # without alternatives
    else:
        given["mime_type"] = request.mime_type
        given |= given_fields(request, "memory_threshold")
    if options.ByteSize() or glossary.ByteSize():
        verbatim = options.verbatim
        given |= given_fields(options, "allow_pivot", "adapt_letter_case")
        given |= {
            "priority": _priority_of(options),
            "options": functools.partial(_text_options_over, options, glossary, request.memory),
            "ignore_tags": options.ignore_tags,
            "verbatim": frozenset(
                kind
                for kind in ThingKind
                if getattr(verbatim, kind.value) or not verbatim.HasField(kind.value)
            ),
            "line_breaks": known("options.line_breaks", options.line_breaks, LINE_BREAKS),
            "glossary": glossary.name,
            "entries": [(entry.source_term, entry.target_term) for entry in glossary.entries],
        }
    return TextRequest(
        source=request.source_language_code,
        target=request.target_language_code,
        model=request.model,
        memory=request.memory,
        **given,
    )


def _text_options_over(
    options: pb.TranslateOptions, glossary: pb.Glossary, memory: str, default: TranslateOptions
) -> TranslateOptions:
    """See `options_of`, after a check of the options that are not the search's."""
    found = options_of(options, default)
    refuse_unknown(options.verbatim, "options.verbatim")
    refuse_unknown(glossary, "glossary")
    if glossary.ByteSize() and options.search.target_prefix:
        raise InvalidArgumentError("glossary", "not together with options.search.target_prefix")
    if memory and options.search.target_prefix:
        raise InvalidArgumentError("memory", "not together with options.search.target_prefix")
    return found


def _priority_of(
    options: pb.TranslateOptions | pb.ScoreOptions | pb.AttentionOptions,
) -> Priority | None:
    """The priority that a request asks for; None for none, and for an unknown one."""
    return PRIORITIES.get(options.priority) if options.priority else None
