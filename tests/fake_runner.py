"""A model runner without a model: scripted tokens, for tests of everything above the runner.

Its answer depends only on the source, so that a test can predict it. At every step, it checks the
contract of `service.domain.plan`, and raises `PlanError` if a plan breaks it.
"""

from __future__ import annotations

import functools
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from service.domain.plan import (
    EncodedSource,
    EncodeItem,
    Float32,
    Int64,
    RowCopy,
    RunnerLimits,
    StepOutput,
    StepPlan,
)
from service.domain.requests import FinishReason

Script = Callable[[tuple[int, ...]], Sequence[int]]
Scores = Callable[[tuple[int, ...], tuple[int, ...]], Float32]


class PlanError(AssertionError):
    """A plan breaks the contract between scheduler and runner."""


def echo(source_ids: tuple[int, ...]) -> Sequence[int]:
    """The source itself, EOS included: a translation equal to the (normalised) source text."""
    return source_ids


def babble(source_ids: tuple[int, ...]) -> Sequence[int]:
    """Between 0 and 24 pseudo-random tokens, determined by the source, then EOS (id 3)."""
    seed = zlib.crc32(np.array(source_ids, np.int64).tobytes())
    return [*(4 + (seed >> i) % 28 for i in range(seed % 25)), 3]


def moody(vocab_size: int, eos_id: int = 3) -> Scores:
    """Pseudo-random logits, determined by source and tokens, with many equal ones."""

    @functools.lru_cache(maxsize=100_000)
    def logits(source_ids: tuple[int, ...], token_ids: tuple[int, ...]) -> Float32:
        seed = zlib.crc32(np.array([*source_ids, -1, *token_ids], np.int64).tobytes())
        drawn = np.random.default_rng(seed).integers(-8, 9, vocab_size)
        drawn[eos_id] += 2 * min(len(token_ids), 6)  # so that texts end
        return (drawn / 4).astype(np.float32)

    return logits


def encoded_source(source_ids: tuple[int, ...]) -> EncodedSource:
    """A pretended encoded source, which the runner recognises."""
    return EncodedSource([np.array(source_ids)], 0)


@dataclass
class _Row:
    """The cache of one row."""

    source_ids: tuple[int, ...] | None = None
    tokens: tuple[int, ...] = ()


class FakeRunner:
    """Answers each source with its script, then EOS forever.

    Args:
        limits: limits to report; `top_k` at least 2 and `vocab_size` at least 32.
        script: returns the target tokens for a source.
        scores: returns the logits of all tokens for a source and the tokens generated so far; in
            place of the script.
        bos_id, eos_id: same ids as the engine's.

    Attributes:
        plans: every plan executed so far.
        closed: whether `close` was called.
    """

    def __init__(
        self,
        limits: RunnerLimits | None = None,
        script: Script = babble,
        *,
        scores: Scores | None = None,
        bos_id: int = 2,
        eos_id: int = 3,
    ) -> None:
        self._limits = limits or RunnerLimits(
            max_rows=4, max_source_positions=64, max_target_positions=64, top_k=4, vocab_size=512
        )
        self._script = functools.lru_cache(maxsize=4096)(script)
        self._scores = scores
        self._bos_id = bos_id
        self._eos_id = eos_id
        self._rows = [_Row() for _ in range(self._limits.num_rows)]
        self._failures: list[Exception] = []
        self._may_pass = threading.Condition()
        self._permits: int | None = None
        self._num_blocked = 0
        self._following: StepPlan | None = None
        self.plans: list[StepPlan] = []
        self.closed = False

    @property
    def limits(self) -> RunnerLimits:
        """The limits given to the constructor."""
        return self._limits

    # --- for the test ----------------------------------------------------------------------------

    def predict(
        self, source_ids: Sequence[int], max_new_tokens: int
    ) -> tuple[list[int], FinishReason]:
        """The expected tokens (without EOS) and finish reason of greedy search."""
        tokens: list[int] = []
        for position in range(max_new_tokens):
            token = self._next_token(tuple(source_ids), position)
            if token == self._eos_id:
                return tokens, FinishReason.EOS
            tokens.append(token)
        return tokens, FinishReason.LENGTH

    def fail_next(self, error: Exception) -> None:
        """Let the next execution raise `error`."""
        self._failures.append(error)

    def hold(self) -> None:
        """Block every execution from now on, until `allow` or `release`."""
        with self._may_pass:
            self._permits = 0

    def allow(self, count: int = 1) -> None:
        """Let `count` executions pass."""
        with self._may_pass:
            assert self._permits is not None, "allow() without hold()"
            self._permits += count
            self._may_pass.notify_all()

    def release(self) -> None:
        """Stop blocking."""
        with self._may_pass:
            self._permits = None
            self._may_pass.notify_all()

    def wait_until_blocked(self, timeout_seconds: float = 60.0) -> None:
        """Wait (in a thread: `await asyncio.to_thread(...)`) until an execution is held.

        Raises:
            TimeoutError: no execution arrived.
        """
        with self._may_pass:
            # An execution that may pass but has not woken up does not count as held.
            held = self._may_pass.wait_for(
                lambda: self._num_blocked > 0 and not self._permits, timeout_seconds
            )
            if not held:
                raise TimeoutError("no execution was held")

    # --- ModelRunner -----------------------------------------------------------------------------

    def execute(self, plan: StepPlan) -> StepOutput:
        """Check `plan`, carry it out on pretended caches, and answer by the script.

        Raises:
            PlanError: the plan breaks the contract.
        """
        self._wait_for_permit()
        if self._failures:
            raise self._failures.pop(0)
        started = time.perf_counter()
        self.plans.append(plan)
        self._check(not self.closed, "executed after close")
        self._copy(plan.copies)
        for item in plan.encodes:
            self._encode(item)
        encoded = time.perf_counter()
        self._step(plan)
        top_ids, top_logits, log_sum_exp = self._choose(plan)
        output = StepOutput(
            top_ids=top_ids,
            top_logits=top_logits,
            log_sum_exp=log_sum_exp,
            encode_seconds=encoded - started,
            step_seconds=time.perf_counter() - encoded,
        )
        self._following = plan.followed_by(output)
        return output

    def follow_up(self) -> StepOutput:
        """Execute the plan that follows the last one at once.

        Raises:
            PlanError: nothing was executed.
        """
        if self._following is None:
            raise PlanError("there is no step to follow")
        return self.execute(self._following)

    def close(self) -> None:
        """Record the call."""
        self._check(not self.closed, "closed twice")
        self.closed = True

    def _wait_for_permit(self) -> None:
        with self._may_pass:
            if self._permits is None:
                return
            self._num_blocked += 1
            self._may_pass.notify_all()
            self._may_pass.wait_for(lambda: self._permits is None or self._permits > 0)
            self._num_blocked -= 1
            if self._permits is not None:
                self._permits -= 1

    def _check(self, condition: bool, message: str) -> None:
        if not condition:
            raise PlanError(message)

    def _check_row(self, row: int) -> None:
        self._check(0 <= row < self._limits.num_rows, f"there is no row {row}")

    def _copy(self, copies: Sequence[RowCopy]) -> None:
        gathered = []
        for copy in copies:
            self._check_row(copy.source)
            self._check_row(copy.target)
            source, target = self._rows[copy.source], self._rows[copy.target]
            self._check(source.source_ids is not None, f"row {copy.source} holds no source")
            self._check(
                0 <= copy.start <= copy.stop <= len(source.tokens),
                f"{copy} reads what row {copy.source} ({len(source.tokens)} positions) has not",
            )
            self._check(
                copy.start == 0 or source.tokens[: copy.start] == target.tokens[: copy.start],
                f"{copy} keeps a beginning that is not the source's",
            )
            source_ids = source.source_ids if copy.cross else target.source_ids
            gathered.append(_Row(source_ids, source.tokens[: copy.stop]))
        targets = [copy.target for copy in copies]
        self._check(len(set(targets)) == len(targets), f"a row is written twice: {targets}")
        for target_row, content in zip(targets, gathered, strict=True):
            self._rows[target_row] = content

    def _encode(self, item: EncodeItem) -> None:
        length = len(item.source_ids)
        self._check(
            1 <= length <= self._limits.max_source_positions, f"a source of {length} tokens"
        )
        if (encoded := item.encoded) is not None:
            ids = tuple(encoded.keys_values[0].tolist())
            self._check(ids == item.source_ids, f"{ids} was encoded, not {item.source_ids}")
        for row in item.rows:
            self._check_row(row)
            self._rows[row] = _Row(item.source_ids)

    def _step(self, plan: StepPlan) -> None:
        num_rows = plan.num_rows
        self._check(num_rows <= self._limits.num_rows, f"{num_rows} rows are too many")
        self._check(len(plan.positions) == num_rows, "positions and token_ids differ in length")
        for item in plan.encodes:
            last = max(item.rows)
            self._check(last < num_rows + plan.num_paused, f"row {last} is not in use")
        for row in range(num_rows):
            content = self._rows[row]
            position, token = int(plan.positions[row]), int(plan.token_ids[row])
            if position == 0:
                self._check(token == self._bos_id, f"row {row} begins with {token}, not BOS")
            self._check(
                position == len(content.tokens),
                f"row {row} steps at {position} with {len(content.tokens)} positions cached",
            )
            self._check(
                position < self._limits.max_target_positions, f"row {row} is full at {position}"
            )
            if content.source_ids is None:
                raise PlanError(f"row {row} steps before it was encoded")
            content.tokens += (token,)

    def _choose(self, plan: StepPlan) -> tuple[Int64, Float32, Float32]:
        """The best k tokens of each row, their logits, and the rows' log-sum-exp."""
        k = min(plan.top_k or self._limits.top_k, self._limits.vocab_size)
        top_ids = np.empty((plan.num_rows, k), np.int64)
        top_logits = np.tile(-np.arange(k, dtype=np.float32), (plan.num_rows, 1))
        log_sum_exp = np.full(plan.num_rows, 0.5, np.float32)
        for row, content in enumerate(self._rows[: plan.num_rows]):
            assert content.source_ids is not None
            if self._scores is None:
                best = self._next_token(content.source_ids, len(content.tokens) - 1)
                others = (best + 1 + np.arange(k - 1)) % self._limits.vocab_size
                top_ids[row] = [best, *others]
            else:
                logits = self._scores(content.source_ids, content.tokens[1:])
                top_ids[row] = np.argsort(-logits, kind="stable")[:k]
                top_logits[row] = logits[top_ids[row]]
                log_sum_exp[row] = np.logaddexp.reduce(logits)
        return top_ids, top_logits, log_sum_exp

    def _next_token(self, source_ids: tuple[int, ...], position: int) -> int:
        script = self._script(source_ids)
        return int(script[position]) if position < len(script) else self._eos_id
