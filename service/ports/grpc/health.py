"""The standard gRPC health service (grpc.health.v1).

The library's `Watch` never ends, so that a watching client, such as ours, would hold every drain
until its bound. This one reports NOT_SERVING and ends the watch when the server drains.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from service.calls.call_context import host_of
from service.calls.status import clipped
from service.engine.quota import Quota

_Response = health_pb2.HealthCheckResponse


class HealthService(health_pb2_grpc.HealthServicer):
    """The health of the server as a whole (the empty name) and of each of `services`.

    All share one status: NOT_SERVING until `start_serving`, while a model is stalled, and again
    from `start_draining`.

    Args:
        services: full names.

    Attributes:
        watches: quota of the watches, by host.
    """

    def __init__(self, services: tuple[str, ...], max_watches: int) -> None:
        self.watches = Quota(max_watches)
        self._services = frozenset(("", *services))
        self._serving = False
        self._stalled = False
        self._draining = False
        self._changed = asyncio.Event()

    def start_serving(self) -> None:
        """Report SERVING."""
        self._serving = True
        self._wake()

    @property
    def is_serving(self) -> bool:
        """Whether it reports SERVING. May be called from any thread."""
        return self._serving and not self._stalled

    def set_stalled(self, stalled: bool) -> None:
        """Set whether a model makes no progress."""
        self._stalled = stalled
        self._wake()

    def start_draining(self) -> None:
        """Report NOT_SERVING, finally, and end all watches."""
        self._serving, self._draining = False, True
        self._wake()

    def _release(self, host: str, _: object) -> None:
        self.watches.release(1, host)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _status(self, service: str) -> int:
        if service not in self._services:
            return _Response.SERVICE_UNKNOWN
        return _Response.SERVING if self.is_serving else _Response.NOT_SERVING

    async def Check(
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> health_pb2.HealthCheckResponse:
        """The status of a service; NOT_FOUND if there is no such service."""
        status = self._status(request.service)
        if status == _Response.SERVICE_UNKNOWN:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, clipped(f"there is no service {request.service!r}")
            )
        return _Response(status=status)

    async def Watch(
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """The status of a service, now and at each change, until the server drains.

        UNIMPLEMENTED if this host may not have another watch.
        """
        host = host_of(context.peer())
        if not self.watches.take(1, host):
            # With any other code, gRPC's health checking in clients fails their calls until a watch
            # succeeds. After this one, a client calls without health checking.
            await context.abort(
                grpc.StatusCode.UNIMPLEMENTED,
                f"{self.watches.num_taken} watches are open of at most {self.watches.capacity}; "
                "this host may not have another one now",
            )
        # Not in this generator, which is finalized late if the call ends at a `yield`.
        release: Any = functools.partial(self._release, host)  # gRPC's type fits no function
        context.add_done_callback(release)
        sent = None
        while True:
            changed, draining = self._changed, self._draining
            status = self._status(request.service)
            if status != sent:
                yield _Response(status=status)
                sent = status
            if draining:
                return
            # Read before the status, so that a change during the yield isn't missed.
            await changed.wait()
