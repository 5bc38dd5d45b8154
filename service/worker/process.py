"""Starts a model's process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from service.batching.config import EngineConfig
from service.batching.events import Listener
from service.domain.plan import RunnerLimits
from service.errors import StartupError
from service.worker.child_process import start_child
from service.worker.client import MEMORY_HINT, ProcessLoop, how_it_ended, may_lack_memory
from service.worker.messages import PIECE_BYTES, Frames, NotOpened, Open, Opened, framed
from service.worker.opening import OpenModel

_MOST_LIKELY = "1000"  # the largest oom_score_adj: proc_pid_oom_score_adj(5)


class ModelProcess:
    """A model's process. Starts it and waits until the model is open in it.

    Args:
        name: name of the model, for messages.
        open_model: opens the model in the process: a function of a module, or a
            `functools.partial` of one.
        log_level, log_format: arguments of `service.observability.logs.configure`.
        niceness: niceness with which the process loads its own modules.
        open_seconds: time after which the process is killed if the model is not open; None for no
            limit.

    Attributes:
        limits, widest, num_lanes, cache_bytes, can_score, step_seconds: same as in
            `service.worker.messages.Opened`.
        pid: id of the process.

    Raises:
        StartupError: the model can't be served, or the process has ended; says what to do.
    """

    def __init__(
        self,
        name: str,
        open_model: Callable[[], OpenModel],
        *,
        log_level: str = "info",
        log_format: str = "auto",
        niceness: int = 0,
        open_seconds: float | None = None,
    ) -> None:
        self._name = name
        self._process, self._connection = start_child(
            "service.worker", log_level, log_format, str(niceness)
        )
        self.pid = self._process.pid
        self._connection.settimeout(open_seconds)  # the whole answer comes at the end
        with _killed_first(self.pid):
            opened = self._open(Open(open_model))
        self.limits: RunnerLimits = opened.limits
        self.widest: RunnerLimits = opened.widest
        self.num_lanes = opened.num_lanes
        self.cache_bytes = opened.cache_bytes
        self.can_score = opened.can_score
        self.step_seconds = opened.step_seconds

    @property
    def pids(self) -> list[int]:
        """The process's id, in a list, as a `ProcessGroup` has them."""
        return [self.pid]

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self.exit_status is None

    @property
    def exit_status(self) -> int | None:
        """Exit status, or the negative number of the signal that killed it; None while it runs."""
        return self._process.poll()

    def steps(self, config: EngineConfig, listener: Listener) -> ProcessLoop:
        """The step loop in the process. Both processes measure times with `time.monotonic`."""
        return ProcessLoop(self._name, self._process, self._connection, config, listener)

    def _open(self, message: Open) -> Opened:
        try:
            answer = self._answer(message)
            if isinstance(answer, NotOpened):
                raise StartupError(answer.message)
            if answer is None:
                how = how_it_ended(self._process)
                hint = f"; {MEMORY_HINT}" if may_lack_memory(self._process) else ""
                raise StartupError(
                    f"the process of model {self._name} {how} while it was opened{hint}"
                )
            assert isinstance(answer, Opened)
        except BaseException:
            self.kill()
            raise
        return answer

    def kill(self) -> None:
        """End the process before its step loop has been started."""
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def _answer(self, message: Open) -> object:
        """The process's answer; None if it has ended."""
        frames = Frames()
        try:
            self._connection.sendall(framed(message))
            while piece := self._connection.recv(PIECE_BYTES):
                for answer in frames.feed(piece):
                    return answer
        except ConnectionError:  # it ended before it had read the message
            pass
        except TimeoutError as exc:
            raise StartupError(
                f"the process of model {self._name} had not opened it after "
                f"{self._connection.gettimeout():.0f} s: killed"
            ) from exc
        return None


@contextlib.contextmanager
def _killed_first(pid: int) -> Iterator[None]:
    """Let the kernel kill this process first if memory runs out within the `with` block."""
    file = Path(f"/proc/{pid}/oom_score_adj")
    try:
        before = file.read_text(encoding="ascii")
        file.write_text(_MOST_LIKELY, encoding="ascii")
    except OSError:  # it has ended, or this is not Linux
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            file.write_text(before, encoding="ascii")
