"""File descriptors: standard streams, the limit of the process, a warning near it."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import sys

# Descriptors kept for files, scrapes and model processes; half of the limit if that is very low.
_RESERVE = 64
_CHECK_SECONDS = 1.0
_CHECKS_PER_LINE = 60

_log = logging.getLogger(__name__)


def open_standard_streams() -> None:
    """Open /dev/null in place of closed standard streams.

    Otherwise a socket would get such a descriptor, and receive messages for standard error.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The new descriptor gets the lowest free number. Child processes need it too.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stderr is None:  # Python sets it to None if standard error is closed
        sys.stderr = os.fdopen(2, "w", closefd=False)


def raise_limit(num_calls: int) -> None:
    """Raise the limit of open files to the hard limit; warn if that is low.

    Args:
        num_calls: most calls in progress; each may use a connection of its own.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if max_connections() < num_calls:
        _log.warning(
            "few connections can be open at a time: raise the limit of open files (ulimit -n)",
            extra={"open_files": hard, "connections": max_connections(), "calls": num_calls},
        )


def max_connections() -> int:
    """The number of connections for which descriptors suffice."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        limit = 2**31 - 1
    return limit - min(_RESERVE, limit // 2)


async def watch() -> None:
    """Log once a minute while descriptors are nearly exhausted. Never returns."""
    checks_until_line = 0
    while True:
        checks_until_line = max(0, checks_until_line - 1)
        if not checks_until_line and (num_open := _num_open()) >= max_connections():
            _log.error(
                "file descriptors run out: further connections are refused",
                extra={"in_use": num_open, "connections": max_connections()},
            )
            checks_until_line = _CHECKS_PER_LINE
        await asyncio.sleep(_CHECK_SECONDS)


def _num_open() -> int:
    """A lower bound of the number of open descriptors: a new one gets the lowest free number."""
    try:
        descriptor = os.dup(0)
    except OSError:
        return 2**31
    os.close(descriptor)
    return descriptor
