"""Logging: one JSON object a line (or text), each with the id of the request that it belongs to.

What users write is never logged, not even at debug level: neither texts nor translations.
"""

from __future__ import annotations

import contextvars
import datetime
import json
import logging
import sys
from typing import Any, TextIO

request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="")

_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    """What a caller gave as `extra`, and the request's id if there is one."""
    fields = {key: value for key, value in vars(record).items() if key not in _STANDARD}
    current = request_id.get()
    if current:
        fields.setdefault("request_id", current)
    return fields


class JsonFormatter(logging.Formatter):
    """One JSON object a record: time (UTC), level, logger, message, the extras, and the stack."""

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
    """One line for people: time, level, message, extras as key=value; then the stack, if any."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        moment = datetime.datetime.fromtimestamp(record.created).astimezone()
        extras = "".join(f" {key}={value}" for key, value in _extras(record).items())
        line = f"{moment:%H:%M:%S} {record.levelname.lower():7} {record.getMessage()}{extras}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure(level: str, log_format: str, stream: TextIO | None = None) -> None:
    """Send all of the process's log records to `stream` (standard error), replacing what was set.

    Args:
        level: debug, info, warning or error.
        log_format: json, text, or auto: text if `stream` is a terminal, else json.
        stream: where to write.
    """
    stream = stream or sys.stderr
    text = log_format == "text" or (log_format == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter() if text else JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
