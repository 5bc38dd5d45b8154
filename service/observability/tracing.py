"""What calls report to a tracing system: the interface, which needs none.

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
"""Sentences of a call that get spans of their own, so that a trace stays readable."""


@dataclass(frozen=True)
class SequenceTimes:
    """When a sentence was where. Times are `time.monotonic()` seconds.

    Attributes:
        submitted_at: when the engine accepted it.
        started_at: when it joined the batch, or the time of its end if it never did.
        ended_at: when it ended.
        encoded_at: when its source was encoded, which may be before it joined; None if it was not.
        encode_seconds: duration of that encode, which may have been of several sources together.
        num_source_tokens: of its source.
        num_rows: rows of the batch that it took; 0 if it was scored.
        num_steps: decoder steps that they took.
        finish_reason: why it ended.
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
        ids: its `trace_id` and `span_id` in hexadecimal, for log lines and exemplars.
    """

    ids: Mapping[str, str]

    def admitted(self) -> None:
        """An engine has admitted the call; only the first time counts."""
        ...

    def sequences_ended(self, times: Iterable[SequenceTimes], count: int) -> None:
        """So many more sentences of the call have been submitted, and these have ended."""
        ...

    def end(self, code: str, facts: Mapping[str, object]) -> None:
        """The call has ended.

        Args:
            code: name of its gRPC status.
            facts: of its log line. Only those that are known to be no text and no secret are passed
                on.
        """
        ...


class Tracing(Protocol):
    """Begins traces, and exports them beside the event loop."""

    def begin(self, method: str, metadata: Iterable[tuple[str, object]]) -> CallTrace | None:
        """The trace of a call that begins now; None if it is not sampled.

        Args:
            method: its name in the contract.
            metadata: that came with it, which may name the client's own span (W3C Trace Context).
        """
        ...

    def close(self, seconds: float) -> None:
        """Export what is left, within `seconds`, and drop the rest. Blocks."""
        ...


current: contextvars.ContextVar[CallTrace | None] = contextvars.ContextVar("trace", default=None)
"""The trace of the call that the running task answers."""


def create_tracing(version: str, service: str) -> Tracing:
    """Tracing as the standard variables of OpenTelemetry say.

    Args:
        version: of the server.
        service: full name of the gRPC service.

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
