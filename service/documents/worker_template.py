"""The server's end of the template process, which forks document workers (`worker.py`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass

from model.bundle.processor import num_usable_cores
from service.documents.work import COMPLETE, LENGTH, READY, STATUS, TAKEN
from service.settings import Settings

_MIB = 2**20
# Default numbers of workers. With two, one client can't hold all. Each may use its whole limit of
# memory.
_MIN_WORKERS, _MAX_WORKERS = 2, 8
_PIECE_BYTES = 256 * 1024
_START_SECONDS = 60.0
_END_SECONDS = 1.0


@dataclass(frozen=True)
class WorkerLimits:
    """The resources of document workers.

    Attributes:
        num_workers: number of documents that are read or written at the same time.
        memory_mib: memory of a worker in MiB, in addition to the few MiB of an idle one.
        seconds: processor time of a worker.
        elapsed_factor: elapsed time allowed for each second of processor time. On a busy machine, a
            worker has a small share of a core, since translations come first.
        reaction_seconds: elapsed time within which the template begins a document; it needs some
            milliseconds, unless it is stopped.
    """

    num_workers: int = 2
    memory_mib: int = 512
    seconds: int = 20
    elapsed_factor: int = 10
    reaction_seconds: float = 10.0

    @classmethod
    def of(cls, settings: Settings) -> WorkerLimits:
        """The limits of the settings, by default with a worker for each core."""
        cores = settings.threads or num_usable_cores()
        num_workers = settings.document_workers or min(max(cores, _MIN_WORKERS), _MAX_WORKERS)
        return cls(num_workers, settings.document_memory, settings.document_seconds)


class TemplateError(Exception):
    """The template process can't be started, or has ended; the message says more."""


@dataclass(frozen=True)
class WorkerEnd:
    """The end of a worker that has not answered.

    Attributes:
        status: status of `os.waitpid`, or `NOT_FORKED`.
    """

    status: int

    @property
    def signal_number(self) -> int:
        """The number of the signal that killed it; 0 if none did."""
        return os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else 0

    @property
    def how(self) -> str:
        """A description of the end, for the log."""
        if not self.signal_number:
            return f"ended with status {os.waitstatus_to_exitcode(self.status)}"
        try:
            return f"was killed by {signal.Signals(self.signal_number).name}"
        except ValueError:  # a signal without a name
            return f"was killed by signal {self.signal_number}"


class WorkerTemplate:
    """A running template process."""

    def __init__(
        self, process: subprocess.Popen[bytes], control: socket.socket, limits: WorkerLimits
    ) -> None:
        self._process = process
        self._control = control
        self._reaction_seconds = limits.reaction_seconds
        self._is_killed = False

    @classmethod
    async def start(cls, limits: WorkerLimits, readers: str) -> WorkerTemplate:
        """Start the process, and wait until it has imported the readers. Not to be cancelled.

        Args:
            readers: name of the module that reads files.

        Raises:
            TemplateError: the process can't be started.
        """
        control, theirs = socket.socketpair()
        arguments = [theirs.fileno(), readers, limits.memory_mib * _MIB, limits.seconds]
        try:
            with theirs:
                process = await asyncio.to_thread(_start_process, arguments, theirs.fileno())
        except OSError as exc:
            control.close()
            raise TemplateError(str(exc)) from exc
        control.setblocking(False)
        template = cls(process, control, limits)
        try:
            async with asyncio.timeout(_START_SECONDS):
                said = await asyncio.get_running_loop().sock_recv(control, _PIECE_BYTES)
        except (OSError, TimeoutError) as exc:
            await template.stop()
            raise TemplateError(f"it said nothing within {_START_SECONDS:.0f} s") from exc
        if said != READY:
            await template.stop()
            raise TemplateError(said.decode(errors="replace") or "it ended at once")
        return template

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, or does not react and was killed."""
        return self._is_killed or self._process.poll() is not None

    async def exchange(self, work: bytes, max_bytes: int) -> bytes | WorkerEnd:
        """Let a new worker perform some work; if cancelled, the worker is killed.

        Args:
            work: an encoded `DocumentWork`.

        Raises:
            TemplateError: the template has ended, or does not react and was killed.
            ValueError: the answer has more than `max_bytes`.
        """
        ours, theirs = socket.socketpair()
        with ours:  # the template kills the worker when this is closed
            try:
                with theirs:
                    socket.send_fds(self._control, [b"+"], [theirs.fileno()])
            except OSError as exc:
                raise TemplateError("it has ended") from exc
            ours.setblocking(False)
            await self._taken(ours)
            with contextlib.suppress(ConnectionError):  # the worker has ended; it may say why
                await asyncio.get_running_loop().sock_sendall(ours, work)
            return _answer_in(await _received(ours, max_bytes))

    async def _taken(self, connection: socket.socket) -> None:
        try:
            async with asyncio.timeout(self._reaction_seconds):
                said = await asyncio.get_running_loop().sock_recv(connection, len(TAKEN))
        except TimeoutError as exc:
            self._is_killed = True
            self._process.kill()
            raise TemplateError(f"it did not react for {self._reaction_seconds} s") from exc
        except ConnectionError as exc:
            raise TemplateError("it has ended") from exc
        if said != TAKEN:
            raise TemplateError("it has ended")

    async def stop(self) -> None:
        """End the process, and its workers."""
        self._control.close()  # the process then ends by itself
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, _END_SECONDS)
        self._process.kill()


def _start_process(arguments: list[object], descriptor: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        # With this process's module path.
        [sys.executable, "-P", "-m", "service.documents.worker", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)},
        stdin=subprocess.DEVNULL,
        pass_fds=[descriptor],
        process_group=0,  # a terminal's Ctrl-C is for the server
    )


async def _received(connection: socket.socket, max_bytes: int) -> bytes:
    """Receive all data from a connection.

    Raises:
        ValueError: the data is longer than an answer of `max_bytes`.
    """
    loop = asyncio.get_running_loop()
    limit = LENGTH.size + max_bytes + len(COMPLETE)
    pieces, size = [], 0
    with contextlib.suppress(ConnectionError):  # reset by a worker that has not read all data
        while piece := await loop.sock_recv(connection, _PIECE_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise ValueError(f"more than {max_bytes:,} bytes")
    return b"".join(pieces)


def _answer_in(received: bytes) -> bytes | WorkerEnd:
    """The answer in the received data, or the end of the worker.

    Raises:
        TemplateError: the data contains neither, so the template has ended too.
    """
    end = len(received) - len(COMPLETE)
    if end >= LENGTH.size and received.endswith(COMPLETE):
        (length,) = LENGTH.unpack_from(received)
        if LENGTH.size + length == end:
            return received[LENGTH.size : end]
    if len(received) < STATUS.size or received[-1:] != b"\0":
        raise TemplateError("it ended while a worker worked")
    (status,) = STATUS.unpack_from(received, len(received) - STATUS.size)
    return WorkerEnd(status)
