"""What a request costs its key, and what priority the key gives it."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import grpc

from dragoman.v1 import translation_pb2 as pb
from service.access.authentication import Grant
from service.access.principal import PRIORITIES
from service.calls.call_context import current_call
from service.calls.status import code_of

Request = (
    pb.TranslateRequest
    | pb.StreamTranslateRequest
    | pb.DetectLanguageRequest
    | pb.ScoreRequest
    | pb.AttentionRequest
)
Options = pb.TranslateOptions | pb.ScoreOptions | pb.AttentionOptions

CHARGED = (grpc.StatusCode.OK, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)
"""What has ended otherwise costs nothing: nothing was computed, or for nobody. A client that
disconnects, or has too little time, has had the server's work."""
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


def admit_document(request: pb.TranslateRequest) -> None:
    """Check a request whose texts are still in a file, before the file is read.

    Raises:
        QuotaError: the key has no character left.
        PermissionDeniedError: the key does not allow the priority.
    """
    grant = current_call().grant
    if grant.principal is not None:
        limit_priority(request.options, grant)
        grant.check_characters_left()


def give_back_failed(
    request: pb.TranslateRequest | pb.ScoreRequest, errors: Sequence[Exception | None]
) -> None:
    """Give back the characters of texts or pairs that have failed, unless by their client."""
    grant = current_call().grant
    if grant.principal is None:
        return
    failed = [i for i, error in enumerate(errors) if error and code_of(error) not in CHARGED]
    if isinstance(request, pb.TranslateRequest):
        grant.give_back(sum(len(request.contents[index]) for index in failed))
    else:
        grant.give_back(sum(map(_pair_characters, (request.pairs[index] for index in failed))))


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
    return sum(map(_pair_characters, request.pairs))


@num_characters.register
def _(request: pb.AttentionRequest) -> int:
    return len(request.source_text) + len(request.translated_text)


def _pair_characters(pair: pb.ScorePair) -> int:
    return len(pair.source_text) + len(pair.translated_text)


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
