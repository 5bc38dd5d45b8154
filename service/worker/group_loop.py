"""The step loops of a model's processes, as one loop to the engine.

The loop has the queue (`service.batching.dispatcher`), hands requests to the processes as rows come
free, and merges the events. If one process ends, the others are ended as well, as all lanes of one
process are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from service.batching.config import EngineConfig
from service.batching.dispatcher import Dispatcher
from service.batching.events import Events, Iteration, Listener
from service.batching.hosted_model import SteppedModel
from service.batching.records import EngineRequest, Finished
from service.errors import DragomanError


class _Member:
    """One process: its step loop, and what it last reported."""

    def __init__(
        self, group: GroupLoop, number: int, process: SteppedModel, config: EngineConfig
    ) -> None:
        self._group = group
        self._number = number
        self.steps = process.steps(config, self)
        self.num_waiting = 0
        self.num_running = 0

    def on_events(self, events: Events) -> None:
        if events.iterations:
            last = events.iterations[-1]
            self.num_waiting, self.num_running = last.num_waiting, last.num_running
        self._group.on_events_of(self._number, events)

    def on_end(self, failed: bool) -> None:
        self._group.on_end_of(self._number, failed)


class GroupLoop:
    """The engine's step loop in several processes. Its methods belong to the event loop.

    Args:
        processes: the processes.
        config: limits and special ids.
        listener: receives the events of all processes.
        clock: returns the time in seconds, by which deadlines are measured.
    """

    def __init__(
        self,
        processes: Sequence[SteppedModel],
        config: EngineConfig,
        listener: Listener,
        clock: Callable[[], float],
    ) -> None:
        self._listener = listener
        self._clock = clock
        self._dispatcher = Dispatcher([one.limits for one in processes], config.encode_token_budget)
        self._members = [_Member(self, n, one, config) for n, one in enumerate(processes)]
        self._serving = set(range(len(processes)))
        self._has_ended = False
        # The processes that have had work since the last progress and reported none.
        self._silent: set[int] = set()

    # --- commands --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the step loops."""
        for member in self._members:
            member.steps.start()

    def add(self, requests: Sequence[EngineRequest]) -> None:
        """Queue requests, and hand out those for which there is room."""
        self._dispatcher.add(requests)
        self._dispatch()

    def stream(self, request_id: int) -> None:
        """Report the tokens that the request has, and each new one."""
        self._dispatcher.stream(request_id)
        if (process := self._dispatcher.process_of(request_id)) is not None:
            self._members[process].steps.stream(request_id)

    def cancel(self, request_id: int, error: DragomanError) -> None:
        """Drop the request: at once if it waits, else before the next step of its process."""
        if (process := self._dispatcher.process_of(request_id)) is not None:
            self._members[process].steps.cancel(request_id, error)
            return
        self._report_dropped(self._dispatcher.cancel(request_id, error, self._clock()))
        self._dispatch()  # a wide beam may have been first

    async def prepare_scoring(self, graph: str) -> None:
        """Load a graph, "scoring" or "attention", in all processes.

        Raises:
            UnavailableError: loading failed, and a process has logged why; or it has ended.
            ResourceExhaustedError: memory ran out during loading.
        """
        loading = (member.steps.prepare_scoring(graph) for member in self._members)
        await asyncio.gather(*loading)

    def stop(self) -> None:
        """End each process after the step in flight, even if requests are left."""
        for member in self._members:
            member.steps.stop()

    def join(self) -> None:
        """Wait for the end of the processes after their loops have ended. For any thread."""
        for member in self._members:
            member.steps.join()

    def abandon(self) -> None:
        """Kill all processes because a step hangs in one."""
        self._has_ended = True
        for member in self._members:
            member.steps.abandon()

    def _dispatch(self) -> None:
        if self._has_ended:
            return
        for process, entries in self._dispatcher.dispatch().items():
            steps = self._members[process].steps
            steps.add(
                [EngineRequest(e.id, e.request, e.max_new_tokens, e.submitted_at) for e in entries]
            )
            for entry in entries:
                if entry.streams:
                    steps.stream(entry.id)

    # --- events ----------------------------------------------------------------------------------

    def on_events_of(self, process: int, events: Events) -> None:
        """Take what came free into account, and pass on the events as those of one loop."""
        if self._has_ended:
            return
        for finished in events.finished:
            self._dispatcher.ended(finished)
        for iteration in events.iterations:
            if iteration.num_rows:
                self._dispatcher.stepped()
        expired = self._dispatcher.expired(self._clock())
        self._dispatch()
        self._listener.on_events(
            Events(events.streamed, events.finished, self._merged(process, events))
        )
        self._report_dropped(expired)

    def on_end_of(self, process: int, failed: bool) -> None:
        """End when all processes have ended, or at once if one has failed."""
        if self._has_ended:
            return
        self._serving.discard(process)
        if failed:
            self.abandon()
        if failed or not self._serving:
            self._has_ended = True
            self._listener.on_end(failed)

    def _merged(self, process: int, events: Events) -> list[Iteration]:
        """A process's iterations, with the requests and rows of all processes."""
        others = [member for n, member in enumerate(self._members) if n != process]
        num_beside = sum([other.num_running for other in others])
        num_waiting = self._dispatcher.num_waiting + sum([other.num_waiting for other in others])
        shows_progress = self._shows_progress(process, events)
        return [
            one._replace(
                num_waiting=one.num_waiting + num_waiting,
                num_running=one.num_running + num_beside,
                num_beside=one.num_beside + num_beside,
                is_progress=one.is_progress and shows_progress,
            )
            for one in events.iterations
        ]

    def _shows_progress(self, process: int, events: Events) -> bool:
        """Whether every process with work has made progress: none hangs behind the others."""
        if not events.is_progress:
            return False
        busy = self._dispatcher.busy
        self._silent.discard(process)
        self._silent &= busy
        if self._silent:
            return False
        self._silent = busy
        return True

    def _report_dropped(self, dropped: list[Finished]) -> None:
        if not dropped:
            return
        num_waiting = self._dispatcher.num_waiting + sum([m.num_waiting for m in self._members])
        num_running = sum([member.num_running for member in self._members])
        iteration = Iteration(num_waiting, num_running, is_progress=False)
        self._listener.on_events(Events(finished=dropped, iterations=[iteration]))
