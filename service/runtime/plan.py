"""What the scheduler asks of the model runner for one iteration, and what comes back.

These dataclasses are the whole interface between policy (`scheduler.py`, pure Python) and
execution (`runner.py`, tensors). Rows are dense: a step runs on rows 0 .. num_rows-1.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from service.runtime.batch_sizes import BatchSizeBuckets

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Float32 = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RunnerLimits:
    """What a runner can hold; fixed from its start.

    Attributes:
        max_rows: rows (hypotheses) that can step at once; the number of slots.
        max_source_positions: longest source in tokens, its EOS included.
        max_target_positions: longest target in tokens, BOS not counted and EOS included.
        top_k: candidates that a step returns for each row if its plan doesn't say how many.
        vocab_size: entries in the vocabulary.
    """

    max_rows: int
    max_source_positions: int
    max_target_positions: int
    top_k: int
    vocab_size: int


@dataclass(frozen=True)
class RowCopy:
    """Copy the cache of row `source` onto row `target`.

    Of the self-attention cache only positions `start` .. `stop`-1 are copied; the cross-attention
    cache is copied whole when `cross` is true (the two rows translate different sources).
    """

    source: int
    target: int
    start: int
    stop: int
    cross: bool = True


@dataclass(frozen=True)
class EncodedSource:
    """A source that has been encoded for rows to come.

    Attributes:
        keys_values: the encoder's outputs [B, H, S, Dh], key and value of each layer in turn.
        index: which of the B.
    """

    keys_values: Sequence[npt.NDArray[Any]]
    index: int


@dataclass(frozen=True)
class EncodeItem:
    """A source to encode into the cross-attention cache of the rows `rows` (one unless beams).

    Attributes:
        rows: where.
        source_ids: the source.
        encoded: what came of it, if it has been encoded already and need only be stored.
    """

    rows: tuple[int, ...]
    source_ids: tuple[int, ...]
    encoded: EncodedSource | None = None


@dataclass(frozen=True)
class EncodedBatch:
    """Sources that were encoded together.

    Attributes:
        sources: each, in the order in which they were given.
        seconds: that it took.
        num_padding: positions of the encoder that held no token.
    """

    sources: Sequence[EncodedSource]
    seconds: float = 0.0
    num_padding: int = 0


@dataclass(frozen=True)
class ScoreItem:
    """A target to score: the tokens of both sides, EOS included."""

    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]


@dataclass(frozen=True)
class TargetScore:
    """How probable a target is.

    Attributes:
        log_probabilities: float32 [T], of each token after those before it.
        attention: float32 [T, S], where the decoder looked for each; rows sum to one.
    """

    log_probabilities: Float32
    attention: Float32


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
        """No adjustment at all."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))


@dataclass(frozen=True)
class StepPlan:
    """One iteration: copies first (all gathered before any is written), then encodes, then a step.

    Attributes:
        copies: cache rows to copy, as if all at once.
        encodes: sources to encode, already limited to the token budget.
        token_ids: [num_rows] the last token of each row (BOS for a new one).
        positions: [num_rows] the position of that token, 0 for BOS. Equals the number of
            positions already in the row's self-attention cache.
        adjustments: sparse additions to the logits.
        top_k: candidates to return for each row, fewer only if the vocabulary is smaller; None for
            the runner's own choice. Whatever it is, the first of them are the same.
        chained: [num_rows] rows that go on with the best token of the step before this one, which
            the host need not have seen: their `token_ids` and `positions` don't count. A row that
            ended in that step goes nowhere. Only for a `AsyncRunner`; None where there is no
            such row.

    With num_rows == 0 there is no step.
    """

    copies: Sequence[RowCopy]
    encodes: Sequence[EncodeItem]
    token_ids: Int64
    positions: Int32
    adjustments: Adjustments = field(default_factory=Adjustments.none)
    top_k: int | None = None
    chained: Bools | None = None

    @property
    def num_rows(self) -> int:
        """Rows that step."""
        return len(self.token_ids)

    def followed_by(self, output: StepOutput) -> StepPlan:
        """The next plan for the same rows, where each goes on with the best token of `output`."""
        return StepPlan(
            (), (), output.top_ids[:, 0], self.positions + 1, self.adjustments, self.top_k
        )


@dataclass(frozen=True)
class StepOutput:
    """What a step chose from, for each row.

    Attributes:
        top_ids: [num_rows, top_k] token ids, best first.
        top_logits: [num_rows, top_k] their raw (adjusted) logits, in descending order.
        log_sum_exp: [num_rows] over the whole vocabulary; log-probability = logit - log_sum_exp.
        encode_seconds, step_seconds: time spent in the two graphs.
        num_padding: positions of the encoder that held no token.
    """

    top_ids: Int64
    top_logits: Float32
    log_sum_exp: Float32
    encode_seconds: float
    step_seconds: float
    num_padding: int = 0


class ModelRunner(Protocol):
    """Runs the model. The only one who touches cache contents; called from one thread at a time."""

    @property
    def limits(self) -> RunnerLimits:
        """What it can hold; the same for its whole life."""
        ...

    def execute(self, plan: StepPlan) -> StepOutput:
        """Carry out `plan`. An exception fails the requests in it, not the engine.

        What it returns stays as it is when later plans are carried out.
        """
        ...

    def close(self) -> None:
        """Free sessions and memory."""
        ...


@dataclass(frozen=True)
class LaneRunners:
    """Two ways to carry out the plans of one lane, on the same caches.

    Attributes:
        alone: with the whole processor, while no other lane steps.
        beside: with this lane's share of it. Called from one thread at a time, but perhaps from
            another one than `alone`, and while other lanes step or sources are encoded.
    """

    alone: ModelRunner
    beside: ModelRunner


@runtime_checkable
class LanedRunner(Protocol):
    """A runner whose rows are in lanes, each of which steps at its own time."""

    @property
    def limits(self) -> RunnerLimits:
        """What all lanes hold together; the same for its whole life."""
        ...

    @property
    def lanes(self) -> Sequence[LaneRunners]:
        """The lanes, at least one."""
        ...

    def encode(self, sources: Sequence[tuple[int, ...]]) -> EncodedBatch:
        """Encode for rows to come. From any thread, once at a time, while lanes step."""
        ...

    def close(self) -> None:
        """Free sessions and memory, once nothing steps or encodes."""
        ...


@runtime_checkable
class AsyncRunner(ModelRunner, Protocol):
    """A runner that takes a plan while it still works on the one before.

    Plans are carried out in the order in which they are submitted. One that fails fails alone: what
    comes after it is carried out nevertheless.
    """

    @property
    def depth(self) -> int:
        """Plans that may have been submitted and not been answered; at least 1."""
        ...

    def submit(self, plan: StepPlan) -> Future[StepOutput]:
        """What `execute` does, without waiting for it."""
        ...


class DeviceFigures(Protocol):
    """What metrics show of a runner on a GPU."""

    @property
    def buckets(self) -> BatchSizeBuckets:
        """The batch sizes at which it steps."""
        ...

    @property
    def num_captures(self) -> int:
        """CUDA graphs that were captured."""
        ...

    @property
    def cache_bytes(self) -> int:
        """Memory of the caches."""
        ...

    @property
    def arena_bytes(self) -> int:
        """Other memory that was taken since the start; 0 where it can't be read."""
        ...


class Scorer(Protocol):
    """Scores given targets. `score` is called once at a time, from any thread."""

    def prepare(self) -> None:
        """Load what scoring needs, unless it is loaded. From any thread, and before `score`."""
        ...

    def score(self, items: Sequence[ScoreItem]) -> list[TargetScore]:
        """Score each item. An exception fails these, and nothing else."""
        ...
