"""A model and its step loop, wherever its steps run: the seam between the engine and processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from service.batching.config import EngineConfig
from service.batching.events import Listener
from service.batching.records import EngineRequest
from service.batching.step_loop import StepLoop
from service.batching.step_loops import step_loop, widest_sequence
from service.domain.plan import LanedRunner, ModelRunner, RunnerLimits, Scorer
from service.errors import DragomanError


class Steps(Protocol):
    """A step loop: `service.batching.step_loop.StepLoop` documents the methods."""

    def start(self) -> None: ...  # noqa: D102
    def add(self, requests: Sequence[EngineRequest]) -> None: ...  # noqa: D102
    def stream(self, request_id: int) -> None: ...  # noqa: D102
    def cancel(self, request_id: int, error: DragomanError) -> None: ...  # noqa: D102
    async def prepare_scoring(self, graph: str) -> None: ...  # noqa: D102
    def stop(self) -> None: ...  # noqa: D102
    def join(self) -> None: ...  # noqa: D102
    def abandon(self) -> None: ...  # noqa: D102


class SteppedModel(Protocol):
    """An open model that makes its own step loop."""

    @property
    def limits(self) -> RunnerLimits:
        """Limits of its runner."""
        ...

    def steps(self, config: EngineConfig, listener: Listener) -> Steps:
        """Make the step loop, which owns the model from then on."""
        ...


class HostedModel(SteppedModel, Protocol):
    """An open model for an engine: in this process, in another one, or in several."""

    @property
    def widest(self) -> RunnerLimits:
        """Limits of a single sequence: a beam may have to fit into one lane."""
        ...

    @property
    def can_score(self) -> bool:
        """Whether the model can score."""
        ...


class InProcessModel:
    """A model whose steps run on a thread of this process.

    Args:
        runner: runs the model. The step loop owns it.
        scorer: scores given targets; None if the model can't score.
        clock: returns the time in seconds, by which deadlines are measured. It is called from the
            thread, too.
    """

    def __init__(
        self,
        runner: ModelRunner | LanedRunner,
        scorer: Scorer | None,
        clock: Callable[[], float],
    ) -> None:
        self.limits: RunnerLimits = runner.limits
        self.widest: RunnerLimits = widest_sequence(runner)
        self.can_score = scorer is not None
        self._runner = runner
        self._scorer = scorer
        self._clock = clock

    def steps(self, config: EngineConfig, listener: Listener) -> StepLoop:
        """Make the step loop."""
        return step_loop(self._runner, config, self._clock, listener, self._scorer)
