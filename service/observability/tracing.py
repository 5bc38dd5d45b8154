"""The names that calls and a tracing system share.

`open_telemetry.py` implements it, and is imported only by a server with `--tracing`. Without that,
or for a call that is not sampled, there is no `SpanTrace`, and nothing is measured.
"""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING

from service.errors import StartupError

if TYPE_CHECKING:
    from service.observability.open_telemetry import OpenTelemetryTracing, SpanTrace

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
