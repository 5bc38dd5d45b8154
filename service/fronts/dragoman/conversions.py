"""Converts between the contract's messages and the domain: options in, results out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from dragoman.v1 import translation_pb2 as pb
from model.bundle.search_limits import MAX_SUPPRESSED
from model.bundle.tokenizer import Tokenizer
from service.common.fairness import checkpoint
from service.domain.attention import AttentionKind, AttentionLabel
from service.domain.plan import Float32
from service.domain.requests import FinishReason, Priority, SearchOptions
from service.domain.sampling import Sampling
from service.errors import InvalidArgumentError
from service.fronts.status import status_of
from service.text.options import LineBreaks
from service.translation.alignments import Alignment, SourceToken, TargetToken
from service.translation.attention import AttentionOptions, AttentionResult
from service.translation.options import TranslateOptions
from service.translation.pair_scorer import PairResult, ScoreOptions
from service.translation.results import (
    MemoryMatch,
    SentenceHypothesis,
    TermUse,
    TextResult,
    TranslationWarning,
)

T = TypeVar("T")

# No model has as many layers or heads.
MAX_SELECTED = 1024
# Between two of them, other calls get their turn.
_WEIGHTS_PER_YIELD = 262_144

_NO_OPTIONS = TranslateOptions()  # of most requests
_FINISH_REASONS = {
    reason: pb.FinishReason.Value(f"FINISH_REASON_{reason.name}") for reason in FinishReason
}


def _values(enum: Any, prefix: str) -> dict[int, str]:
    """The names of the values of an enum, in lower case, without the unspecified one."""
    return {
        number: name.removeprefix(prefix).lower() for name, number in enum.items() if number != 0
    }


_ALIGNMENT_KINDS: dict[int, Any] = {0: None, **_values(pb.AlignmentKind, "ALIGNMENT_KIND_")}
_ATTENTION_KINDS: dict[int, AttentionKind] = {
    number: AttentionKind(name)
    for number, name in _values(pb.AttentionKind, "ATTENTION_KIND_").items()
}
_ATTENTION_NUMBERS = {kind: number for number, kind in _ATTENTION_KINDS.items()}
PRIORITIES: dict[int, Priority] = {
    0: Priority.NORMAL,
    **{number: Priority(name) for number, name in _values(pb.Priority, "PRIORITY_").items()},
}
# Optional numbers and switches of a search, the same in the domain; and fields with an enum.
_PLAIN = (
    "length_penalty",
    "min_new_tokens",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "exact",
)
_ENUMS: dict[str, Mapping[int, Any]] = {
    "length_penalty_kind": _values(pb.LengthPenaltyKind, "LENGTH_PENALTY_KIND_"),
    "early_stopping": _values(pb.EarlyStopping, "EARLY_STOPPING_"),
}
LINE_BREAKS: dict[int, LineBreaks | None] = {
    0: None,
    **{number: LineBreaks(name) for number, name in _values(pb.LineBreaks, "LINE_BREAKS_").items()},
}


def options_of(
    options: pb.TranslateOptions, default: TranslateOptions = _NO_OPTIONS
) -> TranslateOptions:
    """The domain's options: given values, and the model's defaults for the rest.

    Raises:
        InvalidArgumentError: a value is out of range, or an option belongs to a newer contract and
            would be ignored; names the field.
    """
    if not options.ByteSize():
        return default
    refuse_unknown(options, "options")
    refuse_unknown(options.search, "options.search")
    refuse_unknown(options.search.sampling, "options.search.sampling")
    if (count := len(options.search.suppressed_tokens)) > MAX_SUPPRESSED:  # before unpacking
        raise InvalidArgumentError(
            "options.search.suppressed_tokens",
            f"{count:,} is more than {MAX_SUPPRESSED}, the limit",
        )
    given = given_fields(options, "split_sentences", "max_new_tokens", "num_hypotheses")
    try:
        search = _search_of(options.search, default.search)
    except InvalidArgumentError as exc:
        raise exc.within("options.search") from exc
    if "max_new_tokens" in given and not options.search.HasField("min_new_tokens"):
        # The model's own default gives way; a limit out of range is refused later, by its name.
        least = min(search.min_new_tokens, max(0, given["max_new_tokens"]))
        search = replace(search, min_new_tokens=least)
    return TranslateOptions(
        search=search,
        suppressed_tokens=tuple(options.search.suppressed_tokens),
        target_prefix=options.search.target_prefix,
        priority=known("options.priority", options.priority, PRIORITIES),
        return_tokens=options.return_tokens,
        return_alignments=known(
            "options.return_alignments", options.return_alignments, _ALIGNMENT_KINDS
        ),
        **given,
    )


def score_options_of(options: pb.ScoreOptions) -> ScoreOptions:
    """The domain's options. Raises what `options_of` raises."""
    refuse_unknown(options, "options")
    return ScoreOptions(
        priority=known("options.priority", options.priority, PRIORITIES),
        return_tokens=options.return_tokens,
        return_alignments=known(
            "options.return_alignments", options.return_alignments, _ALIGNMENT_KINDS
        ),
    )


def attention_options_of(
    options: pb.AttentionOptions, default: TranslateOptions = _NO_OPTIONS
) -> AttentionOptions:
    """The domain's options: given values, and the model's defaults for the rest.

    Raises what `options_of` raises.
    """
    refuse_unknown(options, "options")
    common = pb.TranslateOptions(search=options.search, priority=options.priority)
    if options.HasField("max_new_tokens"):
        common.max_new_tokens = options.max_new_tokens
    for name in ("kinds", "layers", "heads"):
        if (count := len(getattr(options, name))) > MAX_SELECTED:  # before unpacking
            raise InvalidArgumentError(
                f"options.{name}", f"{count:,} are more than {MAX_SELECTED:,}, the limit"
            )
    kinds = tuple(known("options.kinds", kind, _ATTENTION_KINDS) for kind in options.kinds)
    return AttentionOptions(
        kinds=kinds or (AttentionKind.CROSS,),
        layers=tuple(options.layers),
        heads=tuple(options.heads),
        average_layers=options.average_layers,
        average_heads=options.average_heads,
        translation=options_of(common, default),
    )


def known(field: str, number: int, values: Mapping[int, T]) -> T:
    """The meaning of an enum's value. Raises InvalidArgumentError for one of a newer contract."""
    if number not in values:
        raise InvalidArgumentError(field, f"this server does not know value {number}")
    return values[number]


def _search_of(search: pb.SearchOptions, default: SearchOptions) -> SearchOptions:
    given = given_fields(search, "beam_size", *_PLAIN)
    for field, names in _ENUMS.items():
        number: int = getattr(search, field)
        if number:
            given[field] = known(field, number, names)
    if search.HasField("sampling"):
        given = {"beam_size": 1, **given, "sampling": _sampling_of(search.sampling)}
    return replace(default, **given)


def describe_search(search: SearchOptions, tokenizer: Tokenizer) -> pb.SearchOptions:
    """A model's default search: its beam, and its other differences from a plain search."""
    message, plain = pb.SearchOptions(beam_size=search.beam_size), SearchOptions()
    for field in _PLAIN:
        if (value := getattr(search, field)) != getattr(plain, field):
            setattr(message, field, value)
    for field, names in _ENUMS.items():
        if (value := getattr(search, field)) != getattr(plain, field):
            setattr(message, field, next(n for n, name in names.items() if name == value))
    message.suppressed_tokens.extend(map(tokenizer.id_to_piece, search.suppressed_ids))
    return message


def _sampling_of(sampling: pb.Sampling) -> Sampling:
    given = given_fields(sampling, "temperature", "top_k", "top_p", "seed")
    try:
        return Sampling(**{"seed": None, **given})
    except InvalidArgumentError as exc:
        raise exc.within("sampling") from exc


def given_fields(message: Message, *fields: str) -> dict[str, Any]:
    """Optional fields that are set."""
    return {name: getattr(message, name) for name in fields if message.HasField(name)}


def refuse_unknown(message: Message, name: str) -> None:
    """Raise InvalidArgumentError for a field that this server does not know."""
    unknown = UnknownFieldSet(message)
    if len(unknown):
        number = unknown[0].field_number
        raise InvalidArgumentError(name, f"this server does not know option number {number}")


async def add_translation(
    response: pb.TranslateResponse, result: TextResult, request_id: str
) -> None:
    """Add the result of one text; `request_id` is for the message of an internal error."""
    await checkpoint()
    message = response.translations.add(
        translated_text=result.text,
        status=status_of(result.error, request_id) if result.error else None,
        **result_fields(result),
    )
    for sentence in result.sentences:
        shown = message.sentences.add(
            source_text=sentence.source_text,
            source_tokens=[_source_token(token) for token in sentence.source_tokens],
            confidence=sentence.confidence,
        )
        for hypothesis in sentence.hypotheses:
            await checkpoint()
            shown.hypotheses.append(_hypothesis(hypothesis))


def result_fields(result: TextResult) -> dict[str, Any]:
    """The fields that a translation and the summary of a stream have in common."""
    return {
        "finish_reason": _finish_reason_of(result),
        "source_token_count": result.num_source_tokens,
        "target_token_count": result.num_target_tokens,
        "was_split": result.was_split,
        "terms": map(_term_use, result.terms),
        "confidence": result.confidence,
        "warnings": map(warning, result.warnings),
        "cached_character_count": result.num_cached_characters,
        "memory_matches": map(_memory_match, result.memory_matches),
        "alternatives": map(_memory_match, result.alternatives),
    }


def _finish_reason_of(result: TextResult | AttentionResult) -> pb.FinishReason.ValueType:
    """The finish reason of a text."""
    if result.finish_reason is None:  # no model ran, or the translation was given
        return pb.FINISH_REASON_UNSPECIFIED
    return _FINISH_REASONS[result.finish_reason]


def _hypothesis(hypothesis: SentenceHypothesis) -> pb.Hypothesis:
    return pb.Hypothesis(
        text=hypothesis.text,
        log_probability=hypothesis.log_probability,
        score=hypothesis.score,
        finish_reason=_FINISH_REASONS[hypothesis.finish_reason],
        tokens=[_token(token) for token in hypothesis.tokens],
        alignment=_alignment(hypothesis.alignment) if hypothesis.alignment else None,
    )


async def add_score(response: pb.ScoreResponse, result: PairResult, request_id: str) -> None:
    """Add the result of one pair; `request_id` is for the message of an internal error."""
    await checkpoint()
    response.scores.add(
        log_probability=result.log_probability,
        source_token_count=result.num_source_tokens,
        target_token_count=result.num_target_tokens,
        status=status_of(result.error, request_id) if result.error else None,
        tokens=[_token(token) for token in result.tokens],
        source_tokens=[_source_token(token) for token in result.source_tokens],
        alignment=_alignment(result.alignment) if result.alignment else None,
    )


async def attention_response(result: AttentionResult, model: str) -> pb.AttentionResponse:
    """The answer to a request for attention weights, without its timing."""
    response = pb.AttentionResponse(
        model=model,
        translated_text=result.translation,
        finish_reason=_finish_reason_of(result),
        source_tokens=[_source_token(token) for token in result.source_tokens],
        tokens=[_token(token) for token in result.tokens],
        input_tokens=[_source_token(token) for token in result.input_tokens],
        source_words=result.source_words,
        words=result.words,
        num_encoder_layers=result.shape.num_encoder_layers,
        num_decoder_layers=result.shape.num_decoder_layers,
        num_heads=result.shape.num_heads,
    )
    for label, weights in result.matrices:
        await _add_matrix(response, label, weights)
    return response


async def _add_matrix(
    response: pb.AttentionResponse,
    label: AttentionLabel,
    weights: Float32,
) -> None:
    num_rows, num_columns = weights.shape
    message = response.matrices.add(
        kind=_ATTENTION_NUMBERS[label.kind],
        layer=label.layer,
        head=label.head,
        num_rows=num_rows,
        num_columns=num_columns,
    )
    flat = weights.ravel()
    for start in range(0, flat.size, _WEIGHTS_PER_YIELD):
        await checkpoint()
        message.MergeFromString(_packed_weights(flat[start : start + _WEIGHTS_PER_YIELD]))


def _packed_weights(weights: Float32) -> bytes:
    """Weights of an `AttentionMatrix` in the wire format, which parsing adds to the message.

    That takes a fiftieth of the time of a list of numbers, and the event loop has other calls.
    https://protobuf.dev/programming-guides/encoding/#packed
    """
    content = weights.astype("<f4", copy=False).tobytes()
    key = pb.AttentionMatrix.WEIGHTS_FIELD_NUMBER << 3 | 2  # bytes with their length
    return _varint(key) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """A varint: seven bits a byte, the lowest first; the highest bit is set in all but the last."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def warning(found: TranslationWarning) -> pb.TranslationWarning:
    """A warning in the contract."""
    kind = pb.WarningKind.Value(f"WARNING_KIND_{found.kind.name}")
    return pb.TranslationWarning(kind=kind, text=found.text, sentence=found.sentence)


def _memory_match(match: MemoryMatch) -> pb.MemoryMatch:
    """A sentence and a pair of the translation memory."""
    return pb.MemoryMatch(
        sentence=match.sentence,
        source_text=match.source,
        translated_text=match.target,
        score=match.score,
        memory=match.memory,
    )


def _term_use(term: TermUse) -> pb.TermUse:
    """A term of a glossary in a text."""
    return pb.TermUse(
        source_term=term.source,
        target_term=term.target,
        source_count=term.count,
        applied_count=term.num_applied,
    )


def _token(token: TargetToken) -> pb.Token:
    start, end = token.span
    return pb.Token(piece=token.piece, log_probability=token.log_probability, start=start, end=end)


def _source_token(token: SourceToken) -> pb.SourceToken:
    return pb.SourceToken(piece=token.piece, start=token.span.start, end=token.span.end)


def _alignment(alignment: Alignment) -> pb.Alignment:
    return pb.Alignment(
        links=[
            pb.AlignmentLink(source=source, target=target) for source, target in alignment.links
        ],
        rows=[]
        if alignment.rows is None
        else [pb.AlignmentRow(weights=row.tolist()) for row in alignment.rows],
    )
