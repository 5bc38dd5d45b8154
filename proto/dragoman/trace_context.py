"""The trace that a call belongs to, for an application that uses OpenTelemetry."""

from __future__ import annotations

import sys

from dragoman.conversions import Metadata


def trace_context() -> Metadata:
    """The current span as metadata (https://www.w3.org/TR/trace-context/); empty without one.

    An application with a current span has imported OpenTelemetry, so nothing is imported here.
    """
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return ()
    span = api.get_current_span().get_span_context()
    if not span.is_valid:
        return ()
    parent = f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
    state = span.trace_state.to_header()
    return (("traceparent", parent), *([("tracestate", state)] if state else []))
