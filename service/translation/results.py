"""What became of a text, put together from what became of its sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from model.tokenizer import Tokenizer
from service.decoding.requests import FinishReason, GenerationResult, Hypothesis
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
from service.translation.engine_call import Part
from service.translation.options import TranslateOptions
from service.translation.preparation import Piece, PreparedText


@dataclass(frozen=True)
class SentenceHypothesis:
    """One translation of a sentence.

    Attributes:
        text: the translation.
        log_probability, score: as in `service.decoding.requests.Hypothesis`.
        finish_reason: EOS or LENGTH.
        tokens: EOS among them; empty unless asked for.
        alignment: to the sentence's tokens; None unless asked for.
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
        source_text: as it stands in the text.
        hypotheses: best first.
        source_tokens: what the model read, EOS the last; empty unless alignments were asked for.
    """

    source_text: str
    hypotheses: Sequence[SentenceHypothesis]
    source_tokens: Sequence[SourceToken] = ()


@dataclass(frozen=True)
class TextResult:
    """The answer to one text.

    Attributes:
        text: the translation; "" if there is an error.
        finish_reason: LENGTH if any of its sentences reached the limit, else EOS; ERROR if the
            model failed, None if it was not asked because the text is bad.
        num_source_tokens, num_target_tokens: of all its sentences, EOS not counted.
        was_split: whether a sentence was longer than the model takes and had to be cut.
        error: why there is no translation; other texts of the request may have one.
        queue_seconds: from the call until the model began with the text.
        compute_seconds: from there until its last sentence was done. Other texts may have been
            worked on at the same time.
        sentences: those that the model translated, in order; empty unless asked for.
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


@dataclass
class Draft:
    """A text that is being translated, and what is known about it so far.

    Attributes:
        prepared: its pieces.
        parts: those on their way.
        started_at: when the call began, in seconds of the engine's clock.
        generated: what ended.
        sentences: what of it the client asked to see.
    """

    prepared: PreparedText
    parts: Sequence[Part]
    started_at: float
    generated: list[tuple[Generation, GenerationResult]] = field(default_factory=list)
    sentences: list[SentenceResult] = field(default_factory=list)

    def result(self, text: str, error: DragomanError | None = None) -> TextResult:
        """The answer, all generations being over."""
        reasons = {result.finish_reason for _, result in self.generated}
        order = (FinishReason.ERROR, FinishReason.LENGTH)
        begun = [g.submitted_at + result.queue_seconds for g, result in self.generated]
        ended = [
            begin + result.compute_seconds
            for begin, (_, result) in zip(begun, self.generated, strict=True)
        ]
        first = min(begun, default=self.started_at)
        return TextResult(
            text=text,
            finish_reason=next((r for r in order if r in reasons), FinishReason.EOS),
            num_source_tokens=self.prepared.num_source_tokens,
            num_target_tokens=sum(len(result.token_ids) for _, result in self.generated),
            was_split=self.prepared.was_split,
            error=error,
            queue_seconds=first - self.started_at,
            compute_seconds=max(ended, default=first) - first,
            sentences=() if error else self.sentences,
        )


def sentence_result(
    piece: Piece,
    result: GenerationResult,
    tokenizer: Tokenizer,
    options: TranslateOptions,
    scored: Sequence[Hypothesis] = (),
) -> SentenceResult:
    """What a client sees of one sentence's search.

    Args:
        piece: the sentence.
        result: of its search.
        tokenizer: the model's.
        options: what was asked for.
        scored: what scoring the result's hypotheses brought, if alignments were asked for.
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
        piece.text,
        [shown(index, hypothesis) for index, hypothesis in enumerate(result.hypotheses)],
        source_tokens(piece.text, tokenizer) if kind else (),
    )
