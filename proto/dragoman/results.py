"""Results and errors of the client, free of protobuf."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

import grpc

from dragoman.memories import MemoryMatch


class FinishReason(enum.Enum):
    """The reason why a translation ended. The values are the contract's numbers."""

    UNSPECIFIED = 0
    """The model was not run: the text has an error."""
    EOS = 1
    """The model ended every sentence itself, or the text was blank."""
    LENGTH = 2
    """At least one sentence was cut off at the token limit."""
    CANCELLED = 3
    DEADLINE = 4
    ERROR = 5


class TranslationError(Exception):
    """A call, or one text of a call, was not translated. `str(error)` may be shown to users.

    Attributes:
        code: the gRPC code, such as INVALID_ARGUMENT or UNAVAILABLE.
        message: message from the server, or from gRPC.
        request_id: identifies the call in the server's log; "" if no server answered.
        retry_after_seconds: time until the same call may succeed; None if the server gave no hint.
        field, description: wrong field and its error, for INVALID_ARGUMENT; else "".
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        message: str,
        *,
        request_id: str = "",
        retry_after_seconds: float | None = None,
        field: str = "",
        description: str = "",
    ) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
        self.request_id = request_id
        self.retry_after_seconds = retry_after_seconds
        self.field = field
        self.description = description


class Token(NamedTuple):
    """A token of a translation.

    Attributes:
        piece: piece of the model's vocabulary; U+2581 stands for a space.
        log_probability: natural logarithm of its probability, given the tokens before it.
        start, end: its place in the text: `text[start:end]`, empty for the end of sentence.
    """

    piece: str
    log_probability: float
    start: int
    end: int


class SourceToken(NamedTuple):
    """A token of a source; fields as in `Token`."""

    piece: str
    start: int
    end: int


@dataclass(frozen=True)
class Alignment:
    """The source tokens that each token of a translation comes from: the contract's `Alignment`.

    Attributes:
        links: (source, target) indices of aligned tokens, one pair for each token of the
            translation but its end of sentence.
        rows: weights of the source tokens for each token of the translation; "soft" only.
    """

    links: tuple[tuple[int, int], ...]
    rows: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a sentence.

    Attributes:
        text: the translation.
        log_probability: natural logarithm of its probability.
        score: ranks it: the log-probability over the length penalty.
        finish_reason: EOS or LENGTH.
        tokens: tokens with the end of sentence; empty unless requested.
        alignment: alignment of the tokens; None unless requested.
    """

    text: str
    log_probability: float
    score: float
    finish_reason: FinishReason
    tokens: tuple[Token, ...] = ()
    alignment: Alignment | None = None


@dataclass(frozen=True)
class Sentence:
    """A sentence and its translations.

    Attributes:
        source_text: the sentence, as in the text.
        hypotheses: translations, best first.
        source_tokens: tokens that the model read; empty unless alignments were requested.
        confidence: the expected chrF of the first translation, 0 to 1; None if the server gives
            none.
    """

    source_text: str
    hypotheses: tuple[Hypothesis, ...]
    source_tokens: tuple[SourceToken, ...] = ()
    confidence: float | None = None


@dataclass(frozen=True)
class TermUse:
    """A term of the glossary in a text.

    Attributes:
        source: the term, as in the glossary.
        target: its first translation.
        num_found: number of times that the text has it.
        num_applied: number of times that the translation has one of its translations.
    """

    source: str
    target: str
    num_found: int
    num_applied: int


@dataclass(frozen=True)
class TranslationWarning:
    """A flaw of the translation of a sentence that the server could not put right.

    Attributes:
        kind: "missing", "added", "place", "quotes", "signs", "character", "repetition", "length" or
            "untranslated", as the contract's `WarningKind` explains.
        text: the part that it is about; may be empty.
        sentence: the sentence.
    """

    kind: str
    text: str
    sentence: str


@dataclass(frozen=True)
class Translation:
    """One text's translation.

    Attributes:
        text: the translation; "" if there is an error.
        finish_reason: reason why it ended.
        num_source_tokens, num_target_tokens: numbers of tokens read and generated, without ends of
            sentence.
        was_split: whether a sentence was too long for the model and was split.
        error: reason why this text was not translated; else None.
        sentences: sentences that the model translated; empty unless requested.
        terms: the glossary's terms that are in the text.
        detected_language: the BCP-47 code of the text's language, if the server detected it; "und"
            if the text shows nothing of its language.
        detection_confidence: the probability of that language, from 0 to 1.
        confidence: the mean of the sentences' confidences; None if the server gives none.
        warnings: flaws of the translations of its sentences.
        num_cached_characters: characters of sentences that the server's response cache answered.
        memory_matches: sentences whose translation is the translation memory's.
        alternatives: similar sentences of the memory, for sentences that the model translated.
    """

    text: str
    finish_reason: FinishReason
    num_source_tokens: int
    num_target_tokens: int
    was_split: bool
    error: TranslationError | None = None
    sentences: tuple[Sentence, ...] = ()
    terms: tuple[TermUse, ...] = ()
    detected_language: str = ""
    detection_confidence: float = 0.0
    confidence: float | None = None
    warnings: tuple[TranslationWarning, ...] = ()
    num_cached_characters: int = 0
    memory_matches: tuple[MemoryMatch, ...] = ()
    alternatives: tuple[MemoryMatch, ...] = ()


@dataclass(frozen=True)
class TranslationBatch:
    """The result of a `translate` call.

    Attributes:
        translations: one for each text, in order.
        model: the name of the model; with a pivot, of the second one. "" if texts of several
            detected languages were translated by several models.
        queue_seconds, compute_seconds: time spent on the server.
        request_id: identifies the call in the server's log.
        pivot_language: the third language that the texts were translated through; "" if the model
            translated directly.
        pivot_model: the name of the model that translated into that language.
    """

    translations: list[Translation]
    model: str
    queue_seconds: float
    compute_seconds: float
    request_id: str
    pivot_language: str = ""
    pivot_model: str = ""


@dataclass(frozen=True)
class DocumentTranslation:
    """The result of a `translate_document` call.

    Attributes:
        content: the translated file.
        num_segments: parts of the document that were translated.
        num_source_tokens, num_target_tokens: as in `Translation`, for all parts.
        model, queue_seconds, compute_seconds, request_id, pivot_language, pivot_model: as in
            `TranslationBatch`.
        detected_language, detection_confidence: as in `Translation`, for the document.
        warnings: as in `Translation`, for all parts: the first 100.
        num_warnings: number of all warnings.
        num_cached_characters: as in `Translation`, for all parts.
        num_memory_matches: sentences whose translation is the memory's.
    """

    content: bytes
    num_segments: int
    num_source_tokens: int
    num_target_tokens: int
    model: str
    queue_seconds: float
    compute_seconds: float
    request_id: str
    pivot_language: str = ""
    pivot_model: str = ""
    detected_language: str = ""
    detection_confidence: float = 0.0
    warnings: tuple[TranslationWarning, ...] = ()
    num_warnings: int = 0
    num_cached_characters: int = 0
    num_memory_matches: int = 0


@dataclass(frozen=True)
class PairScore:
    """The probability of a translation.

    Attributes:
        log_probability: natural logarithm of its probability; 0 if there is an error.
        num_source_tokens, num_target_tokens: numbers of tokens read, without ends of sentence.
        error: reason why this pair has no score; else None.
        tokens, source_tokens, alignment: as in `Hypothesis` and `Sentence`.
    """

    log_probability: float
    num_source_tokens: int
    num_target_tokens: int
    error: TranslationError | None = None
    tokens: tuple[Token, ...] = ()
    source_tokens: tuple[SourceToken, ...] = ()
    alignment: Alignment | None = None


@dataclass(frozen=True)
class ScoreBatch:
    """The result of a `score` call.

    Attributes:
        scores: one for each pair, in order.
        model, queue_seconds, compute_seconds, request_id: as in `TranslationBatch`.
    """

    scores: list[PairScore]
    model: str
    queue_seconds: float
    compute_seconds: float
    request_id: str


@dataclass(frozen=True)
class AttentionMap:
    """The weights of one attention, or the mean of several; the contract's `AttentionMatrix`.

    Attributes:
        kind: "cross", "encoder_self" or "decoder_self".
        layer, head: numbers from 0; None for the mean over those that were requested.
        rows: weights of the keys for each query; each row sums to one.
    """

    kind: str
    layer: int | None
    head: int | None
    rows: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class AttentionView:
    """The attention weights of a text and its translation.

    Attributes:
        source_text: the text.
        translation: the given or generated translation.
        finish_reason: reason why its generation ended; UNSPECIFIED if it was given.
        source_tokens: tokens that the encoder read: rows of "encoder_self", columns of it and of
            "cross".
        tokens: tokens of the translation: rows of "cross" and "decoder_self".
        input_tokens: tokens that the decoder read: columns of "decoder_self".
        source_words, words: the index of the word that each of `source_tokens` and `tokens`
            belongs to.
        maps: attention maps by kind, layer and head, in the order of the request.
        num_encoder_layers, num_decoder_layers, num_heads: sizes of the model.
        model, queue_seconds, compute_seconds, request_id: as in `TranslationBatch`.
    """

    source_text: str
    translation: str
    finish_reason: FinishReason
    source_tokens: tuple[SourceToken, ...]
    tokens: tuple[Token, ...]
    input_tokens: tuple[SourceToken, ...]
    source_words: tuple[int, ...]
    words: tuple[int, ...]
    maps: tuple[AttentionMap, ...]
    num_encoder_layers: int
    num_decoder_layers: int
    num_heads: int
    model: str
    queue_seconds: float
    compute_seconds: float
    request_id: str


@dataclass(frozen=True)
class StreamEnd:
    """The last item of a stream.

    Attributes: as in `Translation` and `TranslationBatch`.
    """

    finish_reason: FinishReason
    num_source_tokens: int
    num_target_tokens: int
    was_split: bool
    model: str
    queue_seconds: float
    compute_seconds: float
    pivot_language: str = ""
    pivot_model: str = ""
    terms: tuple[TermUse, ...] = ()
    detected_language: str = ""
    detection_confidence: float = 0.0
    confidence: float | None = None
    warnings: tuple[TranslationWarning, ...] = ()
    num_cached_characters: int = 0
    memory_matches: tuple[MemoryMatch, ...] = ()
    alternatives: tuple[MemoryMatch, ...] = ()


class DetectedLanguage(NamedTuple):
    """A language that a text may be in.

    Attributes:
        language: BCP-47 code; the server's own, if it translates from the language.
        confidence: the probability of the language among all that the detector knows, from 0 to 1.
        is_served: whether the server translates from it.
    """

    language: str
    confidence: float
    is_served: bool
