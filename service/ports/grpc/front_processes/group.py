"""The gRPC port of a server in several processes, which share the port.

gRPC itself takes half of the time of a call in the server's process. Here that half runs on other
cores: each front process holds connections, speaks TLS and HTTP/2, and passes calls on. All
decisions (keys, quotas, admission, fairness) and all metrics stay in the server's process, so they
are exact.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from service.engine.interface import EngineProgress
from service.engine.watchdog import StallDetector
from service.errors import StartupError
from service.ports.grpc.binding import reserve
from service.ports.grpc.front_processes.calls import FrontCalls
from service.ports.grpc.front_processes.connection import FrameConnection
from service.ports.grpc.front_processes.frames import Frame, FrameKind
from service.worker.child_process import start_child
from service.worker.client import how_it_ended

if TYPE_CHECKING:
    from service.ports.certificates import ServerTls, TlsMaterial

_MODULE = "service.ports.grpc.front_processes.process"
_OPEN_SECONDS = 60.0  # Python and gRPC are imported, on a busy machine
_RESTART_SECONDS = 1.0  # between two starts of a process that keeps ending
_CERTIFICATE_SECONDS = 1.0  # between two looks at the files, as in `service.ports.certificates`
_END_SECONDS = 1.0  # from the end of its calls to the end of a process
# Time without a sign of life after which a process counts as silent, and then until it is killed.
_SILENT_SECONDS, _HANG_SECONDS = 2.0, 4.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FrontSettings:
    """The settings of front processes.

    Attributes:
        count: number of processes.
        options, max_calls: as of `AcceptingServer`, for each process.
        reflected: full names of the services that reflection describes.
        max_reflections: limit of reflection's open streams, of all processes together.
        write_seconds: time for a client to read so much of a stream that its next message can be
            sent.
        log_level, log_format: arguments of `service.observability.logs.configure`.
    """

    count: int
    options: Sequence[tuple[str, int]]
    max_calls: int
    reflected: Sequence[str]
    max_reflections: int
    write_seconds: float
    log_level: str
    log_format: str


class FrontProcess:
    """One front process, and its connection.

    Attributes:
        ended: event that is set once its connection has ended.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], handlers: Sequence[Any], started_at: float
    ) -> None:
        self.ended = asyncio.Event()
        self.started_at = started_at
        self._process = process
        self._calls = FrontCalls(handlers)
        self._heartbeat = StallDetector(_SILENT_SECONDS, _HANG_SECONDS)
        self._num_pongs = 0
        self._is_killed = False
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def start(
        cls, settings: FrontSettings, handlers: Sequence[Any], opening: Sequence[Frame]
    ) -> FrontProcess:
        """Start a process, and wait until it listens.

        Raises:
            StartupError: it can't listen, or has ended.
        """
        started_at = asyncio.get_running_loop().time()
        try:
            process, ours = await asyncio.to_thread(
                start_child, _MODULE, settings.log_level, settings.log_format
            )
        except OSError as exc:  # no memory, no descriptor, or too many processes
            raise StartupError(f"a front process can't be started: {exc}") from exc
        front = cls(process, handlers, started_at)
        try:
            connection = await FrameConnection.over(ours, front._take, front._end)
            front._calls.connection = connection
            for frame in opening:
                front.send(frame)
            async with asyncio.timeout(_OPEN_SECONDS):
                await front._opened
        except BaseException as exc:
            await front.kill()
            if isinstance(exc, TimeoutError):
                raise StartupError("a front process did not start in time") from exc
            raise
        return front

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def is_silent(self) -> bool:
        """Whether the process runs, and has not answered pings for some time."""
        return self._heartbeat.is_stalled and not self.ended.is_set()

    def check(self, now: float) -> None:
        """Ask the process for a sign of life, or kill it if it has given none for too long.

        Args:
            now: time of the event loop.
        """
        if self.ended.is_set() or self._is_killed:
            return
        was_silent = self.is_silent
        self._heartbeat.check(EngineProgress(self._num_pongs), now)
        if self.is_silent and not was_silent:
            _log.error("a front process does not answer", extra={"pid": self.pid})
        elif was_silent and not self.is_silent:
            _log.warning("a front process answers again", extra={"pid": self.pid})
        if self._heartbeat.is_hung:
            _log.error("a front process hangs: it is killed", extra={"pid": self.pid})
            self._is_killed = True
            self._process.kill()
        else:
            self.send(Frame(FrameKind.PING))

    def send(self, frame: Frame) -> None:
        """Send a frame."""
        self._calls.connection.send(frame)

    async def how_it_ended(self) -> str:
        """The way in which the process has ended, for messages."""
        return await asyncio.to_thread(how_it_ended, self._process)

    async def kill(self) -> None:
        """End the process at once, if it still runs."""
        self._process.kill()
        await asyncio.to_thread(self._process.wait)

    def _take(self, frame: Frame) -> None:
        if frame.kind == FrameKind.READY:
            self._opened.set_result(None)
        elif frame.kind == FrameKind.FAILED:
            self._opened.set_exception(StartupError(frame.fields[0].decode()))
        elif frame.kind == FrameKind.PONG:
            self._num_pongs += 1
        else:
            self._calls.take(frame)

    def _end(self) -> None:
        self.ended.set()
        self._calls.cancel_all()
        if not self._opened.done():
            self._opened.set_exception(StartupError("a front process ended while it started"))


class FrontProcesses:
    """A gRPC server whose connections are in other processes. Methods are added before the start.

    A process that dies takes its connections along, and another one is started in its place. One
    that gives no sign of life (it is stopped, or hangs) is killed.

    Args:
        wrap: wraps the handler of each method, as of `AcceptingServer`.
        tls: the server's certificate; None for plain text.
        on_silence: called with the number of processes that give no sign of life when it changes.
    """

    def __init__(
        self,
        settings: FrontSettings,
        wrap: Callable[[str, str, Any], Any],
        tls: ServerTls | None = None,
        on_silence: Callable[[int], None] = lambda num_silent: None,
    ) -> None:
        self._settings = settings
        self._wrap = wrap
        self._tls = tls
        self._material: TlsMaterial | None = None
        self._methods: list[tuple[str, str, bool]] = []
        self._handlers: list[Any] = []
        self._address = ("", 0)
        self._reserved: socket.socket | None = None
        self._fronts: list[FrontProcess] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._on_silence = on_silence
        self._watching: asyncio.Task[None] | None = None  # also while the processes stop

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Sequence[Any]) -> None:
        """Do nothing: generated code registers the same methods by name too."""

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: Mapping[str, Any]
    ) -> None:
        """Add the methods of a service, which take one request each."""
        for name, handler in method_handlers.items():
            self._methods.append((service_name, name, handler.response_streaming))
            self._handlers.append(self._wrap(service_name, name, handler))

    def bind(self, host: str, port: int) -> int:
        """Reserve a port; 0 is any. Returns the port.

        Raises:
            StartupError: the address can't be used.
        """
        self._reserved, port = reserve(host, port)
        self._address = host, port
        return port

    @property
    def pids(self) -> list[int]:
        """Ids of the processes that run."""
        return [front.pid for front in self._fronts if not front.ended.is_set()]

    async def start(self) -> None:
        """Start the processes, and wait until all listen.

        Raises:
            StartupError: one of them can't listen.
        """
        if self._tls is not None:
            self._material = await self._current_material()
        starting = [self._started() for _ in range(self._settings.count)]
        found = await asyncio.gather(*starting, return_exceptions=True)
        self._fronts = [front for front in found if isinstance(front, FrontProcess)]
        for error in found:
            if isinstance(error, BaseException):
                await self.stop(None)
                raise error
        keeping = [self._keep(place) for place in range(self._settings.count)]
        if self._tls is not None:
            keeping.append(self._watch_certificate())
        self._tasks = [asyncio.create_task(work) for work in keeping]
        self._watching = asyncio.create_task(self._watch())

    async def stop(self, grace: float | None) -> None:
        """Accept no more calls, and wait for those in progress, within `grace` seconds.

        May be called again with a shorter time.
        """
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for front in self._fronts:
            front.send(Frame(FrameKind.STOP, seconds=grace or 0.0))
        ending = [asyncio.ensure_future(front.ended.wait()) for front in self._fronts]
        if ending:
            try:
                await asyncio.wait(ending, timeout=(grace or 0.0) + _END_SECONDS)
            finally:
                for end in ending:
                    end.cancel()
        if self._watching is not None:
            self._watching.cancel()
        fronts, self._fronts = self._fronts, []
        await asyncio.gather(*(front.kill() for front in fronts))
        if self._reserved is not None:
            self._reserved.close()

    async def _started(self) -> FrontProcess:
        settings, (host, port) = self._settings, self._address
        config = {
            "host": host,
            "port": port,
            "options": settings.options,
            "max_calls": settings.max_calls,
            "methods": self._methods,
            "reflected": settings.reflected,
            "max_reflections": max(1, settings.max_reflections // settings.count),
            "write_seconds": settings.write_seconds,
            "asks_clients": self._material is not None and bool(self._material.client_ca),
        }
        opening = [Frame(FrameKind.OPEN, fields=[json.dumps(config).encode()])]
        if self._material is not None:
            opening.insert(0, _certificate(self._material))
        return await FrontProcess.start(settings, self._handlers, opening)

    async def _keep(self, place: int) -> None:
        """Start another process each time that the one in this place has ended."""
        while True:
            front = self._fronts[place]
            await front.ended.wait()
            with contextlib.suppress(RuntimeError):  # no thread to wait in
                about = {"pid": front.pid, "how": await front.how_it_ended()}
                _log.error("a front process ended; its calls are cancelled", extra=about)
                await front.kill()
            wait = front.started_at + _RESTART_SECONDS - asyncio.get_running_loop().time()
            await asyncio.sleep(max(0.0, wait))
            while True:
                material = self._material
                try:
                    started = await self._started()
                    break
                except Exception as exc:  # no thread, no memory: perhaps there is some later
                    _log.error("no front process takes its place yet", extra={"reason": str(exc)})
                    await asyncio.sleep(_RESTART_SECONDS)
            self._fronts[place] = started
            if self._material is not None and self._material is not material:
                started.send(_certificate(self._material))  # it came while the process started

    async def _watch(self) -> None:
        """Check periodically that all processes answer. Never returns."""
        clock, before = asyncio.get_running_loop().time, 0
        interval = StallDetector(_SILENT_SECONDS, _HANG_SECONDS).interval
        while True:
            for front in self._fronts:
                front.check(clock())
            num_silent = sum(front.is_silent for front in self._fronts)
            if num_silent != before:
                self._on_silence(num_silent)
            before = num_silent
            await asyncio.sleep(interval)

    async def _watch_certificate(self) -> None:
        """Pass a new certificate on. Never returns."""
        while True:
            await asyncio.sleep(_CERTIFICATE_SECONDS)
            try:
                material = await self._current_material()
            except RuntimeError as exc:  # no thread to read it in
                _log.error("the certificate could not be looked at", extra={"reason": str(exc)})
                continue
            if material is not self._material:
                self._material = material
                for front in self._fronts:
                    front.send(_certificate(material))

    async def _current_material(self) -> TlsMaterial:
        tls = self._tls
        assert tls is not None, "without TLS"
        return await asyncio.to_thread(lambda: tls.material)


def _certificate(material: TlsMaterial) -> Frame:
    fields = [material.chain, material.key, material.client_ca or b""]
    return Frame(FrameKind.CERTIFICATE, fields=fields)
