"""A model runner without a model: scripted tokens, for tests of everything above the runner.

Its answer to a source is a function of that source alone, so a test can predict it. It checks the
contract of `service.plan` at every step and raises `PlanError` where a plan breaks it.
"""

from __future__ import annotations

import functools
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from service.plan import EncodeItem, RowCopy, RunnerLimits, StepOutput, StepPlan
from service.requests import FinishReason

Script = Callable[[tuple[int, ...]], Sequence[int]]


class PlanError(AssertionError):
    """A plan breaks the contract between scheduler and runner."""


def echo(source_ids: tuple[int, ...]) -> Sequence[int]:
    """The source itself, EOS and all: a translation equal to the (normalised) source text."""
    return source_ids


def babble(source_ids: tuple[int, ...]) -> Sequence[int]:
    """Between 0 and 24 tokens that follow from the source as if by chance, then EOS (id 3)."""
    seed = zlib.crc32(np.array(source_ids, np.int64).tobytes())
    return [*(4 + (seed >> i) % 28 for i in range(seed % 25)), 3]


@dataclass
class _Row:
    """What the cache of one row holds."""

    source_ids: tuple[int, ...] | None = None
    tokens: tuple[int, ...] = ()


class FakeRunner:
    """Answers each source with its script, then EOS for ever.

    Args:
        limits: what it pretends to hold; `top_k` at least 2 and `vocab_size` at least 32.
        script: target tokens for a source.
        bos_id, eos_id: as the engine is told.

    Attributes:
        plans: every plan executed so far.
        closed: whether `close` was called.
    """

    def __init__(
        self,
        limits: RunnerLimits | None = None,
        script: Script = babble,
        *,
        bos_id: int = 2,
        eos_id: int = 3,
    ) -> None:
        self._limits = limits or RunnerLimits(
            max_rows=4, max_source_positions=64, max_target_positions=64, top_k=4, vocab_size=512
        )
        self._script = functools.lru_cache(maxsize=4096)(script)
        self._bos_id = bos_id
        self._eos_id = eos_id
        self._rows = [_Row() for _ in range(self._limits.max_rows)]
        self._failures: list[Exception] = []
        self._gate = threading.Condition()
        self._permits: int | None = None
        self._num_blocked = 0
        self.plans: list[StepPlan] = []
        self.closed = False

    @property
    def limits(self) -> RunnerLimits:
        """What it pretends to hold."""
        return self._limits

    # --- for the test ----------------------------------------------------------------------------

    def predict(
        self, source_ids: Sequence[int], max_new_tokens: int
    ) -> tuple[list[int], FinishReason]:
        """The tokens (without EOS) and the reason that greedy decoding must come to."""
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
        with self._gate:
            self._permits = 0

    def allow(self, count: int = 1) -> None:
        """Let `count` executions pass."""
        with self._gate:
            assert self._permits is not None, "allow() without hold()"
            self._permits += count
            self._gate.notify_all()

    def release(self) -> None:
        """Block no more."""
        with self._gate:
            self._permits = None
            self._gate.notify_all()

    def wait_until_blocked(self, timeout_seconds: float = 10.0) -> None:
        """Wait (in a thread: `await asyncio.to_thread(...)`) until an execution is held.

        Raises:
            TimeoutError: none came.
        """
        with self._gate:
            # One that may pass, but has not woken up yet, is not held.
            held = self._gate.wait_for(
                lambda: self._num_blocked > 0 and not self._permits, timeout_seconds
            )
            if not held:
                raise TimeoutError("no execution reached the gate")

    # --- ModelRunner -----------------------------------------------------------------------------

    def execute(self, plan: StepPlan) -> StepOutput:
        """Check `plan`, carry it out on pretended caches, and answer by the script.

        Raises:
            PlanError: the plan breaks the contract.
        """
        self._pass_gate()
        if self._failures:
            raise self._failures.pop(0)
        started = time.perf_counter()
        self.plans.append(plan)
        self._check(not self.closed, "executed after close")
        self._copy(plan.copies)
        for item in plan.encodes:
            self._encode(item)
        encoded = time.perf_counter()
        top_ids = self._step(plan)
        top_logits = np.tile(-np.arange(self._limits.top_k, dtype=np.float32), (len(top_ids), 1))
        return StepOutput(
            top_ids=top_ids,
            top_logits=top_logits,
            log_sum_exp=np.full(len(top_ids), 0.5, np.float32),
            encode_seconds=encoded - started,
            step_seconds=time.perf_counter() - encoded,
        )

    def close(self) -> None:
        """Remember it."""
        self._check(not self.closed, "closed twice")
        self.closed = True

    def _pass_gate(self) -> None:
        with self._gate:
            if self._permits is None:
                return
            self._num_blocked += 1
            self._gate.notify_all()
            self._gate.wait_for(lambda: self._permits is None or self._permits > 0)
            self._num_blocked -= 1
            if self._permits is not None:
                self._permits -= 1

    def _check(self, condition: bool, message: str) -> None:
        if not condition:
            raise PlanError(message)

    def _check_row(self, row: int) -> None:
        self._check(0 <= row < self._limits.max_rows, f"there is no row {row}")

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
        for row in item.rows:
            self._check_row(row)
            self._rows[row] = _Row(item.source_ids)

    def _step(self, plan: StepPlan) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        num_rows = plan.num_rows
        self._check(num_rows <= self._limits.max_rows, f"{num_rows} rows are too many")
        self._check(len(plan.positions) == num_rows, "positions and token_ids differ in length")
        for item in plan.encodes:
            self._check(max(item.rows) < num_rows, f"row {max(item.rows)} does not step")
        top_ids = np.empty((num_rows, self._limits.top_k), np.int64)
        for row in range(num_rows):
            content = self._rows[row]
            position, token = int(plan.positions[row]), int(plan.token_ids[row])
            if position == 0:  # a new sequence overwrites what its row held
                content.tokens = ()
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
            best = self._next_token(content.source_ids, position)
            others = (best + 1 + np.arange(self._limits.top_k - 1)) % self._limits.vocab_size
            top_ids[row] = [best, *others]
        return top_ids

    def _next_token(self, source_ids: tuple[int, ...], position: int) -> int:
        script = self._script(source_ids)
        return int(script[position]) if position < len(script) else self._eos_id
