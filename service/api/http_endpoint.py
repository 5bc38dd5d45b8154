"""The HTTP server for metrics and probes: /metrics, /livez and /readyz."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from service.errors import StartupError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

    from service.api.certificates import ServerTls

MAX_CONNECTIONS = 32
"""Connections at a time, each with a thread; further ones are closed at once."""
_ACCEPT_PAUSE_SECONDS = 0.5

_log = logging.getLogger(__name__)


class Probes:
    """The state that /livez and /readyz report. All methods may be called from any thread.

    Not ready means: send no requests now. Not live means: restart this process. Probes detect an
    event loop that does not respond. Other failures are reported by `set_not_live` and
    `set_not_ready`.

    Args:
        loop_seconds: the time for a live event loop to respond.
    """

    def __init__(self, loop_seconds: float = 5.0) -> None:
        self._loop_seconds = loop_seconds
        self._not_ready = "starting"
        self._not_live = ""
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check from now on that the event loop responds."""
        self._loop = loop

    def set_ready(self) -> None:
        """The server accepts requests."""
        self._not_ready = ""

    def set_not_ready(self, reason: str) -> None:
        """The server accepts no requests, for a reason such as "draining"."""
        self._not_ready = reason

    def set_not_live(self, reason: str) -> None:
        """The process has to be restarted, for a reason of a few words."""
        self._not_live = reason

    def known_reason(self) -> str:
        """As `why_not_ready`, without a look at the event loop: for an answer from there."""
        return self._not_ready or self._not_live

    def why_not_live(self) -> str:
        """Why the process has to be restarted, or "". Takes seconds at most."""
        if self._not_live or self._loop is None:
            return self._not_live
        responds = threading.Event()
        try:
            self._loop.call_soon_threadsafe(responds.set)
        except RuntimeError:  # closed
            return "stopped"
        if not responds.wait(self._loop_seconds):
            return f"the event loop has not responded for {self._loop_seconds:g} seconds"
        return ""

    def why_not_ready(self) -> str:
        """Why the server accepts no requests, or "". Takes seconds at most."""
        return self._not_ready or self.why_not_live()


class HttpEndpoint:
    """Serves /metrics, /livez and /readyz in its own threads: a scrape never delays a step.

    Args:
        registry: of the metrics.
        probes: the state that /livez and /readyz report.
        host, port: the address to bind; port 0 is any.
        request_seconds: the limit of a connection; then it is closed.
        tls: for HTTPS, without certificates of clients; None for plain text.

    Attributes:
        port: the bound port.

    Raises:
        StartupError: the address can't be used.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        probes: Probes,
        host: str,
        port: int,
        request_seconds: float = 10.0,
        tls: ServerTls | None = None,
    ) -> None:
        app = _router(registry, probes)
        try:
            self._server = make_server(host, port, app, _server_class(host, port), _QuietHandler)
        except OSError as exc:
            raise StartupError(
                f"cannot serve metrics on {host}:{port}: {exc.strerror or exc}; "
                f"choose another port with --metrics-port"
            ) from exc
        self._server.request_seconds = request_seconds
        if tls is not None:
            self._server.tls_context = tls.context(asks_clients=False)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.port = self._server.server_port

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _router(
    registry: CollectorRegistry, probes: Probes
) -> Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]:
    metrics = make_wsgi_app(registry)
    by_path = {"/livez": probes.why_not_live, "/readyz": probes.why_not_ready}

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path == "/metrics":
            answer: Iterable[bytes] = metrics(environ, start_response)
            return answer
        headers = [("Content-Type", "text/plain; charset=utf-8")]
        if path not in by_path:
            status, text = "404 Not Found", "there are /metrics, /livez and /readyz"
        elif method not in ("GET", "HEAD"):
            status, text = "405 Method Not Allowed", "use GET or HEAD"
            headers.append(("Allow", "GET, HEAD"))
        elif reason := by_path[path]():
            status, text = "503 Service Unavailable", reason
        else:
            status, text = "200 OK", "ok"
        start_response(status, headers)
        return [] if method == "HEAD" else [f"{text}\n".encode()]

    return app


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = MAX_CONNECTIONS
    request_seconds = 10.0
    tls_context: ssl.SSLContext | None = None

    def __init__(self, *args: Any) -> None:
        self._deadlines: dict[socket.socket, float] = {}
        super().__init__(*args)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection."""
        try:
            return super().get_request()
        except OSError:
            # Without a free descriptor, this would fail in a busy loop while a connection waits.
            time.sleep(_ACCEPT_PAUSE_SECONDS)
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is room for a connection."""
        return len(self._deadlines) < MAX_CONNECTIONS

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection."""
        self._deadlines[request] = time.monotonic() + self.request_seconds
        super().process_request(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection, in its thread: a slow handshake delays no other connection."""
        if self.tls_context is None:
            super().finish_request(request, client_address)
            return
        # On a copy of the descriptor: wrapping takes it away from `request`, by which the
        # connection is shut down at its deadline.
        with self.tls_context.wrap_socket(request.dup(), server_side=True) as wrapped:
            super().finish_request(wrapped, client_address)
            with contextlib.suppress(OSError):
                wrapped.unwrap()

    def service_actions(self) -> None:
        """Close connections past their deadline, twice a second; their threads notice."""
        now = time.monotonic()
        for request, deadline in self._deadlines.copy().items():
            if deadline <= now:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        super().shutdown_request(request)
        self._deadlines.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the failure instead of printing it."""
        _log_failure()


def _log_failure() -> None:
    """Log the current exception, unless it is a broken connection."""
    error = sys.exception()
    if error is not None and not isinstance(error, OSError):
        _log.error("a request for metrics or a probe failed", exc_info=error)


class _ErrorStream(io.StringIO):
    """The stream that wsgiref prints exceptions to, and flushes."""

    def flush(self) -> None:
        """Log the exception instead."""
        _log_failure()


def _server_class(host: str, port: int) -> type[_Server]:
    """The server class for IPv4 or IPv6, depending on `host`."""
    flags = socket.AI_PASSIVE
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)[0][0]
    return type("_Server", (_Server,), {"address_family": family})


class _QuietHandler(WSGIRequestHandler):
    """Neither logs requests nor prints."""

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def get_stderr(self) -> io.StringIO:
        """The stream that wsgiref prints to."""
        return _ErrorStream()
