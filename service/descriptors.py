"""File descriptors: the standard ones, the limit of the process, and what happens near it."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import sys

# For files, scrapes and the models' processes; of a very low limit, half.
_RESERVE = 64
_CHECK_SECONDS = 1.0
_CHECKS_PER_LINE = 60

_log = logging.getLogger(__name__)


def open_standard_streams() -> None:
    """Open /dev/null in place of standard streams that are closed.

    Otherwise a socket would get such a number, and what is meant for standard error would go there.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # It takes the lowest number that is free. Processes that are started need it too.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stderr is None:  # which is what Python makes of it
        sys.stderr = os.fdopen(2, "w", closefd=False)


def raise_limit(num_calls: int) -> None:
    """Allow as many open files as the system lets this process have; warn if these are few.

    Args:
        num_calls: that may be in progress; each may come over a connection of its own.
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
    """Connections for which there are descriptors; more are to be refused."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        limit = 2**31 - 1
    return limit - min(_RESERVE, limit // 2)


async def watch() -> None:
    """Log, once a minute, that descriptors run out, while they do. Never returns."""
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
    """At least so many descriptors are in use: a new one gets the lowest number that is free."""
    try:
        descriptor = os.dup(0)
    except OSError:
        return 2**31
    os.close(descriptor)
    return descriptor
