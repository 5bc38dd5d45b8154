"""Converts the contract's messages to the client's results."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from dragoman.memories import MemoryMatch
from dragoman.models import LanguageGroup, ModelInfo, ModelLimits
from dragoman.options import Search
from dragoman.results import (
    Alignment,
    AttentionMap,
    AttentionView,
    DetectedLanguage,
    DocumentTranslation,
    FinishReason,
    Hypothesis,
    PairScore,
    ScoreBatch,
    Sentence,
    SourceToken,
    StreamEnd,
    TermUse,
    Token,
    Translation,
    TranslationBatch,
    TranslationError,
    TranslationWarning,
)
from dragoman.v1 import translation_pb2 as pb

REQUEST_ID = "x-request-id"
CLIENT_ID = "x-client-id"
# Valid values of both; a server accepts no others.
VALID_ID = re.compile(r"[A-Za-z0-9\-_.:/+=@]{1,128}")
# Fields with an enum, and the prefix of its values' names.
ENUMS: dict[str, tuple[str, Any]] = {
    "length_penalty_kind": ("LENGTH_PENALTY_KIND", pb.LengthPenaltyKind),
    "early_stopping": ("EARLY_STOPPING", pb.EarlyStopping),
    "priority": ("PRIORITY", pb.Priority),
    "return_alignments": ("ALIGNMENT_KIND", pb.AlignmentKind),
    "line_breaks": ("LINE_BREAKS", pb.LineBreaks),
}
_TOO_LARGE = "Received message larger than max"
_DETAILS = "grpc-status-details-bin"
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_STATES: dict[int, str] = {
    pb.MODEL_STATE_SERVING: "serving",
    pb.MODEL_STATE_ASLEEP: "asleep",
    pb.MODEL_STATE_LOADING: "loading",
}

Metadata = Sequence[tuple[str, str | bytes]]
# Errors of the texts or pairs that a message can't hold, by index; empty ones were sent.
Unsent = Mapping[int, TranslationError]


def translation(message: pb.Translation) -> Translation:
    """The result of one text, with its error if it has one."""
    return Translation(
        text=message.translated_text,
        finish_reason=_finish_reason(message.finish_reason),
        num_source_tokens=message.source_token_count,
        num_target_tokens=message.target_token_count,
        was_split=message.was_split,
        error=_error_from_status(message.status) if message.status.code else None,
        sentences=tuple(_sentence(item) for item in message.sentences),
        terms=_terms(message.terms),
        detected_language=message.detected_language_code,
        detection_confidence=message.detection_confidence,
        confidence=_confidence(message),
        warnings=_warnings(message.warnings),
        num_cached_characters=message.cached_character_count,
        memory_matches=_memory_matches(message.memory_matches),
        alternatives=_memory_matches(message.alternatives),
    )


def _warnings(messages: Iterable[pb.TranslationWarning]) -> tuple[TranslationWarning, ...]:
    return tuple(
        TranslationWarning(
            pb.WarningKind.Name(item.kind).removeprefix("WARNING_KIND_").lower()
            if item.kind in pb.WarningKind.values()
            else "unspecified",
            item.text,
            item.sentence,
        )
        for item in messages
    )


def _memory_matches(messages: Iterable[pb.MemoryMatch]) -> tuple[MemoryMatch, ...]:
    return tuple(
        MemoryMatch(item.sentence, item.source_text, item.translated_text, item.score, item.memory)
        for item in messages
    )


def _terms(messages: Iterable[pb.TermUse]) -> tuple[TermUse, ...]:
    return tuple(
        TermUse(item.source_term, item.target_term, item.source_count, item.applied_count)
        for item in messages
    )


def _confidence(message: pb.Translation | pb.Sentence | pb.StreamSummary) -> float | None:
    return message.confidence if message.HasField("confidence") else None


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
        _confidence(message),
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


def score_batch(message: pb.ScoreResponse, trailing: Metadata, unsent: Unsent) -> ScoreBatch:
    """The result of a Score call."""
    scores = [_pair_score(item) for item in message.scores]
    for index, error in unsent.items():
        scores[index] = PairScore(0.0, 0, 0, error)
    return ScoreBatch(
        scores=scores,
        model=message.model,
        **_seconds(message.timing),
        request_id=_request_id(trailing),
    )


def _pair_score(message: pb.PairScore) -> PairScore:
    return PairScore(
        log_probability=message.log_probability,
        num_source_tokens=message.source_token_count,
        num_target_tokens=message.target_token_count,
        error=_error_from_status(message.status) if message.status.code else None,
        tokens=_tokens(message.tokens),
        source_tokens=_source_tokens(message.source_tokens),
        alignment=_alignment(message.alignment) if message.HasField("alignment") else None,
    )


def attention_view(
    message: pb.AttentionResponse, trailing: Metadata, source_text: str
) -> AttentionView:
    """The result of a GetAttention call."""
    return AttentionView(
        source_text=source_text,
        translation=message.translated_text,
        finish_reason=_finish_reason(message.finish_reason),
        source_tokens=_source_tokens(message.source_tokens),
        tokens=_tokens(message.tokens),
        input_tokens=_source_tokens(message.input_tokens),
        source_words=tuple(message.source_words),
        words=tuple(message.words),
        maps=tuple(map(_attention_map, message.matrices)),
        num_encoder_layers=message.num_encoder_layers,
        num_decoder_layers=message.num_decoder_layers,
        num_heads=message.num_heads,
        model=message.model,
        **_seconds(message.timing),
        request_id=_request_id(trailing),
    )


def _attention_map(message: pb.AttentionMatrix) -> AttentionMap:
    weights, width = tuple(message.weights), message.num_columns
    return AttentionMap(
        kind=pb.AttentionKind.Name(message.kind).removeprefix("ATTENTION_KIND_").lower(),
        layer=message.layer if message.HasField("layer") else None,
        head=message.head if message.HasField("head") else None,
        rows=tuple(weights[row * width : (row + 1) * width] for row in range(message.num_rows)),
    )


def batch(
    message: pb.TranslateResponse, trailing: Metadata = (), unsent: Unsent = MappingProxyType({})
) -> TranslationBatch:
    """The result of a Translate call."""
    translations = [translation(item) for item in message.translations]
    for index, error in unsent.items():
        translations[index] = Translation("", FinishReason.UNSPECIFIED, 0, 0, False, error)
    return TranslationBatch(
        translations=translations,
        model=message.model,
        **_seconds(message.timing),
        request_id=_request_id(trailing),
        pivot_language=message.pivot_language_code,
        pivot_model=message.pivot_model,
    )


def document(message: pb.TranslateDocumentResponse, trailing: Metadata = ()) -> DocumentTranslation:
    """The result of a TranslateDocument call."""
    return DocumentTranslation(
        content=message.content,
        num_segments=message.segment_count,
        num_source_tokens=message.source_token_count,
        num_target_tokens=message.target_token_count,
        model=message.model,
        **_seconds(message.timing),
        request_id=_request_id(trailing),
        pivot_language=message.pivot_language_code,
        pivot_model=message.pivot_model,
        detected_language=message.detected_language_code,
        detection_confidence=message.detection_confidence,
        warnings=_warnings(message.warnings),
        num_warnings=message.warning_count,
        num_cached_characters=message.cached_character_count,
        num_memory_matches=message.memory_match_count,
    )


def _seconds(timing: pb.Timing) -> dict[str, float]:
    return {
        "queue_seconds": timing.queue_duration.ToNanoseconds() / 1e9,
        "compute_seconds": timing.compute_duration.ToNanoseconds() / 1e9,
    }


def stream_event(message: pb.StreamTranslateResponse, trailing: Metadata = ()) -> str | StreamEnd:
    """A piece of the text, or the end of the stream."""
    if message.HasField("summary"):
        return stream_end(message.summary)
    return message.delta.text


def stream_end(message: pb.StreamSummary) -> StreamEnd:
    """The last item of a stream."""
    return StreamEnd(
        finish_reason=_finish_reason(message.finish_reason),
        num_source_tokens=message.source_token_count,
        num_target_tokens=message.target_token_count,
        was_split=message.was_split,
        model=message.model,
        **_seconds(message.timing),
        pivot_language=message.pivot_language_code,
        pivot_model=message.pivot_model,
        terms=_terms(message.terms),
        detected_language=message.detected_language_code,
        detection_confidence=message.detection_confidence,
        confidence=_confidence(message),
        warnings=_warnings(message.warnings),
        num_cached_characters=message.cached_character_count,
        memory_matches=_memory_matches(message.memory_matches),
        alternatives=_memory_matches(message.alternatives),
    )


def detections(
    message: pb.DetectLanguageResponse, trailing: Metadata = ()
) -> list[tuple[DetectedLanguage, ...]]:
    """The result of a DetectLanguage call. A text that could not be sent has no languages."""
    return [
        tuple(
            DetectedLanguage(item.language_code, item.confidence, item.is_served)
            for item in detection.languages
        )
        for detection in message.detections
    ]


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
        source_languages=tuple(message.source_language_codes),
        target_languages=tuple(message.target_language_codes),
        default_search=_search(message.default_search),
        origin=message.origin,
        state=_STATES.get(message.state, ""),
    )


def language_group(message: pb.LanguageGroup) -> LanguageGroup:
    """Directions of a server."""
    return LanguageGroup(
        source_languages=tuple(message.source_language_codes),
        target_languages=tuple(message.target_language_codes),
        models=tuple(message.models),
        pivot_language=message.pivot_language_code,
    )


def _search(message: pb.SearchOptions) -> Search:
    """A default search; fields that a newer server added are left out."""
    given = {field.name: value for field, value in message.ListFields()}
    for name, (prefix, enum) in ENUMS.items():
        if name in given:
            given[name] = enum.Name(given[name]).removeprefix(f"{prefix}_").lower()
    known = {field.name for field in dataclasses.fields(Search)} - {"sampling"}
    pieces = tuple(given.pop("suppressed_tokens", ()))
    return Search(
        suppressed_tokens=pieces, **{name: v for name, v in given.items() if name in known}
    )


def error(code: grpc.StatusCode, message: str, trailing: Metadata) -> TranslationError:
    """The error of a call that ended with `code`."""
    if _TOO_LARGE in message:  # gRPC's own, which names no limit of the server
        message += "; send less text in a call, or raise the server's --max-message-bytes"
    status = status_pb2.Status(code=code.value[0], message=message)
    for key, value in trailing:
        if key == _DETAILS and isinstance(value, bytes):
            try:
                status = status_pb2.Status.FromString(value)
            except DecodeError:  # a proxy's; the code and the message are still valid
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
