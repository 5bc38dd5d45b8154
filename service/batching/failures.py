"""Errors for clients when the model fails."""

from __future__ import annotations

from model.out_of_memory import is_out_of_memory
from service.errors import DragomanError, InternalError, ResourceExhaustedError

STEPPING = "while it worked on this request"
ENCODING = "while it encoded this text"
SCORING = "while it scored this translation"


def loading(graph: str) -> str:
    """When a graph was loaded, "scoring" or "attention"."""
    return f"while its {graph} graph was loaded"


def error_of(exc: Exception, when: str) -> DragomanError:
    """The client's error for `exc`, which itself is for the log.

    Args:
        exc: what the model's runner or scorer raised.
        when: "while it ...", for the client.

    Returns:
        A ResourceExhaustedError for want of memory, since as much work as this may be too much and
        less is not; otherwise an InternalError.
    """
    if is_out_of_memory(exc):
        return ResourceExhaustedError(f"the model ran out of memory {when}")
    return InternalError(f"the model failed {when}")
