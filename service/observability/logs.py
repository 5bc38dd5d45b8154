"""Logging: one JSON object or text per line, with the id of the request.

Neither texts nor translations are logged, at any level.

A thread writes the lines from a bounded queue, so that a full pipe never blocks the code that logs.
If the queue is full, lines are dropped and counted.
"""

from __future__ import annotations

import atexit
import contextvars
import datetime
import io
import json
import logging
import os
import queue
import select
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

from service.observability import tracing

request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="")

MAX_QUEUED_LINES = 1024
_CLOSE_SECONDS = 1.0
# Time for which a line waits for others. Each wake-up of the thread takes Python's global lock from
# busy threads: without this, a small model's throughput was a tenth lower.
_GATHER_SECONDS = 0.02
_WRITE_BYTES = select.PIPE_BUF // 2  # written at once, up to the end of a line

# Beginnings of gRPC's records about clients.
_OF_CLIENTS = ("ExecuteBatchError raised in core by servicer method", "Invalid encoding on ")

_log = logging.getLogger(__name__)

_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    """The `extra` of a record, and the ids of the request and of its trace, if any."""
    fields = {key: value for key, value in vars(record).items() if key not in _STANDARD}
    current = request_id.get()
    if current:
        fields.setdefault("request_id", current)
    if (trace := tracing.current.get()) is not None:
        fields.update(trace.ids)
    return fields


class JsonFormatter(logging.Formatter):
    """One JSON object per record: time (UTC), level, logger, message, extras, stack."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        fields: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extras(record),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return _encode(fields)


class TextFormatter(logging.Formatter):
    """One line of text: time, level, message, extras as key=value; then the stack, if any."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        moment = datetime.datetime.fromtimestamp(record.created).astimezone()
        extras = "".join(f" {key}={value}" for key, value in _extras(record).items())
        line = f"{moment:%H:%M:%S} {record.levelname.lower():7} {record.getMessage()}{extras}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class QueuedHandler(logging.Handler):
    """Formats records in the calling thread, and writes them in its own thread.

    The standard library's `QueueHandler` and `QueueListener` are not suitable: when they stop, they
    wait for a blocked line without a bound.

    Args:
        write: writes all of some bytes, and may block. Lines for which it raises OSError are
            dropped.

    Attributes:
        num_dropped: number of dropped lines.
    """

    def __init__(self, write: Callable[[bytes], None], max_lines: int = MAX_QUEUED_LINES) -> None:
        super().__init__()
        self.num_dropped = 0
        self._write = write
        self._max_lines = max_lines
        self._num_reported = 0
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_lines, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the record as a line, or drop it if the queue is full."""
        try:
            line = self._line(record)
        except Exception:
            self.handleError(record)
            return
        if self._lines.qsize() < self._max_lines:
            self._lines.put(line)
        else:
            self._drop(1)

    def close(self) -> None:
        """Write the queued lines within a second, and drop the rest."""
        self._lines.put(None)
        self._thread.join(_CLOSE_SECONDS)
        super().close()

    def _line(self, record: logging.LogRecord) -> bytes:
        return (self.format(record) + "\n").encode(errors="backslashreplace")

    def _write_lines(self) -> None:
        while lines := self._next_lines():
            if not self._is_written(b"".join(lines)):
                self._drop(len(lines))
                continue
            num_dropped = self.num_dropped - self._num_reported
            if num_dropped and self._is_written(self._line(_dropped_record(num_dropped))):
                self._num_reported += num_dropped

    def _is_written(self, lines: bytes) -> bool:
        try:
            self._write(lines)
        except OSError:  # the pipe's reader has ended, or the disk is full
            return False
        return True

    def _next_lines(self) -> list[bytes]:
        """Wait for lines, and take them; none at the end.

        Several are taken at a time, because after each write the thread waits for Python's global
        lock, which busy threads hold for milliseconds. Usually they are few enough for a pipe to
        take in one piece, so that lines of two processes do not mix.
        """
        lines: list[bytes] = []
        size = 0
        is_idle = self._lines.empty()
        while size < _WRITE_BYTES and not (lines and self._lines.empty()):
            line = self._lines.get()
            if is_idle and line is not None:
                time.sleep(_GATHER_SECONDS)
                is_idle = False
            if line is None:
                self._lines.put(None)
                break
            lines.append(line)
            size += len(line)
        return lines

    def _drop(self, num_lines: int) -> None:
        self.acquire()
        self.num_dropped += num_lines
        self.release()


def _dropped_record(count: int) -> logging.LogRecord:
    fields = {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING"}
    message = "log lines were dropped because they could not be written in time"
    return logging.makeLogRecord({**fields, "msg": message, "num_lines": count})


def log_uncaught() -> None:
    """Log uncaught exceptions instead of printing them, which could block.

    This covers the main thread, other threads, and finalizers.
    """

    def uncaught(kind: Any, error: Any, traceback: Any) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            _log.critical("uncaught exception", exc_info=(kind, error, traceback))

    def in_thread(args: threading.ExceptHookArgs) -> None:
        uncaught(args.exc_type, args.exc_value, args.exc_traceback)

    def unraisable(args: sys.UnraisableHookArgs) -> None:
        uncaught(args.exc_type, args.exc_value, args.exc_traceback)

    sys.excepthook, threading.excepthook, sys.unraisablehook = uncaught, in_thread, unraisable
    logging.captureWarnings(True)


def num_dropped() -> int:
    """The number of log lines dropped in this process since `configure`."""
    return sum(handler.num_dropped for handler in _queued_handlers())


def close() -> None:
    """Write the queued lines within a second, and stop logging; for the end of a process."""
    for handler in _queued_handlers():
        logging.getLogger().removeHandler(handler)
        handler.close()


def _queued_handlers() -> list[QueuedHandler]:
    return [h for h in logging.getLogger().handlers if isinstance(h, QueuedHandler)]


def _is_relevant(record: logging.LogRecord) -> bool:
    """Whether a record of gRPC is not about a client's mistake.

    Such mistakes are an unread stream, or metadata that is not UTF-8, which the record would quote.
    """
    return not record.getMessage().startswith(_OF_CLIENTS)


def configure(level: str, log_format: str, stream: TextIO | None = None) -> None:
    """Send all log records of the process to `stream`, replacing earlier handlers.

    Args:
        level: debug, info, warning or error.
        log_format: json, text, or auto: text if `stream` is a terminal, else json.
        stream: stream for the lines; by default standard error.
    """
    close()
    stream = stream or sys.stderr
    text = log_format == "text" or (log_format == "auto" and stream.isatty())
    handler = QueuedHandler(_writer(stream))
    handler.setFormatter(TextFormatter() if text else JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    _record_less()
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_relevant)  # added only once
    atexit.register(close)


def _record_less() -> None:
    """Record nothing that no format uses: it took a tenth of the time of a line."""
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # documented: no search for the caller


def _writer(stream: TextIO) -> Callable[[bytes], None]:
    """A function that writes to the descriptor of `stream`, if it has one.

    It does not use the stream, which has a lock: when Python ends, it takes the lock of standard
    error, and aborts if a blocked thread holds it.
    """
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:  # in memory
        return lambda line: print(line.decode(), end="", file=stream)

    is_line_open = False  # True after a write that failed within a line

    def write(lines: bytes) -> None:
        nonlocal is_line_open
        if is_line_open:
            lines = b"\n" + lines
        while lines:
            num_written = os.write(descriptor, lines)
            is_line_open = not lines[:num_written].endswith(b"\n")
            lines = lines[num_written:]

    return write
