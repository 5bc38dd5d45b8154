"""Between the contract's messages and the client's results."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from dragoman.results import (
    Alignment,
    FinishReason,
    Hypothesis,
    ModelInfo,
    ModelLimits,
    PairScore,
    Sampling,
    ScoreBatch,
    Search,
    Sentence,
    SourceToken,
    StreamEnd,
    Token,
    Translation,
    TranslationBatch,
    TranslationError,
)
from dragoman.v1 import translation_pb2 as pb

REQUEST_ID = "x-request-id"
CLIENT_ID = "x-client-id"
# What both may be; a server takes nothing else.
VALID_ID = re.compile(r"[A-Za-z0-9\-_.:/+=@]{1,128}")
_DETAILS = "grpc-status-details-bin"
_ENUMS: dict[str, tuple[str, Any]] = {
    "length_penalty_kind": ("LENGTH_PENALTY_KIND", pb.LengthPenaltyKind),
    "early_stopping": ("EARLY_STOPPING", pb.EarlyStopping),
    "priority": ("PRIORITY", pb.Priority),
    "return_alignments": ("ALIGNMENT_KIND", pb.AlignmentKind),
}
_CODES = {code.value[0]: code for code in grpc.StatusCode}

Metadata = Sequence[tuple[str, str | bytes]]


def service_config() -> str:
    """What the channel does by itself (https://grpc.io/docs/guides/service-config/).

    Calls go round-robin over all addresses that the name gives and whose health service says
    SERVING; what failed with UNAVAILABLE is tried again, elsewhere if possible: translating twice
    does no harm.
    """
    return json.dumps(
        {
            "loadBalancingConfig": [{"round_robin": {}}],
            "healthCheckConfig": {"serviceName": ""},
            "methodConfig": [
                {
                    "name": [{"service": "dragoman.v1.TranslationService"}],
                    "retryPolicy": {
                        "maxAttempts": 5,
                        "initialBackoff": "0.1s",
                        "maxBackoff": "2s",
                        "backoffMultiplier": 2,
                        "retryableStatusCodes": ["UNAVAILABLE"],
                    },
                }
            ],
        }
    )


def channel_options() -> list[tuple[str, str | int]]:
    """Options of a client's channel."""
    return [
        ("grpc.service_config", service_config()),
        ("grpc.enable_retries", 1),
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        # Notice a server that vanished without closing the connection.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
    ]


def options(search: Search | None = None, **chosen: str | int | None) -> pb.TranslateOptions:
    """The options message; None leaves the choice to the server."""
    return pb.TranslateOptions(search=_search(search) if search else None, **_given(chosen))


def texts_of(texts: Sequence[str]) -> Sequence[str]:
    """The texts of a call.

    Raises:
        TypeError: it is one text, whose letters would be translated one by one.
    """
    if isinstance(texts, str):
        raise TypeError("texts: must be a list of texts, not one text")
    return texts


def metadata(request_id: str, client_id: str) -> tuple[tuple[str, str], ...]:
    """What a call is sent with.

    Raises:
        ValueError: a name that no server takes; says which.
    """
    named = {"request_id": (REQUEST_ID, request_id), "client_id": (CLIENT_ID, client_id)}
    for argument, (_, value) in named.items():
        if value and not VALID_ID.fullmatch(value):
            raise ValueError(
                f"{argument}: must be 1 to 128 letters, digits, and any of -_.:/+=@, not {value!r}"
            )
    return tuple((key, value) for key, value in named.values() if value)


def score_options(**chosen: str | int | None) -> pb.ScoreOptions:
    """The options message of a score; likewise."""
    return pb.ScoreOptions(**_given(chosen))


def _given(chosen: dict[str, str | int | None]) -> Any:
    """What was chosen, names as numbers."""
    given: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    return {
        name: _number(name, value, *_ENUMS[name]) if name in _ENUMS else value
        for name, value in given.items()
    }


def _search(search: Search) -> pb.SearchOptions:
    given = _given(_chosen(search))
    if search.sampling is not None:
        given["sampling"] = pb.Sampling(**_chosen(search.sampling))
    return pb.SearchOptions(**given)


def _chosen(options: Search | Sampling) -> dict[str, Any]:
    """The fields that are not left to the server."""
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    return {name: value for name, value in values.items() if value is not None}


def _number(field: str, name: str, prefix: str, enum: Any) -> int:
    names = [known.removeprefix(f"{prefix}_").lower() for known in enum.keys()[1:]]
    if name not in names:
        raise ValueError(f"{field} must be one of {', '.join(names)}, not {name!r}")
    number: int = enum.Value(f"{prefix}_{name.upper()}")
    return number


def translation(message: pb.Translation) -> Translation:
    """One text's result, with its error if it has one."""
    failed = message.HasField("status") and message.status.code != 0
    return Translation(
        text=message.translated_text,
        finish_reason=_finish_reason(message.finish_reason),
        num_source_tokens=message.source_token_count,
        num_target_tokens=message.target_token_count,
        was_split=message.was_split,
        error=_error_from_status(message.status) if failed else None,
        sentences=tuple(_sentence(item) for item in message.sentences),
    )


def _sentence(message: pb.Sentence) -> Sentence:
    return Sentence(
        message.source_text,
        tuple(
            Hypothesis(
                text=item.text,
                log_probability=item.log_probability,
                score=item.score,
                finish_reason=_finish_reason(item.finish_reason),
                tokens=_tokens(item.tokens),
                alignment=_alignment(item.alignment) if item.HasField("alignment") else None,
            )
            for item in message.hypotheses
        ),
        _source_tokens(message.source_tokens),
    )


def _tokens(messages: Iterable[pb.Token]) -> tuple[Token, ...]:
    return tuple(Token(item.piece, item.log_probability, item.start, item.end) for item in messages)


def _source_tokens(messages: Iterable[pb.SourceToken]) -> tuple[SourceToken, ...]:
    return tuple(SourceToken(item.piece, item.start, item.end) for item in messages)


def _alignment(message: pb.Alignment) -> Alignment:
    return Alignment(
        tuple((link.source, link.target) for link in message.links),
        tuple(tuple(row.weights) for row in message.rows),
    )


def score_request(
    pairs: Iterable[tuple[str, str]], source: str, target: str, model: str, options: pb.ScoreOptions
) -> pb.ScoreRequest:
    """The message that asks for the scores of `pairs`."""
    return pb.ScoreRequest(
        pairs=[pb.ScorePair(source_text=text, translated_text=other) for text, other in pairs],
        source_language_code=source,
        target_language_code=target,
        model=model,
        options=options,
    )


def score_batch(message: pb.ScoreResponse, trailing: Metadata) -> ScoreBatch:
    """A call's scores."""
    return ScoreBatch(
        scores=[_pair_score(item) for item in message.scores],
        model=message.model,
        queue_seconds=message.timing.queue_duration.ToNanoseconds() / 1e9,
        compute_seconds=message.timing.compute_duration.ToNanoseconds() / 1e9,
        request_id=_request_id(trailing),
    )


def _pair_score(message: pb.PairScore) -> PairScore:
    failed = message.HasField("status") and message.status.code != 0
    return PairScore(
        log_probability=message.log_probability,
        num_source_tokens=message.source_token_count,
        num_target_tokens=message.target_token_count,
        error=_error_from_status(message.status) if failed else None,
        tokens=_tokens(message.tokens),
        source_tokens=_source_tokens(message.source_tokens),
        alignment=_alignment(message.alignment) if message.HasField("alignment") else None,
    )


def batch(message: pb.TranslateResponse, trailing: Metadata) -> TranslationBatch:
    """A call's results."""
    return TranslationBatch(
        translations=[translation(item) for item in message.translations],
        model=message.model,
        queue_seconds=message.timing.queue_duration.ToNanoseconds() / 1e9,
        compute_seconds=message.timing.compute_duration.ToNanoseconds() / 1e9,
        request_id=_request_id(trailing),
    )


def stream_end(message: pb.StreamSummary) -> StreamEnd:
    """What a stream ends with."""
    return StreamEnd(
        finish_reason=_finish_reason(message.finish_reason),
        num_source_tokens=message.source_token_count,
        num_target_tokens=message.target_token_count,
        was_split=message.was_split,
        model=message.model,
        queue_seconds=message.timing.queue_duration.ToNanoseconds() / 1e9,
        compute_seconds=message.timing.compute_duration.ToNanoseconds() / 1e9,
    )


def model_info(message: pb.Model) -> ModelInfo:
    """A model's description."""
    limits = message.limits
    return ModelInfo(
        name=message.name,
        version=message.version,
        language_pairs=tuple(
            (pair.source_language_code, pair.target_language_code)
            for pair in message.language_pairs
        ),
        precision=message.precision,
        device=message.device,
        limits=ModelLimits(
            max_texts=limits.max_contents,
            max_characters=limits.max_content_characters,
            max_source_tokens=limits.max_source_tokens,
            max_target_tokens=limits.max_target_tokens,
            max_rows=limits.max_rows,
        ),
        can_score=message.can_score,
    )


def error(code: grpc.StatusCode, message: str, trailing: Metadata) -> TranslationError:
    """The error of a call that ended with `code`."""
    status = status_pb2.Status(code=code.value[0], message=message)
    for key, value in trailing:
        if key == _DETAILS and isinstance(value, bytes):
            try:
                status = status_pb2.Status.FromString(value)
            except DecodeError:  # some proxy's; the code and the message are still good
                break
    return _error_from_status(status, _request_id(trailing))


def _error_from_status(status: status_pb2.Status, request_id: str = "") -> TranslationError:
    retry_after: float | None = None
    field = description = ""
    for detail in status.details:
        retry, bad = error_details_pb2.RetryInfo(), error_details_pb2.BadRequest()
        if detail.Unpack(retry):
            retry_after = retry.retry_delay.ToNanoseconds() / 1e9
        elif detail.Unpack(bad) and bad.field_violations:
            field = bad.field_violations[0].field
            description = bad.field_violations[0].description
    return TranslationError(
        _CODES.get(status.code, grpc.StatusCode.UNKNOWN),
        status.message,
        request_id=request_id,
        retry_after_seconds=retry_after,
        field=field,
        description=description,
    )


def _request_id(trailing: Metadata) -> str:
    values = [value for key, value in trailing if key == REQUEST_ID]
    return values[-1] if values and isinstance(values[-1], str) else ""


def _finish_reason(number: int) -> FinishReason:
    try:
        return FinishReason(number)
    except ValueError:  # of a newer server
        return FinishReason.UNSPECIFIED
