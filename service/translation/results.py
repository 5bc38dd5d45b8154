"""Results of texts, assembled from the results of their sentences."""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from model.bundle.tokenizer import Tokenizer
from service.domain.requests import FinishReason, GenerationResult, Hypothesis
from service.engine.generation import Generation
from service.errors import DragomanError
from service.translation.alignments import (
    Alignment,
    SourceToken,
    TargetToken,
    alignment_of,
    generated_tokens,
    source_tokens,
)
from service.translation.confidence import SentenceConfidence, text_confidence
from service.translation.engine_call import SubmittedSentence
from service.translation.links import Link, LinkedText, word_links
from service.translation.options import TranslateOptions
from service.translation.preparation import PreparedText
from service.translation.segmentation import SourceSentence


@dataclass(frozen=True)
class SentenceHypothesis:
    """One translation of a sentence.

    Attributes:
        text: the translation.
        log_probability, score: as in `service.domain.requests.Hypothesis`.
        finish_reason: EOS or LENGTH.
        tokens: tokens with EOS; empty unless requested.
        alignment: alignment to the sentence's tokens; None unless requested.
    """

    text: str
    log_probability: float
    score: float
    finish_reason: FinishReason
    tokens: Sequence[TargetToken] = ()
    alignment: Alignment | None = None


@dataclass(frozen=True)
class SentenceResult:
    """A sentence and its translations.

    Attributes:
        source_text: the sentence, as in the text.
        hypotheses: the translations, best first.
        source_tokens: tokens that the model read, with EOS; empty unless alignments were requested.
        confidence: expected chrF of the best translation, 0 to 1
            (`service.translation.confidence`); None if it is not known.
    """

    source_text: str
    hypotheses: Sequence[SentenceHypothesis]
    source_tokens: Sequence[SourceToken] = ()
    confidence: float | None = None


@dataclass(frozen=True)
class TermUse:
    """A term of a glossary in a text.

    Attributes:
        source: the term, as in the glossary.
        target: the translation that the glossary has for it, the first of several.
        count: number of times that the text has the term.
        num_applied: number of times that its translations are used, at most `count`.
    """

    source: str
    target: str
    count: int
    num_applied: int


class WarningKind(enum.Enum):
    """The kinds of flaws of a translation."""

    MISSING = "missing"
    """A thing is not in the translation, or not as often as in the sentence."""
    ADDED = "added"
    """A thing or a number is there more often than in the sentence."""
    PLACE = "place"
    """A thing stands at the end of the sentence, because its place is not known."""
    QUOTES = "quotes"
    """The translation has more or fewer quotation marks."""
    SIGNS = "signs"
    """Signs such as braces are lost, or remain of what the model read in place of a thing."""
    CHARACTER = "character"
    """The model wrote an invalid character (U+FFFD)."""
    REPETITION = "repetition"
    """The translation repeats itself, and the sentence doesn't."""
    LENGTH = "length"
    """The translation is much too short or too long."""
    UNTRANSLATED = "untranslated"
    """The sentence, or a part of it, stands there as it is: the model wrote nothing usable."""


@dataclass(frozen=True)
class TranslationWarning:
    """A flaw of the translation of a sentence that could not be put right.

    Attributes:
        kind: kind of the flaw.
        text: the part of the sentence, or of the translation, that it is about; may be empty.
        sentence: the sentence.
    """

    kind: WarningKind
    text: str
    sentence: str


MAX_SHOWN = 200
"""Characters of a long sentence in a warning."""


def untranslated(sentence: str, part: str = "") -> TranslationWarning:
    """The warning that a sentence, or a part of it, stands in place of its translation."""
    shown = part[:MAX_SHOWN], sentence[:MAX_SHOWN]
    return TranslationWarning(WarningKind.UNTRANSLATED, *shown)


@dataclass(frozen=True)
class MemoryMatch:
    """A sentence, and a pair of the translation memory for it.

    Attributes:
        sentence: the sentence, or a line of several.
        source: source of the pair.
        target: its translation; of an exact match, adapted to the sentence.
        score: similarity of the sentence and the source, 0 to 1; 1 for an exact match.
        memory: name of the memory.
    """

    sentence: str
    source: str
    target: str
    score: float
    memory: str


@dataclass(frozen=True)
class TextResult:
    """The result of one text.

    Attributes:
        text: the translation; "" if there is an error.
        finish_reason: LENGTH if a sentence reached its token limit, else EOS; ERROR if the model
            failed, None if it was not run because the text is bad.
        num_source_tokens, num_target_tokens: tokens of all sentences, without EOS.
        was_split: whether a sentence was too long for the model and had to be split.
        error: reason why there is no translation; does not affect other texts of the request.
        queue_seconds: seconds from the call until the model began with the text.
        compute_seconds: seconds from then until its last sentence was done; other texts may have
            run at the same time.
        sentences: sentences that the model translated, in order; empty unless requested.
        links: the source of each part of the translation (`service.translation.links`), in the
            order of the translation; empty unless requested, and for an error.
        terms: terms of the glossary that are in the text, in order.
        confidence: the expected chrF of the translation, 0 to 1; None for an error, without a
            calibration, with a pivot, and for a text of copied sentences.
        warnings: flaws of the translations of its sentences.
        num_cached_characters: characters of sentences that no model had to translate, because of
            the cache; 0 for an error.
        memory_matches: the first sentences that the translation memory translated, in order.
        num_memory_matches: number of all these sentences.
        alternatives: pairs of the memory that are similar to other sentences.
    """

    text: str
    finish_reason: FinishReason | None
    num_source_tokens: int = 0
    num_target_tokens: int = 0
    was_split: bool = False
    error: DragomanError | None = None
    queue_seconds: float = 0.0
    compute_seconds: float = 0.0
    sentences: Sequence[SentenceResult] = ()
    links: Sequence[Link] = ()
    terms: Sequence[TermUse] = ()
    confidence: float | None = None
    warnings: Sequence[TranslationWarning] = ()
    num_cached_characters: int = 0
    memory_matches: Sequence[MemoryMatch] = ()
    num_memory_matches: int = 0
    alternatives: Sequence[MemoryMatch] = ()


def joined_reason(reasons: Collection[FinishReason | None]) -> FinishReason:
    """The finish reason of a text, from those of its parts."""
    order = (FinishReason.ERROR, FinishReason.LENGTH)
    return next((reason for reason in order if reason in reasons), FinishReason.EOS)


@dataclass
class PendingText:
    """A text in translation, and its results so far.

    Attributes:
        prepared: the text in sentences.
        submitted: its sentences that were submitted, in order.
        started_at: time at which the call began, in seconds of the engine's clock.
        confidences: confidences of the sentences, if the model has a calibration.
        sentences: results of sentences, if the client requested them.
        outputs: the translation of each sentence, with the separator before it.
        linked: links of the sentences, if they were requested.
        warnings: flaws of the translations so far.
    """

    prepared: PreparedText
    submitted: list[SubmittedSentence]
    started_at: float
    confidences: list[SentenceConfidence] = field(default_factory=list)
    sentences: list[SentenceResult] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    linked: LinkedText = field(default_factory=LinkedText)
    warnings: list[TranslationWarning] = field(default_factory=list)
    _reasons: set[FinishReason] = field(default_factory=set)
    _num_target_tokens: int = 0
    _begun: float | None = None
    _ended: float = 0.0

    def add(self, generation: Generation, result: GenerationResult) -> None:
        """Add a generation that has finished."""
        begun = generation.submitted_at + result.queue_seconds
        self._begun = begun if self._begun is None else min(self._begun, begun)
        self._ended = max(self._ended, begun + result.compute_seconds)
        self._reasons.add(result.finish_reason)
        self._num_target_tokens += len(result.token_ids)

    @property
    def _num_cached_characters(self) -> int:
        return sum(
            len(each.sentence.text)
            for each in self.submitted
            if each.generation is not None and each.generation.is_cached
        )

    def result(self, text: str, error: DragomanError | None = None) -> TextResult:
        """The result, once all generations have finished."""
        first = self.started_at if self._begun is None else self._begun
        return TextResult(
            text=text,
            finish_reason=joined_reason(self._reasons),
            num_source_tokens=self.prepared.num_source_tokens,
            num_target_tokens=self._num_target_tokens,
            was_split=self.prepared.was_split,
            error=error,
            queue_seconds=first - self.started_at,
            compute_seconds=max(self._ended, first) - first,
            sentences=() if error else self.sentences,
            links=() if error else self.linked.links,
            confidence=None if error else text_confidence(self.confidences),
            warnings=() if error else self.warnings,
            num_cached_characters=0 if error else self._num_cached_characters,
        )

    def link(
        self,
        sentence: SourceSentence,
        output: str,
        result: GenerationResult,
        scored: Sequence[Hypothesis],
        tokenizer: Tokenizer,
    ) -> None:
        """Add the links of a sentence.

        Args:
            sentence: the sentence.
            output: its translation.
            result: result of its search.
            scored: the result's hypotheses, scored with alignments; empty for a model without any.
            tokenizer: the model's tokenizer.
        """
        links = None
        if scored:
            [best], linked = result.hypotheses[:1], scored[0].linked
            assert linked is not None, "scored without an alignment"
            source_spans = tokenizer.encoded_spans(sentence.text)[len(tokenizer.prefix_ids) :]
            target_spans = tokenizer.target.decoded_spans(best.token_ids)
            spans = source_spans, target_spans
            links = word_links(sentence.text, output, spans, linked.tolist())
        self.linked.translate(sentence.text, output, links)


def sentence_result(
    sentence: SourceSentence,
    result: GenerationResult,
    tokenizer: Tokenizer,
    options: TranslateOptions,
    scored: Sequence[Hypothesis] = (),
    confidence: float | None = None,
) -> SentenceResult:
    """The result of one sentence.

    Args:
        sentence: the sentence.
        result: the result of the sentence's search.
        tokenizer: the model's tokenizer.
        options: the request's options, which say what to return.
        scored: the result's hypotheses, scored, if alignments are requested.
        confidence: the confidence of the best hypothesis; None if it is not known.
    """
    kind = options.return_alignments

    def shown(index: int, hypothesis: Hypothesis) -> SentenceHypothesis:
        return SentenceHypothesis(
            text=tokenizer.target.decode(hypothesis.token_ids),
            log_probability=hypothesis.log_probability,
            score=hypothesis.score,
            finish_reason=FinishReason.EOS if hypothesis.ended else FinishReason.LENGTH,
            tokens=generated_tokens(hypothesis, tokenizer.target) if options.shows_tokens else (),
            alignment=alignment_of(scored[index]) if kind else None,
        )

    return SentenceResult(
        sentence.text,
        [shown(index, hypothesis) for index, hypothesis in enumerate(result.hypotheses)],
        source_tokens(sentence.text, tokenizer) if kind else (),
        confidence,
    )
