"""The interface between schedulers and model runners: plans, outputs and protocols.

Schedulers are pure Python and make plans; runners carry them out on tensors. Rows are dense: a step
runs on rows 0 .. num_rows-1. Paused rows follow behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from service.domain.attention import AttentionSelection

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Float32 = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RunnerLimits:
    """Limits of a runner; constant.

    Attributes:
        max_rows: number of rows (hypotheses) that requests can have at once.
        max_source_positions: longest source in tokens, its EOS included.
        max_target_positions: longest target in tokens, without BOS and with EOS.
        top_k: number of candidates of each row if a plan has no number.
        max_paused_rows: number of rows beyond `max_rows` for background requests, which step now
            and then; 0 if the runner cannot pause rows.
    """

    max_rows: int
    max_source_positions: int
    max_target_positions: int
    top_k: int
    vocab_size: int
    max_paused_rows: int = 0

    @property
    def num_rows(self) -> int:
        """Number of rows of the runner."""
        return self.max_rows + self.max_paused_rows


@dataclass(frozen=True)
class RowCopy:
    """Copy the cache of row `source` onto row `target`.

    Only positions `start` to `stop`-1 of the self-attention cache are copied. The cross-attention
    cache is copied as a whole if `cross` is true (the two rows translate different sources).
    """

    source: int
    target: int
    start: int
    stop: int
    cross: bool = True


@dataclass(frozen=True)
class EncodedSource:
    """A source that was encoded ahead of its admission.

    Attributes:
        keys_values: the encoder's outputs [B, H, S, Dh], key and value of each layer in turn.
        index: index of the source among the B sources.
    """

    keys_values: Sequence[npt.NDArray[Any]]
    index: int


@dataclass(frozen=True)
class EncodeItem:
    """A source to encode into the cross-attention cache of some rows.

    Attributes:
        rows: rows to store it in; several for a beam.
        source_ids: token ids of the source.
        encoded: the encoder's output, if the source has been encoded and only has to be stored.
        exact: whether its rows choose from the whole vocabulary, where the model has a shortlist.
        added_ids: tokens to add to the shortlist of its rows.
    """

    rows: tuple[int, ...]
    source_ids: tuple[int, ...]
    encoded: EncodedSource | None = None
    exact: bool = False
    added_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class EncodedBatch:
    """Sources that were encoded together.

    Attributes:
        sources: encoded sources, in the order of the request.
        seconds: duration of the encode.
        num_padding: number of encoder positions without a token.
    """

    sources: Sequence[EncodedSource]
    seconds: float = 0.0
    num_padding: int = 0


@dataclass(frozen=True)
class ScoreItem:
    """A source and a target to score.

    Attributes:
        source_ids, target_ids: token ids, EOS included.
        selection: attention weights to return with the score; None for those of the alignment.
    """

    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    selection: AttentionSelection | None = None


@dataclass(frozen=True)
class TargetScore:
    """The score of a target.

    Attributes:
        log_probabilities: float32 [T], log-probability of each token given the tokens before it.
        attention: float32 [T, S], the decoder's attention to the source for each token; rows sum to
            one. Empty if attention weights were selected.
        weights: selected matrices, in the order of `AttentionSelection.labels`.
    """

    log_probabilities: Float32
    attention: Float32
    weights: Sequence[Float32] = ()


@dataclass(frozen=True)
class Adjustments:
    """Sparse additions to the logits before the top-k: logits[rows[i], token_ids[i]] += values[i].

    Arrays of one length, which may be 0. -inf suppresses a token. Pairs may not repeat.
    """

    rows: Int64
    token_ids: Int64
    values: Float32

    @classmethod
    def none(cls) -> Adjustments:
        """No adjustments."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))


@dataclass(frozen=True)
class StepPlan:
    """One iteration: copies first (all gathered before any is written), then encodes, then a step.

    Attributes:
        copies: cache rows to copy, as if all at once.
        encodes: sources to encode, already limited to the token budget.
        token_ids: [num_rows] last token of each row (BOS for a new one).
        positions: [num_rows] position of that token, 0 for BOS. Equals the number of positions
            already in the row's self-attention cache.
        adjustments: sparse additions to the logits.
        top_k: number of candidates to return for each row, fewer only if the vocabulary is smaller;
            None for the runner's own number. It does not change the order of the candidates.
        num_paused: number of rows behind these that are in use and do not step now.
        chained: [num_rows] whether a row continues with the best token of the previous step, which
            the host need not know: its `token_ids` and `positions` are ignored. A row that ended in
            that step stays ended. Only for an `AsyncRunner`; None if no row is chained.

    With num_rows == 0 there is no step.
    """

    copies: Sequence[RowCopy]
    encodes: Sequence[EncodeItem]
    token_ids: Int64
    positions: Int32
    adjustments: Adjustments = field(default_factory=Adjustments.none)
    top_k: int | None = None
    num_paused: int = 0
    chained: Bools | None = None

    @property
    def num_rows(self) -> int:
        """Number of rows that step."""
        return len(self.token_ids)

    def followed_by(self, output: StepOutput) -> StepPlan:
        """The next plan for the same rows, each continued with the best token of `output`."""
        return StepPlan(
            (), (), output.top_ids[:, 0], self.positions + 1, self.adjustments, self.top_k
        )


@dataclass(frozen=True)
class StepOutput:
    """The candidates of a step, for each row.

    Attributes:
        top_ids: [num_rows, top_k] token ids, best first.
        top_logits: [num_rows, top_k] their raw (adjusted) logits, in descending order.
        log_sum_exp: [num_rows] log-sum-exp over the whole vocabulary, or over the row's shortlist;
            a candidate's log-probability is its logit minus this.
        encode_seconds, step_seconds: time spent in the two graphs.
        num_padding: number of encoder positions without a token.
    """

    top_ids: Int64
    top_logits: Float32
    log_sum_exp: Float32
    encode_seconds: float
    step_seconds: float
    num_padding: int = 0


class ModelRunner(Protocol):
    """Runs the model. Only it touches cache contents. Called from one thread at a time."""

    @property
    def limits(self) -> RunnerLimits:
        """Limits of the runner; constant."""
        ...

    def execute(self, plan: StepPlan) -> StepOutput:
        """Carry out `plan`. An exception fails the requests in it, not the engine.

        Later steps do not change the returned arrays.
        """
        ...

    def follow_up(self) -> StepOutput:
        """Run a step after the last one, in which each row continues with its best token.

        The same as `execute` of `StepPlan.followed_by`, for less.
        """
        ...

    def close(self) -> None:
        """Free sessions and memory."""
        ...


@dataclass(frozen=True)
class LaneRunners:
    """The two runners of one lane, on the same caches.

    Attributes:
        alone: runner with all cores, for steps while no other lane steps.
        beside: runner with the lane's share of the cores, for steps while other lanes step or
            sources are encoded. Called from one thread at a time, not always that of `alone`.
    """

    alone: ModelRunner
    beside: ModelRunner


@runtime_checkable
class LanedRunner(Protocol):
    """A runner with lanes: groups of rows that step at their own times."""

    @property
    def limits(self) -> RunnerLimits:
        """Limits of all lanes together; constant."""
        ...

    @property
    def lanes(self) -> Sequence[LaneRunners]:
        """The lanes, at least one."""
        ...

    def encode(self, sources: Sequence[tuple[int, ...]]) -> EncodedBatch:
        """Encode sources before their requests join.

        May be called in any thread, one call at a time, while lanes step.
        """
        ...

    def close(self) -> None:
        """Free sessions and memory, when nothing steps or encodes."""
        ...


@runtime_checkable
class AsyncRunner(ModelRunner, Protocol):
    """A runner that accepts plans while earlier ones are in flight.

    Plans are carried out in order. One that fails fails alone: later ones are carried out.
    """

    @property
    def depth(self) -> int:
        """Most plans in flight; at least 1."""
        ...

    def submit(self, plan: StepPlan) -> Future[StepOutput]:
        """Carry out `plan` without waiting for it."""
        ...


class Scorer(Protocol):
    """Scores given targets. `score` may be called in any thread, one call at a time."""

    def prepare(self, graph: str = "scoring") -> None:
        """Load a graph for scoring, unless it is loaded. May be called in any thread.

        Args:
            graph: "scoring" or, for items with a selection, "attention", if the model has it.
        """
        ...

    def score(self, items: Sequence[ScoreItem]) -> list[TargetScore]:
        """Score each item. An exception fails only these items."""
        ...
