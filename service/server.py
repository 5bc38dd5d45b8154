"""The server: start, drain with a bound, stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpc_health.v1 import health_pb2, health_pb2_grpc

import dragoman
from dragoman.v1 import translation_pb2_grpc
from model.bundle.search_limits import MAX_SUPPRESSED
from service.access.setup import Access
from service.calls.backend import DOCUMENT_LIMITS, Backend
from service.calls.call_tracker import CallTracker
from service.calls.request_parsing import RequestParser
from service.common import descriptors, garbage
from service.documents.worker_pool import READERS_MODULE, DocumentWorkers
from service.documents.worker_template import WorkerLimits
from service.engine.watchdog import Watchdog
from service.fronts.dragoman.servicer import SERVICE, TranslationServicer
from service.fronts.google_v3.grpc_service import add_google_v3, google_front
from service.fronts.grpc.interceptor import Interceptor
from service.glossaries.files import GlossaryFiles
from service.glossaries.glossary import MAX_ENTRIES
from service.glossaries.store import GlossaryStore
from service.memory.store import TranslationMemories
from service.models.idle import IdleMonitor
from service.models.lifecycle.opening import in_daemon_thread
from service.models.lifecycle.reloads import Reloads
from service.models.registry import Registry
from service.models.served_model import ServedModel
from service.observability import loop_monitor
from service.observability.metrics import ServerMetrics
from service.observability.tracing import create_tracing
from service.ports.grpc.admin import AdminServer
from service.ports.grpc.health import HealthService
from service.ports.grpc.reflection import Reflection
from service.ports.grpc.server import GrpcServer, bind_grpc, create_grpc_server
from service.ports.metrics_port import MetricsEndpoint, Probes
from service.ports.tls import exposed_hosts, server_tls
from service.settings import Settings

# While draining, calls are accepted until none has arrived for this time, within a bound.
_QUIET_SECONDS = 0.25
_LAST_ARRIVALS_SECONDS = 5.0
# Most health watches and reflection streams, so that idle ones leave room for calls.
_MAX_WATCHES = 2048
_MAX_REFLECTIONS = 64
# Time after the drain in which the step in flight ends and the last answers are sent.
_LAST_STEP_SECONDS = 1.0
_LAST_ANSWERS_SECONDS = 0.5
# Time in which the last spans are exported.
_LAST_SPANS_SECONDS = 3.0

if TYPE_CHECKING:
    from service.ports.http.contract_server import ContractServer

_log = logging.getLogger("dragoman.server")

_HEALTH_SERVICE = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name


class Server:
    """A gRPC server over some models, with an HTTP endpoint for metrics and probes.

    Use it as an asynchronous context manager (start, then drain), or call `start` and `drain`.

    Args:
        settings: ports and limits.
        models: the models, or a function that loads them, which is called in a thread after the
            ports are bound.
        metrics: metrics of the server.
        readers: name of the module that reads documents in worker processes.

    Attributes:
        port, metrics_port: numbers of the bound ports, after `start`.
        admin_port, http_port: numbers of the bound ports, after `start`; -1 without such a port.
        probes: state that /livez and /readyz report.
        settings: settings of the server.
    """

    def __init__(
        self,
        settings: Settings,
        models: Registry | Callable[[], Registry],
        metrics: ServerMetrics,
        readers: str = READERS_MODULE,
    ) -> None:
        self.port = 0
        self.metrics_port = 0
        self.admin_port = -1
        self.http_port = -1
        self.probes = Probes()
        self.settings = settings
        self._models = models
        self._metrics = metrics
        self._registry: Registry
        self._endpoint: MetricsEndpoint | None = None
        self._health = HealthService((SERVICE,), _MAX_WATCHES)
        self._reflection = Reflection((SERVICE, _HEALTH_SERVICE), _MAX_REFLECTIONS)
        path = Path(settings.glossary_store) if settings.glossary_store else None
        self._documents = DocumentWorkers(
            DOCUMENT_LIMITS, WorkerLimits.of(settings), metrics.documents, readers
        )
        self._backend = Backend(
            metrics,
            GlossaryFiles.of(settings.glossary, settings.glossary_dir),
            GlossaryStore(path),
            self._documents,
            TranslationMemories(settings.memory_store),
            cache_is_free=settings.cache_free,
        )
        self._servicer = TranslationServicer(self._backend)
        max_entries = {
            "contents": settings.max_texts,
            "pairs": settings.max_texts,
            "suppressed_tokens": MAX_SUPPRESSED,
            "entries": MAX_ENTRIES,
        }
        self._tls = server_tls(settings, metrics)
        self._access = Access(settings, metrics)
        self._tracker = CallTracker(
            metrics,
            RequestParser(SERVICE, max_entries),
            settings.max_concurrent_requests,
            settings.message_bytes,
            self._access.control,
            create_tracing(dragoman.__version__, SERVICE) if settings.tracing else None,
        )
        self._grpc: GrpcServer
        self._http: ContractServer | None = None
        self._watchdog: Watchdog
        self._reloads: Reloads[ServedModel]
        self._reload_asked = False  # possibly before the models are loaded
        self._admin: AdminServer | None = None
        self._background: list[asyncio.Task[None]] = []
        self._cut_short = asyncio.Event()
        self._draining = False

    async def start(self) -> None:
        """Bind the ports, load the models, start the engines, then set health to SERVING.

        Until then, calls end with UNAVAILABLE, and health is NOT_SERVING.

        Raises:
            StartupError: a port can't be used, or a model can't be served.
        """
        http = self._create_http()
        interceptor = Interceptor(self._tracker, fronts=[google_front(self._tracker.parser)])
        num_others = http.max_connections if http else 0
        self._grpc = create_grpc_server(
            self.settings, interceptor, self._reflection, num_others, self._tls, self.probes
        )
        self._http = http
        registry: Registry | None = None
        try:
            await self._access.start()
            await self._backend.start()
            await self._listen()
            models = self._models
            registry = models if isinstance(models, Registry) else await in_daemon_thread(models)
            self._registry = registry
            await registry.start()
        except BaseException:
            if registry is not None:
                await registry.stop()
            if self._admin is not None:
                await self._admin.stop()
            if self._http is not None:
                await self._http.close()
            await self._grpc.stop(None)
            await self._access.stop()
            await self._backend.stop()
            await self._close_endpoint()
            raise
        self._start_serving(registry)

    async def _listen(self) -> None:
        """Bind all ports, and start to answer."""
        settings = self.settings
        server: Any = self._grpc  # front processes take methods as gRPC's server does
        translation_pb2_grpc.add_TranslationServiceServicer_to_server(self._servicer, server)
        add_google_v3(server, self._backend)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        self.port = bind_grpc(self._grpc, settings, self._tls)
        self._endpoint = MetricsEndpoint(
            self._metrics.registry,
            self.probes,
            settings.metrics_host,
            settings.metrics_port,
            allowed_hosts=settings.http_allowed_hosts,
            tls=self._tls,
        )
        self.metrics_port = self._endpoint.port
        if settings.admin_port >= 0:
            self._admin = AdminServer(settings.admin_port)
            self.admin_port = self._admin.port
            await self._admin.start()
        if self._http is not None:
            await self._http.start()
            self.http_port = self._http.port
        self.probes.watch(asyncio.get_running_loop())
        await self._grpc.start()

    def _create_http(self) -> ContractServer | None:
        settings = self.settings
        if settings.http_port < 0:
            return None
        # Imported only for servers with such a port, since the libraries take memory.
        from service.ports.http.contract_server import ContractServer

        return ContractServer(
            self._servicer,
            self._tracker,
            self.probes.known_reason,
            settings.http_host,
            settings.http_port,
            allowed_hosts=settings.http_allowed_hosts,
            allow_origin=settings.http_allow_origin,
            tls=self._tls,
            prefix=settings.http_prefix,
            trusted_proxies=settings.http_trusted_proxies,
        )

    def _start_serving(self, registry: Registry) -> None:
        settings, models = self.settings, registry.lifecycles
        self._watchdog = Watchdog(
            models, settings.stall_seconds, settings.hang_seconds, self._stall_changed
        )
        self._reloads = Reloads(models, settings.drain_seconds)
        if self._reload_asked:
            self._reloads.ask()
        if self._admin is not None:
            self._admin.servicer.reloads = self._reloads
        self._backend.models = registry
        self._health.start_serving()
        self.probes.set_ready()
        self._metrics.serving.set(1)
        self._run("descriptors", descriptors.watch())
        self._run("garbage", garbage.collect_in_pauses(lambda: not self._tracker.calls.num_taken))
        self._run("watchdog", self._watchdog.run())
        self._run("loop monitor", loop_monitor.watch())
        self._run("reloads", self._reloads.run())
        if settings.idle_seconds:
            self._run("idle monitor", IdleMonitor(models.values(), settings.idle_seconds).run())
        scheme = "https" if self._tls else "http"
        if self._tls is None and (exposed := exposed_hosts(settings)):
            _log.warning(
                "plain text can be read on its way, and anyone who reaches these ports may connect",
                extra={"exposed": exposed},
            )
        _log.info(
            "serving",
            extra={
                "address": f"{settings.host}:{self.port}",
                "tls": "mutual" if settings.tls_client_ca else "on" if self._tls else "off",
                "metrics": f"{scheme}://{settings.metrics_host}:{self.metrics_port}/metrics",
                **({"http": self._http.url} if self._http is not None else {}),
                **({"admin": self._admin.address} if self._admin is not None else {}),
                "models": [model.name for model in registry],
            },
        )

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background until the drain."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._background_ended)
        self._background.append(task)

    def reload_changed(self) -> None:
        """Replace all models with changed bundles, in the background; for SIGHUP."""
        self._reload_asked = True
        if self._background:
            self._reloads.ask()

    async def drain(self) -> None:
        """Set health to NOT_SERVING, finish the calls in progress within the bound, and stop.

        Clients that have not noticed yet still send calls. Unless a model has failed, these are
        accepted until none has arrived for a moment, for a few seconds at most. Then gRPC closes
        the connections, and clients choose another server; if calls were refused earlier, clients
        would retry on the same connection. Calls that exceed the bound end with UNAVAILABLE, so
        that clients retry elsewhere.
        """
        if self._draining:
            return
        self._draining = True
        for task in self._background:  # the drain has its own bounds
            task.cancel()
        self._health.start_draining()
        self._reflection.start_draining()
        self._tracker.refusals.end()
        self.probes.set_not_ready("draining")
        if self._http is not None:
            self._http.start_draining()
        self._metrics.serving.set(0)
        _log.info("draining", extra={"seconds": self.settings.drain_seconds})
        reloads_stopped = asyncio.ensure_future(self._reloads.stop())
        ending = asyncio.ensure_future(self._end_calls())
        cut_short = asyncio.ensure_future(self._cut_short.wait())
        await asyncio.wait(
            {ending, cut_short},
            timeout=self.settings.drain_seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if not ending.done() and self._tracker.calls.num_taken:
            _log.warning("calls were still in progress at the end of the drain and are cut off")
        cut_short.cancel()
        ending.cancel()
        await reloads_stopped
        if self._admin is not None:
            await self._admin.stop()
        # Unfinished calls end with UNAVAILABLE.
        await asyncio.gather(self._stop_models(), self._documents.stop())
        await self._stop_listening(_LAST_ANSWERS_SECONDS)
        if self._http is not None:
            await self._http.close()
        await self._access.stop()
        await self._backend.stop()
        await self._close_endpoint()
        _log.info("stopped")

    async def _end_calls(self) -> None:
        """Accept calls until none arrives any more, then wait for all to end.

        After a model has failed, none are accepted: they could only be refused, and clients would
        keep the connections.
        """
        # When gRPC stops, it resets calls that have arrived but are not accepted. By now, clients
        # that watch the health service send no more.
        if not any(model.has_failed for model in self._registry.lifecycles.values()):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_ARRIVALS_SECONDS):
                    await self._tracker.quiet(_QUIET_SECONDS)
        await self._stop_listening(self.settings.drain_seconds)

    async def _stop_models(self) -> None:
        """Stop the models; a model with a step that takes too long is abandoned, and has failed."""
        stopping = asyncio.ensure_future(self._registry.stop())
        await asyncio.wait({stopping}, timeout=_LAST_STEP_SECONDS)
        if not stopping.done():
            for model in self._registry.lifecycles.values():
                model.abandon()
            if self.failed_models:
                _log.error("a step did not end in time: it is left behind")
        await stopping

    async def _stop_listening(self, seconds: float) -> None:
        """Accept no more calls, and wait for those in progress, within `seconds`."""
        stopping = [self._http.stop(seconds)] if self._http is not None else []
        await asyncio.gather(self._grpc.stop(seconds), *stopping)

    def cut_drain_short(self) -> None:
        """End the drain in progress, or the next one, without waiting for calls."""
        self._cut_short.set()

    async def wait_until_failed(self) -> None:
        """Wait until the engine of any serving model has ended."""
        await self._registry.wait_until_failed()

    @property
    def failed_models(self) -> list[str]:
        """Names of the models with engines that failed, or hung and could not be stopped."""
        return [name for name, model in self._registry.lifecycles.items() if model.has_failed]

    async def __aenter__(self) -> Server:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Drain."""
        await self.drain()

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            _log.critical("%s failed", task.get_name(), exc_info=error)
            if task.get_name() == "watchdog":  # without it, a hung model would not be noticed
                self.probes.set_not_live("the watchdog failed")

    def _stall_changed(self, model: str, is_stalled: bool) -> None:
        self._metrics.stalled.labels(model).set(is_stalled)
        stalled = ", ".join(sorted(self._watchdog.stalled))
        self._health.set_stalled(bool(stalled))
        self._metrics.serving.set(self._health.is_serving)
        self.probes.set_not_ready(stalled and f"no progress: {stalled}", "models")

    async def _close_endpoint(self) -> None:
        if self._endpoint is not None:
            await asyncio.to_thread(self._endpoint.close)
        if (tracing := self._tracker.tracing) is not None:
            await asyncio.to_thread(tracing.close, _LAST_SPANS_SECONDS)
