"""A gRPC server with one accept loop for each method.

grpcio 1.85.1 has one accept loop for all methods (`grpc/_cython/_cygrpc/aio/server.pyx.pxi`), with
two faults:

- It decodes the paths of unregistered methods. A path that is not valid UTF-8 raises an exception
  there, and the whole server stops. One request from any client is enough.
- Each call makes it wait on all methods again, so the cost of a call grows with their number.

Here, each method has a task that accepts its calls. grpcio's loop only waits for these tasks. Calls
of unregistered methods end with UNIMPLEMENTED, and their paths are never decoded. This uses
internals of grpcio, so `pyproject.toml` allows only the versions that were tested.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# Neither has types.
_cygrpc: Any = importlib.import_module("grpc._cython.cygrpc")
_aio_server: Any = importlib.import_module("grpc.aio._server")


class _Core(_cygrpc.AioServer):  # type: ignore[misc]
    """grpcio's server core, with one accept loop for each method."""

    def __init__(self, options: tuple[tuple[str, Any], ...], max_calls: int | None) -> None:
        loop = _cygrpc.get_working_loop()
        super().__init__(loop, None, (), (), options, None)
        self._event_loop: asyncio.AbstractEventLoop = loop
        self._max_calls = float("inf") if max_calls is None else max_calls
        self._handlers: dict[str, Any] = {}
        self._calls: set[asyncio.Task[None]] = set()  # the event loop holds only weak references

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Sequence[Any]) -> None:
        """Do nothing: generated code registers the same methods by name too."""

    def add_registered_method_handlers(self, method_handlers: dict[str, Any]) -> None:
        """Add methods, before the start."""
        super().add_registered_method_handlers(method_handlers)
        self._handlers.update(method_handlers)

    def _make_request_call_future(self, method: bytes | None) -> asyncio.Task[None]:
        return self._event_loop.create_task(self._accept(method))

    async def _accept(self, method: bytes | None) -> None:
        """Accept calls of one method, or of all unregistered methods for None.

        When the server stops, a pending accept raises an error that grpcio's loop handles.
        """
        name = "" if method is None else method.decode()
        resolver = _cygrpc._MethodResolver([], self._handlers)
        while True:
            if method is None:
                call = await self._request_call()
            else:
                call = await self._request_registered_call(method)
            is_over_limit = len(self._calls) >= self._max_calls
            handled = _cygrpc._handle_rpc(name, resolver, (), call, self._event_loop, is_over_limit)
            task = self._event_loop.create_task(
                _cygrpc._schedule_rpc_coro(handled, call, self._event_loop, name)
            )
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)


class AcceptingServer(_aio_server.Server):  # type: ignore[misc]
    """A `grpc.aio.Server` whose methods are all registered by their names.

    Args:
        wrap: wraps the handler of each method, which it gets after the full name of its service and
            its own name; by default, handlers stay as they are.
        options: channel options.
        max_calls: limit of calls in progress; further ones end with RESOURCE_EXHAUSTED. None is any
            number.
    """

    def __init__(
        self,
        wrap: Callable[[str, str, Any], Any] | None = None,
        options: Sequence[tuple[str, Any]] = (),
        max_calls: int | None = None,
    ) -> None:
        # Not the base's, which makes a server of grpcio's own.
        self._loop = _cygrpc.get_working_loop()
        self._server = _Core(tuple(options), max_calls)
        self._wrap = wrap

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: Mapping[str, Any]
    ) -> None:
        """Add the methods of a service, before the start."""
        if (wrap := self._wrap) is not None:
            method_handlers = {
                name: wrap(service_name, name, handler) for name, handler in method_handlers.items()
            }
        super().add_registered_method_handlers(service_name, method_handlers)
