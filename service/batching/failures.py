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
    """The error for clients when the model raised `exc`, which only the log shows.

    Args:
        exc: error raised by the model's runner or scorer.
        when: end of the message for clients, "while it ...".

    Returns:
        A ResourceExhaustedError if memory ran out, since a smaller request may succeed; otherwise
        an InternalError.
    """
    if is_out_of_memory(exc):
        return ResourceExhaustedError(f"the model ran out of memory {when}")
    return InternalError(f"the model failed {when}")


def loading_failed(graph: str, exc: Exception, logger: logging.Logger) -> DragomanError:
    """Log why a graph could not be loaded, and return the error for the calls that need it.

    Call it in the handler of `exc`.

    Args:
        graph: name of the graph, "scoring" or "attention".
        exc: error raised by loading.
        logger: receives one entry, with a traceback only if the cause is a defect.

    Returns:
        A ResourceExhaustedError if memory ran out; otherwise an UnavailableError, since loading is
        tried again later, and another replica may be able to load its graph.
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
