"""The server process: start, serve, drain with a bound, stop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import signal
import threading
from collections.abc import Callable
from types import TracebackType

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dragoman.v1 import translation_pb2_grpc
from service import descriptors
from service.api.health import HealthService
from service.api.http_endpoint import HttpEndpoint, Probes
from service.api.interceptor import Interceptor
from service.api.reflection import Reflection
from service.api.registry import Registry
from service.api.request_parsing import RequestParser
from service.api.servicer import SERVICE, TranslationServicer
from service.decoding.requests import MAX_SUPPRESSED
from service.engine.watchdog import Watchdog
from service.errors import InternalError, StartupError
from service.observability.metrics import ServerMetrics
from service.settings import Settings

# While draining: how long no call must have come, and how long to wait for that.
_QUIET_SECONDS = 0.25
_LAST_ARRIVALS_SECONDS = 5.0
# Beyond our own calls: a client watches the server's health for as long as it is connected.
_MAX_OTHER_CALLS = 4096
# Of these. Idle watches and reflection streams must leave room for health checks and our own calls.
_MAX_WATCHES = 2048
_MAX_REFLECTIONS = 64
# Calls that have arrived and that the event loop has not taken yet, of each method.
_MAX_PENDING_CALLS = 1_000_000
# For the last answers to go out, after the bound.
_GOODBYE_SECONDS = 1.0

_log = logging.getLogger("dragoman.server")

_HEALTH_SERVICE = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name


class Server:
    """A gRPC server over some models, and its endpoint for metrics and probes.

    Use it as an asynchronous context manager (start, then drain), or call `start` and `drain`.

    Args:
        settings: ports and limits.
        models: that it serves; or what loads them, which is called in a thread once both ports are
            bound.
        metrics: where calls are counted.

    Attributes:
        port, metrics_port: where it listens, once started (the settings may say 0: any).
        probes: what /livez and /readyz say.
    """

    def __init__(
        self, settings: Settings, models: Registry | Callable[[], Registry], metrics: ServerMetrics
    ) -> None:
        self.port = 0
        self.metrics_port = 0
        self.probes = Probes()
        self._settings = settings
        self._models = models
        self._metrics = metrics
        self._registry: Registry
        self._endpoint: HttpEndpoint | None = None
        self._health: HealthService
        self._reflection: Reflection
        self._boundary: Interceptor
        self._grpc: grpc.aio.Server
        self._servicer: TranslationServicer
        self._stalls: Watchdog
        self._watching: list[asyncio.Task[None]] = []
        self._cut_short = asyncio.Event()
        self._draining = False

    async def start(self) -> None:
        """Bind both ports, load the models, start the engines, then say SERVING.

        Until then, calls end with UNAVAILABLE, and health is NOT_SERVING.

        Raises:
            StartupError: a port can't be used, or a model can't be served.
        """
        self._create_grpc_server()
        self._add_services()
        registry: Registry | None = None
        try:
            self.port = self._bind()
            settings = self._settings
            self._endpoint = HttpEndpoint(
                self._metrics.registry, self.probes, settings.metrics_host, settings.metrics_port
            )
            self.metrics_port = self._endpoint.port
            self.probes.watch(asyncio.get_running_loop())
            await self._grpc.start()
            registry = self._registry = await self._loaded()
            engines = {model.name: model.engine for model in registry}
            self._stalls = Watchdog(
                engines, settings.stall_seconds, settings.hang_seconds, self._stall_changed
            )
            await registry.start()
        except BaseException:
            if registry is not None:
                await registry.stop()
            await self._grpc.stop(None)
            await self._close_endpoint()
            raise
        self._servicer.registry = registry
        self._health.start_serving()
        self.probes.set_ready()
        self._metrics.serving.set(1)
        self._watching = [
            asyncio.create_task(descriptors.watch(), name="descriptors"),
            asyncio.create_task(self._stalls.run(), name="watchdog"),
        ]
        for task in self._watching:
            task.add_done_callback(self._watching_ended)
        _log.info(
            "serving",
            extra={
                "address": f"{self._settings.host}:{self.port}",
                "metrics": f"http://{self._settings.metrics_host}:{self.metrics_port}/metrics",
                "models": [model.name for model in registry],
            },
        )

    async def drain(self) -> None:
        """Say NOT_SERVING, let calls in progress end, within the bound, and stop.

        Whoever has not heard of it yet still sends calls; these are taken until none has come for a
        moment, for seconds at most. Then connections are told to go away, and clients go elsewhere:
        a refusal before that would come back on the same connection.
        Calls that outlast the bound end with UNAVAILABLE, so that their clients try elsewhere.
        """
        if self._draining:
            return
        self._draining = True
        for task in self._watching:  # from now on, the drain has its own bounds
            task.cancel()
        self._health.start_draining()
        self._reflection.start_draining()
        self.probes.set_not_ready("draining")
        self._metrics.serving.set(0)
        _log.info("draining", extra={"seconds": self._settings.drain_seconds})
        ending = asyncio.ensure_future(self._end_calls())
        cut_short = asyncio.ensure_future(self._cut_short.wait())
        await asyncio.wait(
            {ending, cut_short},
            timeout=self._settings.drain_seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if not ending.done():
            _log.warning("calls were still in progress at the end of the drain and are cut off")
        cut_short.cancel()
        ending.cancel()
        await self._registry.stop()  # what still runs ends with UNAVAILABLE
        await self._grpc.stop(_GOODBYE_SECONDS)
        await self._close_endpoint()
        _log.info("stopped")

    async def _end_calls(self) -> None:
        """Wait for calls on their way to arrive, then for all to end, taking no new ones."""
        # gRPC resets what has come over the wire but was not taken yet when it stops. So it goes on
        # taking calls until none has come for a moment; who looks at the health service has gone.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_ARRIVALS_SECONDS):
                await self._boundary.quiet(_QUIET_SECONDS)
        await self._grpc.stop(self._settings.drain_seconds)

    async def serve(self) -> None:
        """Serve until SIGTERM or SIGINT, then drain. A second signal cuts the drain short.

        Models that are being loaded at the signal are left behind: the process is to end.

        Raises:
            StartupError: as `start`.
            InternalError: an engine failed, so that its model can't be served any more, or hung so
                that it could not be stopped. Ending lets whoever supervises the process start it
                afresh.
        """
        loop = asyncio.get_running_loop()
        asked = asyncio.Event()

        def on_signal() -> None:
            if asked.is_set():
                self._cut_short.set()
            asked.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal)
        stopping = asyncio.ensure_future(asked.wait())
        starting = asyncio.ensure_future(self.start())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
            _log.info("stopped before it served")
            return
        starting.result()
        failing = asyncio.ensure_future(self._registry.wait_until_failed())
        await asyncio.wait({failing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        failing.cancel()
        stopping.cancel()
        await self.drain()
        for model in self._registry:
            if model.engine.has_failed:
                raise InternalError(f"model {model.name} stopped working; the log says why")

    async def __aenter__(self) -> Server:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Drain."""
        await self.drain()

    async def _loaded(self) -> Registry:
        models = self._models
        if isinstance(models, Registry):
            return models
        loaded: concurrent.futures.Future[Registry] = concurrent.futures.Future()
        loaded.set_running_or_notify_cancel()

        def load() -> None:
            try:
                loaded.set_result(models())
            except BaseException as exc:
                loaded.set_exception(exc)

        # Not of a pool, for whose threads the event loop's end would wait.
        threading.Thread(target=load, name="load", daemon=True).start()
        return await asyncio.wrap_future(loaded)

    def _watching_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            _log.critical("%s failed", task.get_name(), exc_info=error)
            if task.get_name() == "watchdog":  # a model that hangs would not be noticed any more
                self.probes.set_not_live("the watchdog failed")

    def _stall_changed(self, model: str, is_stalled: bool) -> None:
        self._metrics.stalled.labels(model).set(is_stalled)
        stalled = sorted(self._stalls.stalled)
        self._health.set_stalled(bool(stalled))
        self._metrics.serving.set(self._health.is_serving)
        if stalled:
            self.probes.set_not_ready(f"no progress: {', '.join(stalled)}")
        else:
            self.probes.set_ready()

    async def _close_endpoint(self) -> None:
        if self._endpoint is not None:
            # It waits for a scrape in progress, which must not hold up the loop.
            await asyncio.to_thread(self._endpoint.close)

    def _create_grpc_server(self) -> None:
        settings = self._settings
        self._health = HealthService((SERVICE,), _MAX_WATCHES)
        self._reflection = Reflection((SERVICE, _HEALTH_SERVICE), _MAX_REFLECTIONS)
        entries = {
            "contents": settings.max_texts,
            "pairs": settings.max_texts,
            "suppressed_tokens": MAX_SUPPRESSED,
        }
        self._boundary = Interceptor(
            self._metrics,
            RequestParser(SERVICE, entries),
            settings.max_concurrent_requests,
            settings.message_bytes,
        )
        self._grpc = grpc.aio.server(
            interceptors=[self._boundary],
            # A backstop, for what our own limit can't see: calls whose message is still coming, and
            # health checks and watches.
            maximum_concurrent_rpcs=settings.max_concurrent_requests + _MAX_OTHER_CALLS,
            options=[
                # Otherwise a second server would share the port and take half of the calls.
                ("grpc.so_reuseport", 0),
                # Beyond that, accepting fails, and clients would hang rather than go elsewhere.
                ("grpc.max_allowed_incoming_connections", descriptors.max_connections()),
                ("grpc.max_receive_message_length", settings.message_bytes),
                ("grpc.max_send_message_length", -1),
                # Calls wait in gRPC until the event loop takes them, and beyond these limits gRPC
                # answers CANCELLED. One connection with all its calls may not make the others wait
                # for seconds: what it has beyond its limit waits in its client, which gRPC's
                # overload protection would refuse instead, with UNAVAILABLE.
                ("grpc.server.max_pending_requests", _MAX_PENDING_CALLS),
                ("grpc.server.max_pending_requests_hard_limit", _MAX_PENDING_CALLS),
                ("grpc.max_concurrent_streams", settings.connection_calls),
                ("grpc.http.overload_protection", 0),
                # Notice clients that vanished without closing the connection, and let clients
                # keep idle connections alive through proxies that drop them.
                ("grpc.keepalive_time_ms", 60_000),
                ("grpc.keepalive_timeout_ms", 20_000),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
                ("grpc.keepalive_permit_without_calls", 1),
                # A connection lasts for ever by itself: replicas that are added under load would
                # get none of it from clients that balance by themselves.
                ("grpc.max_connection_age_ms", int(settings.max_connection_seconds * 1000)),
            ],
        )

    def _add_services(self) -> None:
        self._servicer = TranslationServicer(self._metrics)
        translation_pb2_grpc.add_TranslationServiceServicer_to_server(self._servicer, self._grpc)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._grpc)
        self._reflection.add_to(self._grpc)

    def _bind(self) -> int:
        host, port = self._settings.host, self._settings.port
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            bound = self._grpc.add_insecure_port(address)
        except RuntimeError as exc:
            raise StartupError(
                f"cannot listen on {address}: the port is in use or the address is not this "
                f"machine's; choose another with --port or --host"
            ) from exc
        if not bound:
            raise StartupError(f"cannot listen on {address}")
        return bound
