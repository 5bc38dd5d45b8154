"""What a request costs its key, and what priority the key gives it."""

from __future__ import annotations

import functools

from dragoman.v1 import translation_pb2 as pb
from service.access.principal import PRIORITIES
from service.api.authentication import Grant
from service.api.call_context import current_call

Request = (
    pb.TranslateRequest
    | pb.StreamTranslateRequest
    | pb.DetectLanguageRequest
    | pb.ScoreRequest
    | pb.AttentionRequest
)
Options = pb.TranslateOptions | pb.ScoreOptions | pb.AttentionOptions

_PREFIX = "PRIORITY_"


def admit(request: Request) -> None:
    """Charge the current call with the texts of its request, and check its priority.

    What it was charged with is given back if it fails, unless by its client (`RunningCall`).

    Raises:
        QuotaError: the key has fewer characters left.
        PermissionDeniedError: the key does not allow the priority.
    """
    grant = current_call().grant
    if grant.principal is None:
        return
    if not isinstance(request, pb.DetectLanguageRequest):
        limit_priority(request.options, grant)
    grant.charge(num_characters(request))


@functools.singledispatch
def num_characters(request: Request) -> int:
    """The characters (code points) of all texts in a request, given translations included."""
    raise TypeError(f"what does a {type(request).__name__} cost?")


@num_characters.register
def _(request: pb.TranslateRequest | pb.DetectLanguageRequest) -> int:
    return sum(map(len, request.contents))


@num_characters.register
def _(request: pb.StreamTranslateRequest) -> int:
    return len(request.content)


@num_characters.register
def _(request: pb.ScoreRequest) -> int:
    return sum(len(pair.source_text) + len(pair.translated_text) for pair in request.pairs)


@num_characters.register
def _(request: pb.AttentionRequest) -> int:
    return len(request.source_text) + len(request.translated_text)


def limit_priority(options: Options, grant: Grant) -> None:
    """Set the priority of a request that asks for none to what the key allows.

    Raises:
        PermissionDeniedError: it asks for more.
    """
    if options.priority not in pb.Priority.values():
        return  # refused with the other options
    wanted = pb.Priority.Name(options.priority).removeprefix(_PREFIX).lower()
    allowed = grant.priority(wanted if wanted in PRIORITIES else "")
    if allowed:
        options.priority = pb.Priority.Value(_PREFIX + allowed.upper())
