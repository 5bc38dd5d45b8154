"""The HTTP server: uvicorn's protocol on a port of ours, with limits for slow clients, and a drain.

Not `uvicorn.Server`, which handles signals itself, polls ten times a second, and has no limit for a
client that sends its headers, or reads its answer, slowly.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from service import descriptors
from service.api.call_context import host_of
from service.api.call_tracker import CallTracker
from service.api.http.allowed_hosts import AllowedHosts, checked_origin
from service.api.http.app import HttpApp
from service.api.http.transfers import HttpLimits
from service.api.servicer import TranslationServicer
from service.api.tls import HANDSHAKE_SECONDS
from service.engine.quota import Quota
from service.errors import StartupError

if TYPE_CHECKING:
    from service.api.certificates import ServerTls

MAX_CONNECTIONS = 1024
"""Connections at a time; further ones are closed at once, as they are on gRPC's port."""
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

    Args:
        app: answers requests.
        host, port: the address to bind; port 0 is any.
        limits: of connections.
        max_connections: at a time; less if there are few descriptors.
        tls: for HTTPS; None for plain text.

    Attributes:
        port: the bound port, once started.
        max_connections: at a time, as it is.
    """

    def __init__(
        self,
        app: HttpApp,
        host: str,
        port: int,
        limits: HttpLimits,
        max_connections: int,
        tls: ServerTls | None = None,
    ) -> None:
        self._tls = tls
        self.port = port
        self.max_connections = min(max_connections, descriptors.max_connections() // _SHARE)
        self._app = app
        self._host = host
        self._state = ServerState()
        self._server: asyncio.Server | None = None
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
        self._protocol = functools.partial(
            _Connection, config, self._state, limits, Quota(self.max_connections)
        )

    @classmethod
    def over(
        cls,
        servicer: TranslationServicer,
        tracker: CallTracker,
        why_not_ready: Callable[[], str],
        host: str,
        port: int,
        limits: HttpLimits | None = None,
        max_connections: int = MAX_CONNECTIONS,
        allowed_hosts: Sequence[str] = (),
        allow_origin: Sequence[str] = (),
        tls: ServerTls | None = None,
    ) -> HttpServer:
        """A server of the page, and of the calls that `servicer` answers.

        Raises:
            StartupError: `allow_origin` has what is no origin.
        """
        limits = limits or HttpLimits()
        origins = [checked_origin(origin) for origin in allow_origin]
        hosts = AllowedHosts(host, allowed_hosts, origins)
        app = HttpApp(servicer, tracker, why_not_ready, limits, hosts, origins)
        return cls(app, host, port, limits, max_connections, tls)

    @property
    def url(self) -> str:
        """Of the page."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}/"

    async def start(self) -> None:
        """Bind the port, and answer on it.

        Raises:
            StartupError: the address can't be used.
        """
        loop = asyncio.get_running_loop()
        tls: dict[str, Any] = {}
        if self._tls is not None:
            tls["ssl"] = self._tls.context(asks_clients=True)
            tls["ssl_handshake_timeout"] = HANDSHAKE_SECONDS
        try:
            self._server = await loop.create_server(
                self._protocol, self._host, self.port, backlog=MAX_CONNECTIONS, **tls
            )
        except OSError as exc:
            raise StartupError(
                f"cannot serve HTTP on {self._host}:{self.port}: {exc.strerror or exc}; choose "
                "another port with --http-port"
            ) from exc
        self.port = self._server.sockets[0].getsockname()[1]

    def start_draining(self) -> None:
        """End each connection after its current answer, or its next one."""
        self._app.is_draining = True

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
        for connection in list(self._state.connections):
            connection.transport.abort()
        self._app.close()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=_LAST_SECONDS)

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()


class _Connection(H11Protocol):
    """A connection that is closed if its client is too slow, in either direction."""

    def __init__(
        self, config: Config, state: ServerState, limits: HttpLimits, quota: Quota
    ) -> None:
        super().__init__(config, state, {})
        self._limits = limits
        self._quota = quota
        self._host: str | None = None  # once it has its part of the quota
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, if this host may have another connection."""
        super().connection_made(transport)
        self.app_state = {"abort": transport.abort}  # for answers that can't be ended otherwise
        transport.set_write_buffer_limits(high=2**16)
        host = host_of(f"ipv:{self.client[0]}:" if self.client else "")
        if not self._quota.take(1, host):
            transport.abort()
            return
        self._host = host
        self._abort_in("head", self._limits.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give back what it took."""
        if self._host is not None:
            self._quota.release(1, self._host)
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
        """Go on."""
        super().resume_writing()
        self._keep("write")

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._abort_in("close", self._limits.write_seconds)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, even if its client has not read the last answer."""
        super().timeout_keep_alive_handler()
        self._abort_in("close", self._limits.write_seconds)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, in the shape of all errors."""
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
