"""The record of one request; all results are computed from these."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

OK = "OK"
UNFINISHED = "UNFINISHED"
"""The run was broken off during the call: neither answer nor error, and no gRPC code."""


@dataclass(frozen=True, slots=True)
class ReplySample:
    """The outcome of a call.

    Attributes:
        code: name of the gRPC code: that of the call, or of a text that failed.
        message: message of the server, if it is an error.
        first: the time of the first piece of text (streams only).
        gaps: seconds between one piece of text and the next (streams only).
        source_tokens, target_tokens: numbers of tokens read and generated, from the server.
        queue_seconds, compute_seconds: durations from the server.
        retry_after: seconds of the server's retry hint; None without one.
    """

    code: str = OK
    message: str = ""
    first: float | None = None
    gaps: tuple[float, ...] = ()
    source_tokens: int = 0
    target_tokens: int = 0
    queue_seconds: float = 0.0
    compute_seconds: float = 0.0
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class RequestSample:
    """One request. Times are seconds from the beginning of the run, warm-up included.

    Attributes:
        number: number of the request, which determines its texts.
        scheduled: time at which it was due; in a closed loop, time of sending.
        sent: time of sending.
        ended: time at which its answer or error arrived.
        reply: outcome of the call; `reply.first` counts from the same beginning.
    """

    number: int
    scheduled: float
    sent: float
    ended: float
    reply: ReplySample

    @property
    def ok(self) -> bool:
        """Whether it was answered without any error."""
        return self.reply.code == OK

    @property
    def failed(self) -> bool:
        """Whether it ended in an error."""
        return self.reply.code not in (OK, UNFINISHED)

    @property
    def latency(self) -> float:
        """Seconds from the time at which it was due to its end."""
        return self.ended - self.scheduled

    @property
    def first_latency(self) -> float | None:
        """Seconds from the time at which it was due to the first piece of text."""
        return None if self.reply.first is None else self.reply.first - self.scheduled


_REPLY_FIELDS = tuple(field.name for field in dataclasses.fields(ReplySample))
COLUMNS = ("number", "scheduled", "sent", "ended", *_REPLY_FIELDS)


def to_row(sample: RequestSample) -> list[Any]:
    """The sample as plain JSON values in the order of `COLUMNS`."""
    reply = [getattr(sample.reply, name) for name in _REPLY_FIELDS]
    return [sample.number, sample.scheduled, sample.sent, sample.ended, *reply]


def rounded(sample: RequestSample) -> RequestSample:
    """The sample rounded to microseconds, as its file has it."""
    return from_row(list(COLUMNS), [_rounded(value) for value in to_row(sample)])


def from_row(columns: list[str], row: list[Any]) -> RequestSample:
    """The sample that `to_row` gave; columns of other versions are left out or take defaults."""
    values = dict(zip(columns, row, strict=True))
    reply = {name: values[name] for name in _REPLY_FIELDS if name in values}
    reply["gaps"] = tuple(reply.get("gaps", ()))
    return RequestSample(
        values["number"], values["scheduled"], values["sent"], values["ended"], ReplySample(**reply)
    )


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, tuple):
        return tuple(round(item, 6) for item in value)
    return value
