"""The server's process: its signals, and an end that nothing delays."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from service.common import signals, temporary_folders
from service.errors import InternalError, StartupError
from service.observability import logs
from service.server import Server

# Time from the end of the drain to the end of the process, in which models and listeners stop,
# usage is saved and spans are exported.
_END_SECONDS = 1.75

# Longest wait of the event loop for Python's lock while a thread computes. The loop waits in each
# iteration, and a call takes several; Python's default is 5 ms.
_SWITCH_SECONDS = 0.0005

_log = logging.getLogger("dragoman.server")


def run(make_server: Callable[[], Server]) -> NoReturn:
    """Serve until a signal to stop, then end the process, with status 1 if serving failed.

    Args:
        make_server: makes the server when the event loop runs.
    """
    signals.end_if_asked()
    sys.setswitchinterval(_SWITCH_SECONDS)

    async def serve_and_exit() -> NoReturn:
        status = 0
        try:
            await serve(make_server())
        except (InternalError, StartupError) as exc:
            _log.critical(str(exc))
            status = 1
        logs.close()
        temporary_folders.remove_all()
        # Returning would wait for threads, which may still work on a text for a long time.
        os._exit(status)

    asyncio.run(serve_and_exit())


async def serve(server: Server) -> None:
    """Serve until SIGTERM or SIGINT, then drain. A second signal cuts the drain short.

    SIGHUP replaces the models with changed bundles. If it means that the server's terminal was
    closed, it ends the server like SIGTERM instead. A server that was started to ignore SIGHUP
    (`nohup`) continues without its terminal.

    A signal while the models load abandons the loading thread. Everything else that does not stop
    in time is abandoned too, since the process ends.

    Raises:
        StartupError: the server can't start.
        InternalError: an engine failed, or hung and could not be stopped, so its model can't be
            served. The process should end, so that its supervisor restarts it.
    """
    asked = asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(_AcceptErrors())
    _handle_signals(server, asked)
    stopping = asyncio.ensure_future(asked.wait())
    starting = asyncio.ensure_future(server.start())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if asked.is_set() and not (starting.done() and starting.exception() is None):
        starting.cancel()
        await asyncio.wait({starting}, timeout=_END_SECONDS)
        _log.info("stopped before it served")
        return
    starting.result()
    failing = asyncio.ensure_future(server.wait_until_failed())
    await asyncio.wait({failing, stopping}, return_when=asyncio.FIRST_COMPLETED)
    failing.cancel()
    stopping.cancel()
    draining = asyncio.ensure_future(server.drain())
    await asyncio.wait({draining}, timeout=server.settings.drain_seconds + _END_SECONDS)
    if draining.done():
        draining.result()
    else:
        _log.warning("the server did not stop in time: what is left ends with the process")
    for name in server.failed_models:
        raise InternalError(f"model {name} stopped working; the log says why")


class _AcceptErrors:
    """Logs errors of the event loop; those of accepting once a second, without a stack trace.

    Without free descriptors, asyncio reports each of the connections that wait, in one iteration,
    and the lines of a stack trace are looked for in files that can't be opened.
    """

    def __init__(self) -> None:
        self._logged = -math.inf

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error."""
        if not context["message"].startswith("socket.accept()"):
            loop.default_exception_handler(context)
        elif (now := loop.time()) >= self._logged + 1.0:
            self._logged = now
            _log.error("connections can't be accepted", extra={"reason": str(context["exception"])})


def _handle_signals(server: Server, asked: asyncio.Event) -> None:
    """Set `asked` at a signal to stop, cut the drain short at the next one, reload at SIGHUP."""

    def on_stop() -> None:
        if asked.is_set():
            server.cut_drain_short()
        asked.set()

    handle = asyncio.get_running_loop().add_signal_handler
    signals.handle_signals(on_stop, server.reload_changed, handle)
