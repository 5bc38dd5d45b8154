"""Between the contract's messages and the domain: options in, translations out."""

from __future__ import annotations

import secrets
from typing import Any

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from dragoman.v1 import translation_pb2 as pb
from service.boundary import status_of
from service.errors import InvalidArgumentError
from service.options import TranslateOptions
from service.requests import (
    EarlyStopping,
    FinishReason,
    LengthPenaltyKind,
    Priority,
    Sampling,
    SearchOptions,
)
from service.text_results import SentenceHypothesis, SentenceResult, TextResult

_FINISH_REASONS = {
    FinishReason.EOS: pb.FINISH_REASON_EOS,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
    FinishReason.CANCELLED: pb.FINISH_REASON_CANCELLED,
    FinishReason.DEADLINE: pb.FINISH_REASON_DEADLINE,
    FinishReason.ERROR: pb.FINISH_REASON_ERROR,
}
_PRIORITIES: dict[int, Priority] = {
    pb.PRIORITY_UNSPECIFIED: Priority.NORMAL,
    pb.PRIORITY_LOW: Priority.LOW,
    pb.PRIORITY_NORMAL: Priority.NORMAL,
    pb.PRIORITY_HIGH: Priority.HIGH,
}
_LENGTH_PENALTY_KINDS: dict[int, LengthPenaltyKind] = {
    pb.LENGTH_PENALTY_KIND_POWER: "power",
    pb.LENGTH_PENALTY_KIND_GNMT: "gnmt",
}
_EARLY_STOPPINGS: dict[int, EarlyStopping] = {
    pb.EARLY_STOPPING_HEURISTIC: "heuristic",
    pb.EARLY_STOPPING_FIRST: "first",
    pb.EARLY_STOPPING_NEVER: "never",
}


def options_of(options: pb.TranslateOptions) -> TranslateOptions:
    """The domain's options.

    Raises:
        InvalidArgumentError: a value out of range, or an option of a newer contract, which would
            otherwise be dropped in silence; names the field.
    """
    _refuse_unknown(options, "options")
    _refuse_unknown(options.search, "options.search")
    _refuse_unknown(options.search.sampling, "options.search.sampling")
    given = _given(options, "split_sentences", "max_new_tokens", "num_hypotheses")
    try:
        search = _search_of(options.search)
    except InvalidArgumentError as exc:
        raise exc.within("options.search") from exc
    return TranslateOptions(
        search=search,
        suppressed_tokens=tuple(options.search.suppressed_tokens),
        target_prefix=options.search.target_prefix,
        priority=_priority_of(options.priority),
        return_tokens=options.return_tokens,
        **given,
    )


def _priority_of(number: int) -> Priority:
    if number not in _PRIORITIES:
        raise InvalidArgumentError("options.priority", f"this server does not know value {number}")
    return _PRIORITIES[number]


def _search_of(search: pb.SearchOptions) -> SearchOptions:
    given = _given(search, "beam_size", "length_penalty", "repetition_penalty")
    for field, names in (
        ("length_penalty_kind", _LENGTH_PENALTY_KINDS),
        ("early_stopping", _EARLY_STOPPINGS),
    ):
        number: int = getattr(search, field)
        if number:
            if number not in names:
                raise InvalidArgumentError(field, f"this server does not know value {number}")
            given[field] = names[number]
    if search.HasField("sampling"):
        given["sampling"] = _sampling_of(search.sampling)
    return SearchOptions(
        min_new_tokens=search.min_new_tokens,
        no_repeat_ngram_size=search.no_repeat_ngram_size,
        **given,
    )


def _sampling_of(sampling: pb.Sampling) -> Sampling:
    given = _given(sampling, "temperature", "top_k", "top_p", "seed")
    try:
        return Sampling(**{"seed": secrets.randbits(64), **given})
    except InvalidArgumentError as exc:
        raise exc.within("sampling") from exc


def _given(message: Message, *fields: str) -> dict[str, Any]:
    """The optional fields that are set."""
    return {name: getattr(message, name) for name in fields if message.HasField(name)}


def _refuse_unknown(message: Message, name: str) -> None:
    unknown = UnknownFieldSet(message)
    if len(unknown):
        number = unknown[0].field_number
        raise InvalidArgumentError(name, f"this server does not know option number {number}")


def translation_message(result: TextResult, request_id: str) -> pb.Translation:
    """One text's answer; `request_id` is for the message of an internal error."""
    return pb.Translation(
        translated_text=result.text,
        finish_reason=finish_reason_of(result),
        source_token_count=result.num_source_tokens,
        target_token_count=result.num_target_tokens,
        was_split=result.was_split,
        status=status_of(result.error, request_id) if result.error else None,
        sentences=[_sentence(sentence) for sentence in result.sentences],
    )


def finish_reason_of(result: TextResult) -> pb.FinishReason.ValueType:
    """Why a text's translation ended."""
    if result.finish_reason is None:
        return pb.FINISH_REASON_UNSPECIFIED
    return _FINISH_REASONS[result.finish_reason]


def _sentence(sentence: SentenceResult) -> pb.Sentence:
    return pb.Sentence(
        source_text=sentence.source_text,
        hypotheses=[_hypothesis(hypothesis) for hypothesis in sentence.hypotheses],
    )


def _hypothesis(hypothesis: SentenceHypothesis) -> pb.Hypothesis:
    return pb.Hypothesis(
        text=hypothesis.text,
        log_probability=hypothesis.log_probability,
        score=hypothesis.score,
        finish_reason=_FINISH_REASONS[hypothesis.finish_reason],
        tokens=[
            pb.Token(piece=piece, log_probability=log_probability)
            for piece, log_probability in hypothesis.tokens
        ],
    )
