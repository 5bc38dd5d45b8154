"""Errors for clients when the model fails."""

from __future__ import annotations

import logging

from model.bundle.manifest import BundleError
from model.bundle.out_of_memory import is_out_of_memory
from service.errors import (
    DragomanError,
    InternalError,
    ResourceExhaustedError,
    UnavailableError,
)

STEPPING = "while it worked on this request"
ENCODING = "while it encoded this text"
SCORING = "while it scored this translation"


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


def loading_failed(graph: str, exc: Exception, logger: logging.Logger) -> DragomanError:
    """Log why a graph could not be loaded; the error for all calls that need it.

    Args:
        graph: its name, "scoring" or "attention".
        exc: why; called in its handler.
        logger: for one entry, with a traceback only where the cause is a defect.

    Returns:
        A ResourceExhaustedError for want of memory, otherwise an UnavailableError: it is tried
        again later, and another replica may have a graph that can be loaded.
    """
    if isinstance(exc, BundleError | OSError):
        logger.error("the %s graph could not be loaded: %s", graph, exc)
    else:
        logger.exception("the %s graph could not be loaded", graph)
    if is_out_of_memory(exc):
        return ResourceExhaustedError(
            f"the model ran out of memory while its {graph} graph was loaded"
        )
    return UnavailableError(
        f"the model's {graph} graph could not be loaded, which is tried again within a minute"
    )
