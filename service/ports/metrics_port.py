"""The HTTP server for metrics and probes: /metrics, /livez and /readyz."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, make_asgi_app

from service.fronts.http import answers
from service.fronts.http.answers import HttpError
from service.fronts.http.transfers import HttpLimits
from service.observability import loop_monitor
from service.ports.http.allowed_hosts import AllowedHosts
from service.ports.http.server import HttpServer

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from service.ports.certificates import ServerTls

MAX_CONNECTIONS = 32
"""Connections at a time; idle ones give way to new ones."""
_LIMITS = HttpLimits(head_bytes=16 * 1024, write_seconds=10.0)
_TEXT = "text/plain; charset=utf-8"


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
        self._not_ready = {"server": "starting"}  # reasons, by their causes
        self._not_live = ""
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check from now on that the event loop responds."""
        self._loop = loop

    def set_ready(self, cause: str = "server") -> None:
        """Answer readiness probes with 200, unless there is a reason of another cause."""
        self.set_not_ready("", cause)

    def set_not_ready(self, reason: str, cause: str = "server") -> None:
        """Answer readiness probes with an error and a reason, such as "draining"; "" for none."""
        reasons = {**self._not_ready, cause: reason}
        self._not_ready = {each: why for each, why in reasons.items() if why}

    def set_not_live(self, reason: str) -> None:
        """Answer liveness probes with an error and a reason, so that the process is restarted."""
        self._not_live = reason

    def known_reason(self) -> str:
        """`why_not_ready` without the check of the event loop, for calls from that loop."""
        return "; ".join(self._not_ready.values()) or self._not_live

    async def why_not_live(self) -> str:
        """The reason to restart the process, or "". Takes seconds at most."""
        if self._not_live or self._loop is None:
            return self._not_live
        responds: Future[None] = Future()
        try:
            self._loop.call_soon_threadsafe(responds.set_result, None)
        except RuntimeError:  # closed
            return "stopped"
        done, _ = await asyncio.wait({asyncio.wrap_future(responds)}, timeout=self._loop_seconds)
        if not done:
            return f"the event loop has not responded for {self._loop_seconds:g} seconds"
        return ""

    async def why_not_ready(self) -> str:
        """The reason why the server accepts no requests, or "". Takes seconds at most."""
        return "; ".join(self._not_ready.values()) or await self.why_not_live()


class MetricsEndpoint:
    """Serves /metrics, /livez and /readyz in a thread with an event loop of its own.

    So a scrape delays no call, and a probe is answered when the server's event loop hangs.

    Requests for /metrics may ask for `allowed_hosts`. With `tls`, clients need no certificate.

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
        limits: HttpLimits = _LIMITS,
        allowed_hosts: Sequence[str] = (),
        tls: ServerTls | None = None,
    ) -> None:
        app = _application(registry, probes, AllowedHosts(host, allowed_hosts))
        self._server = HttpServer(
            *(app, host, port, "--metrics-port", limits, MAX_CONNECTIONS, tls), asks_clients=False
        )
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(started)), name="metrics", daemon=True
        )
        self._thread.start()
        started.result()
        self.port = self._server.port

    def close(self) -> None:
        """Close all connections and stop."""
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    async def _serve(self, started: Future[None]) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        try:
            await self._server.start()
        except BaseException as exc:
            started.set_exception(exc)
            return
        started.set_result(None)
        monitor = asyncio.create_task(loop_monitor.watch())
        await self._closing.wait()
        monitor.cancel()
        await self._server.close()


def _application(registry: CollectorRegistry, probes: Probes, hosts: AllowedHosts) -> ASGIApp:
    metrics = make_asgi_app(registry)
    by_path = {"/livez": probes.why_not_live, "/readyz": probes.why_not_ready}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        headers: list[tuple[str, str]] = []
        if path != "/metrics" and path not in by_path:
            status, text = 404, "there are /metrics, /livez and /readyz"
        elif scope["method"] not in ("GET", "HEAD"):
            status, text = 405, "use GET or HEAD"
            headers.append(("allow", "GET, HEAD"))
        elif path == "/metrics":
            try:
                hosts.check(dict(scope["headers"]), is_call=False)
                await metrics(scope, _no_body, send)
            except HttpError as refused:
                status, text = refused.http_status, str(refused)
            except UnicodeDecodeError:
                status, text = 400, "headers and parameters must be UTF-8"
            else:
                return
        else:
            reason = await by_path[path]()
            status, text = (503, reason) if reason else (200, "ok")
        await answers.send_body(send, f"{text}\n".encode(), status, headers, _TEXT)

    return app


async def _no_body() -> Message:
    """An empty body, so that metrics don't wait for the body of the request."""
    return {"type": "http.request"}
