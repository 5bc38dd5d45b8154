"""The HTTP server: connections on a port of ours, and a drain.

It replaces `uvicorn.Server`, which handles signals itself and polls ten times a second.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from uvicorn.config import Config
from uvicorn.server import ServerState

from service.common import descriptors
from service.common.fairness import FairLoop
from service.errors import StartupError
from service.fronts.http.transfers import HttpLimits
from service.ports.http.connection import Connection
from service.ports.http.connection_limit import ConnectionLimit, Waiting
from service.ports.http.paths import with_origin_form
from service.ports.tls import HANDSHAKE_SECONDS

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from service.ports.certificates import ServerTls

MAX_CONNECTIONS = 1024
"""Connections at a time."""
_LAST_SECONDS = 1.0
_SHARE = 4  # of the descriptors that there are for connections

# Bad requests are the client's fault, and logging each would let clients fill the log.
logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


class HttpServer:
    """Serves an application on a port, in the running event loop.

    `setting` names the port in an error, such as "--http-port". `asks_clients` says whether clients
    need a certificate, if `tls` has authorities for them.

    Attributes:
        port: the bound port, once started.
        max_connections: number at a time, as it is.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        setting: str,
        limits: HttpLimits,
        max_connections: int,
        tls: ServerTls | None = None,
        asks_clients: bool = True,
    ) -> None:
        self.port = port
        self.max_connections = min(max_connections, descriptors.max_connections() // _SHARE)
        self._host = host
        self._setting = setting
        self._context = tls.context(asks_clients=asks_clients) if tls is not None else None
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._limit = ConnectionLimit(self.max_connections)
        config = Config(
            with_origin_form(app),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # they could be anyone's
            timeout_keep_alive=limits.idle_seconds,  # type: ignore[arg-type]
            reset_contextvars=True,
        )
        config.load()
        # By computing time: on a busy machine, a turn could end before it has begun.
        turns = FairLoop(time.thread_time)
        self._protocol = functools.partial(
            Connection, config, self._state, limits, self._limit, turns
        )

    @property
    def url(self) -> str:
        """URL of the server's root."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._context else 'http'}://{host}:{self.port}/"

    async def start(self) -> None:
        """Bind the port, and answer on it.

        Raises:
            StartupError: the address can't be used.
        """
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._accept, self._host, self.port, backlog=MAX_CONNECTIONS
            )
        except OSError as exc:
            raise StartupError(
                f"cannot serve HTTP on {self._host}:{self.port}: {exc.strerror or exc}; choose "
                f"another port with {self._setting}"
            ) from exc
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self, seconds: float) -> None:
        """Accept no connections, and wait for the answers in progress, within `seconds`."""
        self._stop_listening()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=seconds)

    async def close(self) -> None:
        """Close all connections, and wait a moment for their calls to end."""
        self._stop_listening()
        self._limit.abort_all()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=_LAST_SECONDS)

    def _accept(self) -> asyncio.Protocol:
        if self._context is None:
            return self._protocol()
        return _Handshake(self._context, self._limit, self._protocol)

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()


class _Handshake(asyncio.Protocol):
    """A connection until the end of its TLS handshake, counted by the limit from the beginning.

    A server of asyncio with TLS makes its protocol after the handshake, so any number of
    connections could wait for that.
    """

    transport: asyncio.Transport
    waiting: Waiting

    def __init__(
        self, context: ssl.SSLContext, limit: ConnectionLimit, create: Callable[[], Connection]
    ) -> None:
        self._context = context
        self._limit = limit
        self._create = create
        self._loop = asyncio.get_running_loop()
        self._early = b""  # what came with the last bytes of the handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, if there is room."""
        self.transport = cast(asyncio.Transport, transport)
        self.waiting = False, self._loop.time()
        if self._limit.enter(self):
            self._task = self._loop.create_task(self._run())

    def data_received(self, data: bytes) -> None:
        """Keep what comes before the other protocol takes over."""
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no more."""
        self._limit.leave(self)

    async def _run(self) -> None:
        try:
            transport = await self._loop.start_tls(
                *(self.transport, self, self._context),
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
            )
        except OSError:  # ssl.SSLError and TimeoutError too
            self._limit.leave(self)
            self.transport.abort()
            return
        successor = self._create()
        if transport is None or not self._limit.hand_over(self, successor):
            return  # lost or evicted
        transport.set_protocol(successor)
        successor.connection_made(transport)
        if self._early:
            successor.data_received(self._early)
