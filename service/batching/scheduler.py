"""Who joins the batch, who steps, who leaves: iteration-level scheduling (Yu et al., Orca, 2022).

Pure policy: no tensors of the model, no clock, no threads. The step loop asks `schedule` for a
plan, has it executed, and hands the output to `update`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from service.batching.fair_queue import FairQueue, JobQueue
from service.batching.jobs import Job
from service.decoding.linked_sources import linked_sources
from service.decoding.requests import FinishReason, GenerationResult, Hypothesis, ScoringRequest
from service.decoding.token_choice import Decoding
from service.errors import DeadlineExceededError, DragomanError
from service.runtime.plan import (
    Adjustments,
    EncodeItem,
    RunnerLimits,
    StepOutput,
    StepPlan,
    TargetScore,
)

_NO_ADJUSTMENTS = Adjustments.none()
_NO_HYPOTHESIS = Hypothesis([], [], log_probability=0.0, score=0.0, ended=False)
_NEVER = float("inf")
# While rows run, scores take this part of the encode budget. A row is encoded once and then steps,
# so that encodes come now and then; scores, which need no row, would fill up every iteration. One
# that costs more goes all the same, and then none until later iterations' parts have paid for it.
_SCORING_PART = 4


@dataclass(frozen=True)
class Finished:
    """A job that left, and its result."""

    job: Job
    result: GenerationResult


@dataclass(frozen=True)
class Schedule:
    """What to do next.

    Attributes:
        plan: for the runner; None when no row is in use.
        admitted: jobs that join the batch in this plan.
        dropped: jobs that were cancelled or expired before it.
        scoring: jobs with a target to score, beside the plan; end them with `scored`.
    """

    plan: StepPlan | None
    admitted: list[Job]
    dropped: list[Finished]
    scoring: list[Job] = field(default_factory=list)


@dataclass(frozen=True)
class Update:
    """What a step brought.

    Attributes:
        first_tokens: jobs that got their first token.
        streamed: new tokens of the jobs that stream, EOS never among them.
        finished: jobs that reached EOS or their length.
    """

    first_tokens: list[Job]
    streamed: list[tuple[Job, list[int]]]
    finished: list[Finished]


class Scheduler:
    """Decides every iteration; owned by the step loop, touched by nobody else.

    Args:
        limits: what the runner can hold.
        bos_id, eos_id: ids that begin and end a target.
        encode_token_budget: most source tokens to encode in one iteration, so that newcomers do
            not stall the running rows; a source longer than that is encoded alone.
        waiting: the queue, if it is shared with other schedulers.
    """

    def __init__(
        self,
        limits: RunnerLimits,
        *,
        bos_id: int,
        eos_id: int,
        encode_token_budget: int,
        waiting: JobQueue | None = None,
    ) -> None:
        self._max_rows = limits.max_rows
        self._eos_id = eos_id
        self._encode_token_budget = encode_token_budget
        self._scoring_part = max(1, encode_token_budget // _SCORING_PART)
        self._decoding = Decoding(
            limits.max_rows, limits.max_target_positions, bos_id=bos_id, eos_id=eos_id
        )
        self._states = self._decoding.states
        self._waiting: JobQueue = FairQueue() if waiting is None else waiting
        # Who is in each row of the last plan; None where somebody has left since.
        self._owners: list[Job | None] = []
        self._holes: list[int] = []
        self._newcomers: list[Job] = []
        self._streaming: dict[Job, None] = {}
        self._cancelled: list[Job] = []
        # What scores have cost beyond their part, to be paid by later iterations.
        self._scoring_debt = 0
        # Whether translations left no room for a score that might have gone.
        self._scores_first = False
        # No deadline lies before this time. It may be too early, never too late.
        self._next_deadline = _NEVER

    @property
    def num_waiting(self) -> int:
        """Jobs that wait for a row."""
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to schedule."""
        return self.num_running == 0 and self.num_waiting == 0

    @property
    def num_running(self) -> int:
        """Rows in use."""
        return len(self._owners) - len(self._holes)

    @property
    def max_rows(self) -> int:
        """Rows that it may use."""
        return self._max_rows

    @property
    def must_drop(self) -> bool:
        """Whether a job that was cancelled is to be dropped."""
        return any(not job.has_ended for job in self._cancelled)

    def owns(self, job: Job) -> bool:
        """Whether the job is in one of these rows."""
        return (
            bool(job.rows) and job.rows[0] < len(self._owners) and self._owners[job.rows[0]] is job
        )

    def add(self, jobs: Iterable[Job]) -> None:
        """Let jobs wait for their turn."""
        for job in jobs:
            self._waiting.push(job)
            self.expect(job)

    def expect(self, job: Job) -> None:
        """Look to the deadline of a job in the queue."""
        self._next_deadline = min(self._next_deadline, job.deadline)

    def stream(self, job: Job) -> list[int]:
        """From now on report the job's tokens at every step.

        Returns:
            Its tokens so far.
        """
        job.streams = True
        if not job.rows:
            return []
        self._streaming[job] = None
        return self._states.tokens(job.rows[0])

    def cancel(self, job: Job, error: DragomanError) -> None:
        """Let the job leave before the next step, unless it has ended."""
        if not job.has_ended:
            job.cancelled = error
            self._cancelled.append(job)

    def schedule(self, now: float, may_join: Callable[[Job], bool] | None = None) -> Schedule:
        """Choose who steps next. The plan must be executed and `update`d before the next call.

        It may be followed by the steps that are foreseen, each with an `update` of its own.

        Args:
            now: the time.
            may_join: asked of each job that would join, in the order of its kind; who may not lets
                nobody of it pass.
        """
        dropped = self._drop_cancelled(now) if self._cancelled else []
        if now >= self._next_deadline:
            dropped += self._drop_expired(now)
        admitted = self._admit(now, may_join)
        scoring = [job for job in admitted if not job.num_rows]
        self._newcomers = [job for job in admitted if job.num_rows] if scoring else admitted
        encodes = self._place(self._newcomers)
        self._close_holes()
        if not self._owners:
            return Schedule(None, self._newcomers, dropped, scoring)
        num_rows = len(self._owners)
        # Copies of the arrays, since `update` writes them and a plan is a value.
        plan = StepPlan(
            copies=self._decoding.take_copies(),
            encodes=encodes,
            token_ids=self._states.token_ids[:num_rows].copy(),
            positions=self._states.positions[:num_rows].copy(),
            adjustments=_NO_ADJUSTMENTS,
            top_k=self._decoding.top_k,
        )
        return Schedule(plan, self._newcomers, dropped, scoring)

    def update(self, output: StepOutput, now: float) -> Update:
        """Take in what the last plan's step brought, or one of those after it; in their order."""
        finished_rows = self._decoding.advance(output)
        newcomers, self._newcomers = self._newcomers, []
        for job in newcomers:
            job.first_token_at = now
        streamed = self._new_tokens()
        finished = [self._end(self._owner(row), None, now) for row in finished_rows]
        return Update(newcomers, streamed, finished)

    @property
    def num_foreseen(self) -> int:
        """Steps, with the planned one, in which there is nothing to decide but perhaps in the last.

        In each after the first, the rows go on with the best tokens of the one before it
        (`StepPlan.followed_by`). That is so as long as `goes_on`, and as nobody comes or leaves.
        While scores are not paid for, every iteration counts.
        """
        if self._streaming or self.num_waiting or self._scoring_debt:
            return 1
        if not self._decoding.is_greedy:
            return 1
        return self._decoding.num_left(len(self._owners))

    def goes_on(self, output: StepOutput, now: float) -> bool:
        """Whether nobody ended in a step by its token, or runs out of time."""
        return now < self._next_deadline and not self._decoding.ends(output)

    def scored(
        self, jobs: Iterable[Job], scores: Iterable[TargetScore], now: float
    ) -> list[Finished]:
        """End jobs of `Schedule.scoring` with what scoring them brought.

        Those that were cancelled meanwhile have ended.
        """
        return [
            self._end(job, None, now, hypotheses=[_scored_hypothesis(job, score, self._eos_id)])
            for job, score in zip(jobs, scores, strict=True)
            if not job.has_ended
        ]

    def fail(self, jobs: Iterable[Job], error: DragomanError, now: float) -> list[Finished]:
        """End these jobs with an error, but for those that have ended."""
        return [self._end(job, FinishReason.ERROR, now, error) for job in jobs if not job.has_ended]

    def _new_tokens(self) -> list[tuple[Job, list[int]]]:
        """The last step's token for every job that streams."""
        if not self._streaming:
            return []
        last_tokens = self._states.token_ids.tolist()
        return [
            (job, [token])
            for job in self._streaming
            if (token := last_tokens[job.rows[0]]) != self._eos_id
        ]

    def fail_running(self, error: DragomanError, now: float) -> list[Finished]:
        """End every job of the last plan: its step failed, and the cache cannot be trusted."""
        return self.fail(dict.fromkeys(job for job in self._owners if job is not None), error, now)

    def _drop_cancelled(self, now: float) -> list[Finished]:
        # A job can have been cancelled twice, or have ended since, in the step then under way.
        jobs = [job for job in dict.fromkeys(self._cancelled) if not job.has_ended]
        self._cancelled.clear()
        return [self._end(job, FinishReason.CANCELLED, now, job.cancelled) for job in jobs]

    def _drop_expired(self, now: float) -> list[Finished]:
        jobs = dict.fromkeys([*self._waiting.jobs(), *filter(None, self._owners)])
        expired = [job for job in jobs if job.deadline <= now]
        later = (job.deadline for job in jobs if job.deadline > now)
        self._next_deadline = min(later, default=_NEVER)
        finished = []
        for job in expired:
            where = "while it ran" if job.rows else "while it waited for a slot"
            error = DeadlineExceededError(f"the deadline passed {where}")
            finished.append(self._end(job, FinishReason.DEADLINE, now, error))
        return finished

    def _admit(self, now: float, may_join: Callable[[Job], bool] | None = None) -> list[Job]:
        """Those who join now: in the queue's order of each kind, as far as rows and budget reach.

        Who may not join lets nobody of its kind pass either. Translations come first, since their
        step goes before the scoring. A score that they leave no room for comes first in the next
        iteration.
        """
        admitted: list[Job] = []
        num_free = self._max_rows - self.num_running
        budget = self._encode_token_budget
        is_shared = self.num_running > 0
        scoring_budget = self._scoring_part - self._scoring_debt if is_shared else budget
        for scored in (self._scores_first, not self._scores_first):
            while (job := self._waiting.peek(scored=scored)) is not None:
                num_tokens = job.request.num_encoded_tokens
                room = min(budget, scoring_budget) if scored else budget
                if job.num_rows > num_free or (admitted and num_tokens > room):
                    break
                if scored and scoring_budget <= 0:
                    break
                if may_join is not None and not may_join(job):
                    break
                self._waiting.take(scored=scored)
                job.admitted_at = now
                num_free -= job.num_rows
                budget -= num_tokens
                if scored:
                    scoring_budget -= num_tokens
                admitted.append(job)
        self._scoring_debt = max(0, -scoring_budget) if is_shared else 0
        score = self._waiting.peek(scored=True)
        may_score = score is not None and scoring_budget > 0
        self._scores_first = may_score and all(job.num_rows for job in admitted)
        return admitted

    def _may_score(self) -> bool:
        """Whether a score waits, and earlier ones are paid for."""
        if self._waiting.peek(scored=True) is None:
            return False
        return self.num_running == 0 or self._scoring_debt < self._scoring_part

    def _place(self, newcomers: list[Job]) -> list[EncodeItem]:
        """Give newcomers the holes first, then rows at the end; shortest source first."""
        encodes = []
        self._holes.sort(reverse=True)
        for job in sorted(newcomers, key=lambda job: len(job.request.source_ids)):
            for _ in range(job.num_rows):
                if self._holes:
                    row = self._holes.pop()
                    self._owners[row] = job
                else:
                    row = len(self._owners)
                    self._owners.append(job)
                job.rows.append(row)
            self._decoding.begin(job.rows, job.request.options, job.max_new_tokens)
            if job.streams:
                self._streaming[job] = None
            encodes.append(EncodeItem(tuple(job.rows), job.request.source_ids, job.encoded))
            job.encoded = None  # the plan has it
        return encodes

    def _close_holes(self) -> None:
        """Move the last rows into the holes that are left, so that rows stay dense."""
        holes = self._holes  # descending, as `_place` left them
        while holes:
            if self._owners[-1] is None:
                self._owners.pop()
                del holes[0]  # the largest, and so that very row
                continue
            target = holes.pop()
            source = len(self._owners) - 1
            job = self._owner(source)
            self._owners[target] = job
            self._owners.pop()
            job.rows[job.rows.index(source)] = target
            self._decoding.move(source, target)

    def _owner(self, row: int) -> Job:
        owner = self._owners[row]
        assert owner is not None, f"row {row} steps for nobody"
        return owner

    def _end(
        self,
        job: Job,
        reason: FinishReason | None,
        now: float,
        error: DragomanError | None = None,
        hypotheses: Sequence[Hypothesis] = (),
    ) -> Finished:
        """Free what the job holds and write its result; None is the search's own reason."""
        if job.rows:
            self._waiting.settle(job, int(self._states.positions[job.rows[0]]))
            hypotheses = self._decoding.end(job.rows)
            for row in job.rows:
                self._owners[row] = None
            self._holes += job.rows
            job.rows = []
            self._streaming.pop(job, None)
        else:
            self._waiting.discard(job)
        job.has_ended = True
        job.encoded = None  # where it has given up before it joined
        admitted_at = now if job.admitted_at is None else job.admitted_at
        best = hypotheses[0] if hypotheses else _NO_HYPOTHESIS
        if reason is None:
            reason = FinishReason.EOS if best.ended else FinishReason.LENGTH
        result = GenerationResult(
            token_ids=best.token_ids,
            finish_reason=reason,
            log_probability=best.log_probability,
            hypotheses=list(hypotheses),
            was_admitted=job.admitted_at is not None,
            queue_seconds=admitted_at - job.submitted_at,
            compute_seconds=now - admitted_at,
            first_token_seconds=(
                None if job.first_token_at is None else job.first_token_at - job.submitted_at
            ),
            error=error,
        )
        return Finished(job, result)


def _scored_hypothesis(job: Job, score: TargetScore, eos_id: int) -> Hypothesis:
    assert isinstance(job.request, ScoringRequest), "only a target that was given can be scored"
    *token_ids, last = job.request.target_ids
    ended = last == eos_id
    log_probabilities = score.log_probabilities.tolist()
    total = sum(log_probabilities)  # in order and in double precision, as a search adds them up
    token_ids = token_ids if ended else [*token_ids, last]
    kind = job.request.alignment
    return Hypothesis(
        token_ids=token_ids,
        token_log_probabilities=log_probabilities,
        log_probability=total,
        score=total,
        ended=ended,
        linked=linked_sources(score.attention, len(token_ids)) if kind else None,
        attention=score.attention if kind == "soft" else None,
    )
