"""The process that reads and writes documents, started by `DocumentWorkers`.

    python -m service.documents.worker FILE_DESCRIPTOR READERS MEMORY_BYTES SECONDS

It is a template: it imports the readers once, and forks a worker for each file. A worker has limits
of memory and processor time, serves one connection, and ends. So a file that breaks its reader
breaks nothing else, a file leaves nothing behind for the next one, and all memory is freed.

The template reads no file. It kills a worker when the server closes the worker's connection, and
all workers when the server ends, even if it crashes.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import resource
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from service.documents.document import (
    Document,
    DocumentLimits,
    bad_document,
    set_language,
)
from service.documents.text_batches import batches
from service.documents.tmx import read_tmx
from service.documents.work import (
    COMPLETE,
    LENGTH,
    NOT_FORKED,
    READY,
    STATUS,
    TAKEN,
    Answer,
    DocumentTexts,
    DocumentWork,
    decode_texts,
)
from service.errors import InvalidArgumentError

_PIECE_BYTES = 256 * 1024
# Niceness of workers: translations in progress come first.
_NICE = 5
_MOST_LIKELY = "1000"  # the largest oom_score_adj: proc_pid_oom_score_adj(5)
_PR_SET_PDEATHSIG = 1  # prctl(2)
_MAX_FRAMES = 20  # most stack frames of a defect in the log

ReadDocument = Callable[[str, bytes, DocumentLimits], Document]

_NO_MEMORY = Answer("memory").encode()


def perform(work: DocumentWork, read: ReadDocument) -> Answer:
    """Read or write a document.

    Raises:
        InvalidArgumentError: the file can't be read, or exceeds a limit.
    """
    if work.languages is not None:
        return Answer.of_pairs(read_tmx(work.file, work.limits, work.languages))
    document = read(work.file_name, work.file, work.limits)
    set_language(document, work.target_language)
    segments = document.segments
    if work.translations is None:
        return Answer.of_texts(DocumentTexts.of(segments, work.max_characters))
    different = (segment for batch in batches(segments) for segment in batch)
    found = dict(zip(different, decode_texts(work.translations), strict=True))
    written = document.write([found[segment] for segment in segments])
    if len(written) > work.limits.max_bytes:
        raise bad_document(
            f"the translated file has {len(written):,} bytes, the limit is "
            f"{work.limits.max_bytes:,}"
        )
    return Answer("file", content=written)


def answer(stream: BinaryIO, read: ReadDocument) -> bytes:
    """Perform the work that the server sends; a failure is returned as an answer."""
    try:
        return perform(DocumentWork.read_from(stream), read).encode()
    except InvalidArgumentError as exc:
        return Answer("refused", {"field": exc.field, "why": exc.description}).encode()
    except MemoryError:
        pass  # the memory is freed after this block
    except Exception as exc:
        # Without the error's message, which may contain text of the document.
        frames = [*traceback.walk_tb(exc.__traceback__)][-_MAX_FRAMES:]
        codes = [(frame.f_code, line) for frame, line in frames]
        where = [f"{Path(c.co_filename).name}:{line} {c.co_name}" for c, line in codes]
        return Answer("failed", {"error": type(exc).__name__, "where": where}).encode()
    return _NO_MEMORY


class Template:
    """Forks a worker for each connection that the server sends.

    Args:
        control: the socket on which connections arrive.
        memory_bytes: most memory that a worker may allocate in addition to the template's.
        seconds: most processor time of a worker.
    """

    def __init__(
        self, control: socket.socket, read: ReadDocument, memory_bytes: int, seconds: int
    ) -> None:
        self._control = control
        self._read = read
        self._memory_bytes = memory_bytes
        self._seconds = seconds
        self._workers: dict[int, tuple[int, socket.socket]] = {}  # by descriptor; with the pid
        self._poll = select.poll()
        # A byte arrives whenever a worker has ended.
        self._ended, self._wake = socket.socketpair()

    def serve(self) -> None:
        """Work until the server closes the control socket or dies."""
        for each in (self._ended, self._wake):
            each.setblocking(False)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _do_nothing)
        self._poll.register(self._control, select.POLLIN)
        self._poll.register(self._ended, select.POLLIN)
        self._control.sendall(READY)
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._ended.fileno():
                    self._ended.recv(_PIECE_BYTES)
                elif descriptor == self._control.fileno():
                    if not self._start_worker():
                        return
                else:
                    self._kill(descriptor)
            self._reap()

    def kill_all(self) -> None:
        """Kill all workers when the template ends."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        for descriptor in list(self._workers):
            self._kill(descriptor)

    def _start_worker(self) -> bool:
        """Fork a worker for a new connection; returns False if the server closed the socket."""
        _, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
        if not descriptors:
            return False
        connection, template = socket.socket(fileno=descriptors[0]), os.getpid()
        _send(connection, TAKEN)
        try:
            pid = os.fork()
        except OSError:  # too many processes, or no memory
            _send(connection, STATUS.pack(NOT_FORKED))
            connection.close()
            return True
        if pid == 0:
            self._be_worker(connection, template)
        self._workers[connection.fileno()] = pid, connection
        self._poll.register(connection, 0)  # a hang-up is always reported
        return True

    def _be_worker(self, connection: socket.socket, template: int) -> None:
        status = 1
        try:
            _end_with(template)
            signal.set_wakeup_fd(-1)
            # Otherwise the server would not see the end of other connections.
            for each in (self._control, self._ended, self._wake, *self._other_connections()):
                each.close()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            self._limit()
            _serve_one(connection, self._read)
            status = 0
        finally:
            os._exit(status)

    def _other_connections(self) -> list[socket.socket]:
        return [connection for _, connection in self._workers.values()]

    def _limit(self) -> None:
        """Limit the resources of this process; the limits cannot be raised again."""
        with contextlib.suppress(OSError):  # not on Linux
            Path("/proc/self/oom_score_adj").write_text(_MOST_LIKELY, encoding="ascii")
        _set_limit(resource.RLIMIT_CORE, 0)  # a core dump would contain the document's text
        # The soft limit sends SIGXCPU, which tells the reason; the hard limit sends SIGKILL.
        _set_limit(resource.RLIMIT_CPU, self._seconds, self._seconds + 1)
        _set_limit(resource.RLIMIT_AS, _address_space() + self._memory_bytes)

    def _kill(self, descriptor: int) -> None:
        pid, _ = self._workers[descriptor]
        os.kill(pid, signal.SIGKILL)  # no other process has the id: it was not waited for
        self._unregister(descriptor)

    def _unregister(self, descriptor: int) -> None:
        with contextlib.suppress(KeyError):  # it was unregistered when it was killed
            self._poll.unregister(descriptor)

    def _reap(self) -> None:
        """Reap workers that have ended, and report how."""
        for descriptor, (pid, connection) in list(self._workers.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            del self._workers[descriptor]
            self._unregister(descriptor)
            if status:
                _send(connection, STATUS.pack(status))
            connection.close()


def _end_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent has ended already
            os._exit(1)


def _serve_one(connection: socket.socket, read: ReadDocument) -> None:
    """Perform the single work that arrives on a connection, and answer."""
    with connection.makefile("rb") as stream:
        reply = answer(stream, read)
    for piece in (LENGTH.pack(len(reply)), reply, COMPLETE):
        connection.sendall(piece)


def _send(connection: socket.socket, message: bytes) -> None:
    """Send a short message, unless the server has closed the connection."""
    with contextlib.suppress(OSError):
        connection.send(message, socket.MSG_DONTWAIT)


def _set_limit(kind: int, soft: int, hard: int | None = None) -> None:
    """Set the limits of a resource, at most to the present hard limit."""
    hard = soft if hard is None else hard
    _, present = resource.getrlimit(kind)
    if present != resource.RLIM_INFINITY:
        soft, hard = min(soft, present), min(hard, present)
    resource.setrlimit(kind, (soft, hard))


def _address_space() -> int:
    """Size of this process's address space in bytes; 0 where it can't be read."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    except OSError:
        return 0
    return int(pages) * resource.getpagesize()


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Handle a signal without an action: its arrival wakes the poll."""


def main(descriptor: int, readers: str, memory_bytes: int, seconds: int) -> None:
    """Run the template until the server has ended.

    Args:
        descriptor: file descriptor of the control socket.
        readers: name of the module with `load_readers` and `read_document`.
    """
    # The server decides when to end. A terminal's Ctrl-C reaches all processes.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=descriptor) as control:
        try:
            module = importlib.import_module(readers)
            module.load_readers()
        except Exception as exc:
            control.sendall(f"{type(exc).__name__}: {exc}".encode())
            return
        os.nice(_NICE)
        gc.freeze()  # workers share these pages as long as they don't write to them
        template = Template(control, module.read_document, memory_bytes, seconds)
        try:
            template.serve()
        finally:
            template.kill_all()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
