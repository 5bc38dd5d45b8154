"""Attention weights of a text and its translation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Unpack

from model.bundle.spans import Span
from model.bundle.tokenizer import Tokenizer
from service.domain.attention import (
    MAX_COMPUTED,
    MAX_TOKENS,
    MAX_WEIGHTS,
    AttentionKind,
    AttentionLabel,
    AttentionSelection,
    AttentionShape,
)
from service.domain.plan import Float32
from service.domain.requests import FinishReason, GenerationResult, Hypothesis
from service.engine.interface import ServableEngine
from service.errors import FailedPreconditionError, InvalidArgumentError
from service.translation.alignments import (
    SourceToken,
    TargetToken,
    generated_tokens,
    given_tokens,
    source_tokens,
)
from service.translation.engine_call import CallArguments, EngineCall, result_of
from service.translation.options import TranslateOptions, TranslatorLimits
from service.translation.pair_scorer import TokenizedPair
from service.translation.preparation import TextPreparer
from service.translation.segmentation import SourceSentence
from service.translation.words import word_indices


@dataclass(frozen=True)
class AttentionOptions:
    """Options of a request for attention weights.

    Attributes:
        kinds: kinds of attention, in the order of the result.
        layers: numbers of the layers of each kind, from 0; empty for all.
        heads: numbers of the heads, from 0; empty for all.
        average_layers: whether to return the mean over the layers.
        average_heads: whether to return the mean over the heads.
        translation: options of the translation, if none is given, and the priority.
    """

    kinds: Sequence[AttentionKind] = (AttentionKind.CROSS,)
    layers: Sequence[int] = ()
    heads: Sequence[int] = ()
    average_layers: bool = False
    average_heads: bool = False
    translation: TranslateOptions = field(default_factory=TranslateOptions)

    def selection(self, shape: AttentionShape) -> AttentionSelection:
        """The attention weights of a model that the options select.

        Raises:
            InvalidArgumentError: the model lacks a kind, layer or head, or one occurs twice; names
                the field and the limit.
            FailedPreconditionError: the model's encoder or decoder has no weights to return.
        """
        _check_distinct("options.kinds", [kind.name for kind in self.kinds])
        for name, numbers in (("layers", self.layers), ("heads", self.heads)):
            _check_distinct(f"options.{name}", numbers)
        if shape.encoder_kind == "lsh" and AttentionKind.ENCODER_SELF in self.kinds:
            raise FailedPreconditionError(
                "options.kinds: this model's encoder attends by hashing in several rounds "
                '(encoder_attention = "lsh"), so that ENCODER_SELF has no matrix of weights'
            )
        if shape.is_recurrent and AttentionKind.DECODER_SELF in self.kinds:
            raise FailedPreconditionError(
                'options.kinds: this model\'s decoder is recurrent (decoder = "ssru") and has no '
                "self-attention, so that DECODER_SELF has no matrix of weights"
            )
        for head in self.heads:
            _check_number("options.heads", "head", head, shape.num_heads)
        kinds = []
        for kind in self.kinds:
            count = shape.num_layers(kind)
            for layer in self.layers:
                _check_number("options.layers", f"layer of {kind.name}", layer, count)
            kinds.append((kind, tuple(self.layers or range(count))))
        heads = tuple(self.heads or range(shape.num_heads))
        return AttentionSelection(tuple(kinds), heads, self.average_layers, self.average_heads)


@dataclass(frozen=True)
class AttentionResult:
    """Attention weights, and the tokens that their rows and columns belong to.

    Attributes:
        translation: the given or generated translation.
        finish_reason: reason why a generated translation ended; None for a given one.
        shape: the model's attentions.
        source_tokens: tokens of the source, with EOS and language tokens.
        tokens: tokens of the translation, with EOS (unless it was cut) and language tokens.
        input_tokens: tokens that the decoder read: BOS, then `tokens` without the last.
        source_words, words: number of the word of each token.
        matrices: matrices [rows, columns] with their labels.
        queue_seconds, compute_seconds: same as in `PairResult`, for translation and weights
            together.
        error: always None, since an error fails the whole call.
    """

    translation: str
    finish_reason: FinishReason | None
    shape: AttentionShape
    source_tokens: Sequence[SourceToken]
    tokens: Sequence[TargetToken]
    input_tokens: Sequence[SourceToken]
    source_words: Sequence[int]
    words: Sequence[int]
    matrices: Sequence[tuple[AttentionLabel, Float32]]
    queue_seconds: float = 0.0
    compute_seconds: float = 0.0
    error: None = None

    @property
    def num_source_tokens(self) -> int:
        """Number of tokens of the source."""
        return len(self.source_tokens)

    @property
    def num_target_tokens(self) -> int:
        """Number of tokens of the translation."""
        return len(self.tokens)


class AttentionExtractor:
    """Computes attention weights with one model.

    Args:
        engine: runs the model.
        tokenizer: the model's tokenizer for this direction.
        preparer: tokenizes texts.
        limits: limits of the texts.
        shape: the model's attentions; None if its bundle has no attention graph.
        tokenized: the tokens of pairs, as `PairScorer.tokenized`.
        call: makes the engine call of a translation.
    """

    def __init__(
        self,
        engine: ServableEngine,
        tokenizer: Tokenizer,
        preparer: TextPreparer,
        limits: TranslatorLimits,
        shape: AttentionShape | None,
        tokenized: Callable[[Sequence[str], Sequence[str]], AsyncIterator[TokenizedPair]],
        call: Callable[[TranslateOptions, CallArguments], EngineCall],
    ) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._preparer = preparer
        self._limits = limits
        self._shape = shape
        self._tokenized = tokenized
        self._call = call

    async def extract(
        self,
        source_text: str,
        translation: str = "",
        options: AttentionOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> AttentionResult:
        """Compute the weights for a text and its translation, each as one sequence.

        Args:
            source_text: text to translate.
            translation: its translation; "" to translate it first.
            options: weights to return, and options of the translation.
            shared: deadline, request id and client.

        Raises:
            InvalidArgumentError: a text is blank or too long, an option is invalid, or there would
                be too many weights; names the field and the limit.
            FailedPreconditionError: the model's bundle has no attention graph.
            DragomanError: the other errors of `PairScorer.score`.
        """
        if self._shape is None:
            raise FailedPreconditionError(
                "this model was exported without an attention graph: export its checkpoint again "
                "(`dragoman export`), or import the model again (`dragoman import`)"
            )
        options = options or AttentionOptions()
        selection = options.selection(self._shape)
        call = self._call(options.translation, shared)
        source_ids, target_ids = await self._encoded(source_text, translation)
        if translation:
            check_weights(selection, self._shape, len(source_ids), len(target_ids))
        else:  # at least as many as for the shortest translation
            check_weights(selection, self._shape, len(source_ids), 1)
        await self._engine.prepare_scoring("attention")
        try:
            generated = None
            if not translation:
                generated = await self._translated(source_text, source_ids, call)
                [best] = generated.hypotheses[:1]
                target_ids = (*best.token_ids, *([self._tokenizer.eos_id] if best.ended else []))
                _check_tokens("translated_text", len(target_ids))
                check_weights(selection, self._shape, len(source_ids), len(target_ids))
            num_weights = selection.num_computed(self._shape, len(source_ids), len(target_ids))
            request = call.score_request(
                source_ids, target_ids, selection=selection, num_weights=num_weights
            )
            scoring = await call.submit_score(request)
            scored = await result_of(scoring)
            if scored.error is not None:
                raise scored.error
        finally:
            call.close()
        [hypothesis] = scored.hypotheses
        waited = scoring.submitted_at - call.started_at + scored.queue_seconds
        before = generated.compute_seconds if generated is not None else 0.0
        return self._result(
            source_text,
            translation,
            generated,
            hypothesis,
            selection,
            (waited - before, before + scored.compute_seconds),
        )

    async def _encoded(
        self, source_text: str, translation: str
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The tokens of both sides, EOS included."""
        names, texts = ("source_text", "translated_text"), (source_text, translation)
        if not source_text.strip():
            raise InvalidArgumentError("source_text", "is blank: the text is empty")
        await self._preparer.check_lengths(self._limits, "source_text", names, texts)
        [pair] = [pair async for pair in self._tokenized(names, texts)]
        if isinstance(pair, InvalidArgumentError):
            raise pair
        for name, ids in zip(names, pair, strict=True):
            _check_tokens(name, len(ids))
        return pair

    async def _translated(
        self, text: str, source_ids: tuple[int, ...], call: EngineCall
    ) -> GenerationResult:
        submitted = await call.submit(SourceSentence("", text, source_ids), opens=True)
        assert submitted.generation is not None
        result = await result_of(submitted.generation)
        if result.error is not None:
            raise result.error
        return result

    def _result(
        self,
        source_text: str,
        translation: str,
        generated: GenerationResult | None,
        scored: Hypothesis,
        selection: AttentionSelection,
        seconds: tuple[float, float],
    ) -> AttentionResult:
        assert self._shape is not None
        target = self._tokenizer.target
        num_hidden_source, num_hidden = self._tokenizer.num_hidden
        start_ids = scored.token_ids[:num_hidden]
        shown = scored.without(num_hidden)
        if generated is None:
            tokens = given_tokens(translation, shown, target)
        else:
            translation = target.decode(shown.token_ids)
            tokens = generated_tokens(shown, target)
        source = source_tokens(source_text, self._tokenizer)
        prefix = [
            SourceToken(self._tokenizer.id_to_piece(i), Span(0, 0))
            for i in self._tokenizer.prefix_ids
        ]
        start = [TargetToken(target.id_to_piece(i), 0.0, Span(0, 0)) for i in start_ids]
        first = SourceToken(target.id_to_piece(self._shape.bos_id), Span(0, 0))
        read = [SourceToken(token.piece, token.span) for token in [*start, *tokens][:-1]]
        ends = scored.ended
        return AttentionResult(
            translation,
            generated.finish_reason if generated is not None else None,
            self._shape,
            [*prefix, *source],
            [*start, *tokens],
            [first, *read],
            _words(source_text, num_hidden_source, [t.span for t in source], ends=True),
            _words(translation, num_hidden, [t.span for t in tokens], ends=ends),
            list(zip(selection.labels(), scored.weights, strict=True)),
            *seconds,
        )


def _words(text: str, num_hidden: int, spans: Sequence[Span], *, ends: bool) -> list[int]:
    """The word of each token; language tokens and end-of-sentence are words of their own."""
    own = word_indices(text, spans[:-1] if ends else spans)
    words = [*range(num_hidden), *(num_hidden + word for word in own)]
    return [*words, words[-1] + 1 if words else 0] if ends else words


def _check_tokens(field_name: str, count: int) -> None:
    if count > MAX_TOKENS:
        raise InvalidArgumentError(
            field_name,
            f"{count:,} tokens, end-of-sentence included; attention weights are given of at most "
            f"{MAX_TOKENS:,}",
        )


def check_weights(
    selection: AttentionSelection, shape: AttentionShape, num_source: int, num_target: int
) -> None:
    """Check the number of weights that a call would return and compute.

    Raises:
        InvalidArgumentError: there are too many; names the limit.
    """
    of = f"of {num_source:,} source tokens and {num_target:,} target tokens"
    count = selection.num_weights(shape, num_source, num_target)
    if count > MAX_WEIGHTS:
        raise InvalidArgumentError(
            "options",
            f"{count:,} weights {of}; the limit is {MAX_WEIGHTS:,}: ask for fewer kinds, layers or "
            "heads, or for averages",
        )
    count = selection.num_computed(shape, num_source, num_target)
    if count > MAX_COMPUTED:
        raise InvalidArgumentError(
            "options",
            f"{count:,} weights {of} would be computed, before averages; the limit is "
            f"{MAX_COMPUTED:,}: ask for fewer kinds, layers or heads, or for a shorter text",
        )


def _check_distinct(field_name: str, values: Sequence[object]) -> None:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise InvalidArgumentError(field_name, f"{value} is there twice")


def _check_number(field_name: str, what: str, number: int, count: int) -> None:
    if not 0 <= number < count:
        raise InvalidArgumentError(
            field_name, f"there is no {what} {number}: they are 0 to {count - 1}"
        )
