"""The HTTP server: uvicorn's protocol on a port of ours, with limits for slow clients, and a drain.

It replaces `uvicorn.Server`, which handles signals itself, polls ten times a second, and has no
limit for a client that sends its headers, or reads its answer, slowly.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from service.common import descriptors
from service.errors import StartupError
from service.fronts.http.transfers import HttpLimits
from service.ports.http.connection_limit import ConnectionLimit, Waiting
from service.ports.tls import HANDSHAKE_SECONDS

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from service.ports.certificates import ServerTls

MAX_CONNECTIONS = 1024
"""Connections at a time."""
_LAST_SECONDS = 1.0
# That are kept of the next requests while one is answered.
_MAX_AHEAD_BYTES = 64 * 1024
_SHARE = 4  # of the descriptors that there are for connections
_BAD_REQUEST = (
    b'{"code":3,"message":"not an HTTP/1.1 request, or its headers are too long","details":[]}'
)

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
            app,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # they could be anyone's
            timeout_keep_alive=limits.idle_seconds,  # type: ignore[arg-type]
            h11_max_incomplete_event_size=limits.head_bytes,
            reset_contextvars=True,
        )
        config.load()
        self._protocol = functools.partial(_Connection, config, self._state, limits, self._limit)

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


class _Connection(H11Protocol):
    """A connection that is closed if its client is too slow, in either direction."""

    def __init__(
        self, config: Config, state: ServerState, limits: HttpLimits, limit: ConnectionLimit
    ) -> None:
        super().__init__(config, state, {})
        self._limits = limits
        self._limit = limit
        self._idle_since = 0.0
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def waiting(self) -> Waiting | None:
        """Since when it is idle, or its client has read nothing; None while the server works."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            return False, self._idle_since
        stopped = self._timers.get("write")
        return None if stopped is None else (True, stopped.when() - self._limits.write_seconds)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, if there is room for another connection."""
        super().connection_made(transport)
        self.app_state = {"abort": transport.abort}  # for answers that can't be ended otherwise
        transport.set_write_buffer_limits(high=2**16)
        self._idle_since = self.loop.time()
        if self._limit.enter(self):
            self._abort_in("head", self._limits.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection's place and its timers."""
        self._limit.leave(self)
        for name in list(self._timers):
            self._keep(name)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Read, within the time for a request's headers."""
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        num_ahead = len(self.conn.trailing_data[0])
        if cycle is not None and not cycle.response_complete:
            self._keep("head")
            # uvicorn stops to read where the next request begins. Then it would not notice that
            # the client is gone, and the call would go on.
            if self.conn.their_state is h11.DONE and num_ahead <= _MAX_AHEAD_BYTES:
                self.flow.resume_reading()
        elif cycle is not None and self.conn.their_state is h11.IDLE and not num_ahead:
            # The end of a body that was answered before it had arrived.
            self._keep("head")
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        elif "head" not in self._timers and not self.transport.is_closing():
            self._abort_in("head", self._limits.head_seconds)

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._abort_in("write", self._limits.write_seconds)

    def resume_writing(self) -> None:
        """Resume writing."""
        super().resume_writing()
        self._keep("write")

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._idle_since = self.loop.time()
        super().on_response_complete()
        if self.transport.is_closing():
            self._abort_in("close", self._limits.write_seconds)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, even if its client has not read the last answer."""
        super().timeout_keep_alive_handler()
        self._abort_in("close", self._limits.write_seconds)

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not a request with an error in the usual form."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        content = [h11.Data(data=_BAD_REQUEST)]
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            # Of a request whose body is broken: its own answer would come after this one.
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.scope["method"] == "HEAD":
                content = []
        length = str(len(_BAD_REQUEST)).encode()
        head = h11.Response(
            status_code=400,
            headers=[
                (b"content-type", b"application/json"),
                (b"content-length", length),
                (b"connection", b"close"),
            ],
        )
        for event in (head, *content, h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        self._abort_in("close", self._limits.write_seconds)

    def _abort_in(self, name: str, seconds: float) -> None:
        self._keep(name)
        self._timers[name] = self.loop.call_later(seconds, self.transport.abort)

    def _keep(self, name: str) -> None:
        if timer := self._timers.pop(name, None):
            timer.cancel()


class _Handshake(asyncio.Protocol):
    """A connection until the end of its TLS handshake, counted by the limit from the beginning.

    A server of asyncio with TLS makes its protocol after the handshake, so any number of
    connections could wait for that.
    """

    transport: asyncio.Transport
    waiting: Waiting

    def __init__(
        self, context: ssl.SSLContext, limit: ConnectionLimit, create: Callable[[], _Connection]
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
