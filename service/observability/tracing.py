"""The names that calls and a tracing system share.

`open_telemetry.py` implements it, and is imported only by a server with `--tracing`. Without that,
or for a call that is not sampled, there is no `SpanTrace`, and nothing is measured.
"""

from __future__ import annotations

import contextvars
from dataclasses import dataclass
from typing import TYPE_CHECKING

from service.errors import StartupError

if TYPE_CHECKING:
    from service.observability.open_telemetry import OpenTelemetryTracing, SpanTrace

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


current: contextvars.ContextVar[SpanTrace | None] = contextvars.ContextVar("trace", default=None)
"""The trace of the call that the running task answers."""


def create_tracing(version: str, service: str) -> OpenTelemetryTracing:
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
