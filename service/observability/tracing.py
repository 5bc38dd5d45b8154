"""The interface between calls and a tracing system.

`open_telemetry.py` implements it, and is imported only by a server with `--tracing`. Without that,
or for a call that is not sampled, there is no `CallTrace`, and nothing is measured.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from service.errors import StartupError

MAX_SEQUENCES = 32
"""Most sentences of a call with spans of their own, so that a trace stays readable."""


@dataclass(frozen=True)
class SequenceTimes:
    """Timestamps of a sentence as it moves through the pipeline, in `time.monotonic()` seconds.

    Attributes:
        submitted_at: time at which the engine accepted it.
        started_at: time at which it joined the batch, or of its end if it never did.
        ended_at: time of its end.
        encoded_at: time at which its source was encoded, possibly before it joined; None if it was
            not encoded.
        encode_seconds: duration of the encode, possibly of several sources together.
        num_source_tokens: number of tokens of its source.
        num_rows: number of rows that it took; 0 if it was scored.
        num_steps: number of decoder steps that its rows took.
        finish_reason: reason why it ended.
    """

    submitted_at: float
    started_at: float
    ended_at: float
    encoded_at: float | None
    encode_seconds: float
    num_source_tokens: int
    num_rows: int
    num_steps: int
    finish_reason: str


class CallTrace(Protocol):
    """The trace of one sampled call.

    Attributes:
        ids: `trace_id` and `span_id` in hexadecimal, for log lines and exemplars.
    """

    ids: Mapping[str, str]

    def admitted(self) -> None:
        """Record that an engine has admitted the call; only the first call counts."""
        ...

    def sequences_ended(self, times: Iterable[SequenceTimes], count: int) -> None:
        """Record ended sentences with their times, and `count` more submitted sentences."""
        ...

    def end(self, code: str, facts: Mapping[str, object]) -> None:
        """End the trace of the call.

        Args:
            code: name of the gRPC status.
            facts: fields of the log line. Only those known to contain no text and no secret are
                exported.
        """
        ...


class Tracing(Protocol):
    """Begins traces, and exports them in another thread than the event loop's."""

    def begin(self, method: str, metadata: Iterable[tuple[str, object]]) -> CallTrace | None:
        """Begin the trace of a call; None if the call is not sampled.

        Args:
            metadata: metadata of the call, which may name the client's span (W3C Trace Context).
        """
        ...

    def close(self, seconds: float) -> None:
        """Export the remaining spans within `seconds`, and drop the rest. Blocks."""
        ...


current: contextvars.ContextVar[CallTrace | None] = contextvars.ContextVar("trace", default=None)
"""The trace of the call that the running task answers."""


def create_tracing(version: str, service: str) -> Tracing:
    """Set up tracing by the standard environment variables of OpenTelemetry.

    Raises:
        StartupError: OpenTelemetry is not installed, or a variable is wrong.
    """
    try:
        from service.observability.open_telemetry import OpenTelemetryTracing
    except ImportError as exc:
        raise StartupError(
            f"setting tracing: {exc.name} is not installed; OpenTelemetry is in the extra `otel`: "
            "pip install 'dragoman[otel]'"
        ) from exc
    return OpenTelemetryTracing(version, service)
