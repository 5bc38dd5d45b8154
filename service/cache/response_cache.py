"""The cache of a server, and its use by one call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Protocol

from service.batching.records import EngineRequest
from service.cache.flights import Flight, Follower, Submit, without_work
from service.cache.keys import can_be_cached, request_key
from service.cache.memory_store import MemoryStore
from service.cache.values import decode_result, encode_result
from service.common.fairness import checkpoint
from service.domain.requests import GenerationRequest, GenerationResult, Priority
from service.engine.generation import Generation
from service.observability.metrics import ServerMetrics

# Larger values (a beam of long sentences) are not kept: each would take the room of a hundred.
_MAX_VALUE_BYTES = 64 * 2**10
# Of one call: its further sentences wait, as they do for the engine's quota.
_MAX_FOLLOWERS = 256


class SharedStore(Protocol):
    """Values that several servers share. It never raises; values that it can't get are missing."""

    async def get(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """The value of each key, soon; None for one that is missing."""
        ...

    def put(self, key: bytes, value: bytes) -> None:
        """Keep a value, later."""
        ...

    async def start(self) -> None:
        """Start to connect, in the background."""
        ...

    async def stop(self) -> None:
        """Close the connections."""
        ...


class ResponseCache:
    """Results of all models of a server.

    Args:
        memory: results in this process.
        metrics: the server's metrics.
        shared: results that servers share; None without such a store.

    Attributes:
        memory, shared: the stores.
    """

    def __init__(
        self, memory: MemoryStore, metrics: ServerMetrics, shared: SharedStore | None = None
    ) -> None:
        self.memory = memory
        self.shared = shared
        self._metrics = metrics

    def of_model(self, name: str, revision: str, vocab_size: int) -> ModelCache:
        """The results of one version of a model.

        Args:
            name: the model's name, for metrics.
            revision: model, software and machine, as far as results depend on them.
            vocab_size: number of target tokens.
        """
        return ModelCache(self, name, revision, vocab_size, self._metrics)

    async def start(self) -> None:
        """Start the shared store, if there is one."""
        if self.shared is not None:
            await self.shared.start()

    async def stop(self) -> None:
        """Stop the shared store, if there is one."""
        if self.shared is not None:
            await self.shared.stop()


class ModelCache:
    """The results of one version of a model; made by `ResponseCache.of_model`.

    Attributes:
        is_shared: whether there is a store that has to be waited for.
    """

    def __init__(
        self,
        cache: ResponseCache,
        name: str,
        revision: str,
        vocab_size: int,
        metrics: ServerMetrics,
    ) -> None:
        self.is_shared = cache.shared is not None
        self.memory, self._shared = cache.memory, cache.shared
        self._vocab_size = vocab_size
        self._flights: dict[tuple[bytes, Priority], Flight] = {}
        self._set_bytes = metrics.response_cache_bytes.set
        self.key = functools.partial(request_key, revision)
        # All series exist from the start: a rate over one that appears late misses its first event.
        self.hit, self.joined, self.miss = (
            metrics.response_cache_lookups.labels(name, result).inc
            for result in ("hit", "joined", "miss")
        )

    def result(self, key: bytes, request: GenerationRequest) -> GenerationResult | None:
        """The result that is kept in memory for a request; None without one."""
        value = self.memory.get(key)
        if value is None:
            return None
        result = decode_result(key, value, request, self._vocab_size)
        if result is None:
            self.memory.remove(key)
        return result

    def flight(self, key: bytes, priority: Priority) -> Flight | None:
        """The equal request that is being computed, of the same priority; None without one.

        A request of high priority does not wait for one of low priority.
        """
        return self._flights.get((key, priority))

    def begin(self, key: bytes, generation: Generation) -> None:
        """Keep the result of a generation when it ends; equal requests may follow it."""
        place = key, generation.request.priority

        def landed(result: GenerationResult | None) -> None:
            del self._flights[place]
            if result is not None:
                self._keep(key, result)

        self._flights[place] = flight = Flight(landed)
        flight.lead(generation)

    def _keep(self, key: bytes, result: GenerationResult) -> None:
        value = encode_result(key, result)
        if len(value) > _MAX_VALUE_BYTES:
            return
        self._put(key, value)
        if self._shared is not None:
            self._shared.put(key, value)

    async def fetch(self, wanted: dict[bytes, GenerationRequest]) -> None:
        """Copy the results of requests from the shared store into memory."""
        assert self._shared is not None, "there is none"
        values = await self._shared.get(list(wanted))
        for (key, request), value in zip(wanted.items(), values, strict=True):
            await checkpoint()
            if value is None or len(value) > _MAX_VALUE_BYTES:
                continue
            if decode_result(key, value, request, self._vocab_size) is not None:
                self._put(key, value)

    def _put(self, key: bytes, value: bytes) -> None:
        self.memory.put(key, value)
        self._set_bytes(self.memory.num_bytes)


class CallCache:
    """A call's use of a model's cache. Close it at the end of the call.

    Args:
        model: the results of the model.
        tenant: name of the tenant that results belong to; "" for all.
        submit: submits a request to the engine, when the call has room for it.
        now: the engine's clock.
    """

    def __init__(
        self, model: ModelCache, tenant: str, submit: Submit, now: Callable[[], float]
    ) -> None:
        self._model = model
        self._tenant = tenant
        self._submit = submit
        self._now = now
        self._followers: list[Generation] = []
        self._last: tuple[GenerationRequest, bytes | None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether the call has as many followers as it may have; `room` waits for the first."""
        if len(self._followers) >= _MAX_FOLLOWERS:
            self._followers = [each for each in self._followers if each.ended_as is None]
        return len(self._followers) >= _MAX_FOLLOWERS

    async def room(self) -> None:
        """Wait until a follower ends."""
        await self._followers[0].result()

    def find(self, request: GenerationRequest) -> Generation | None:
        """The answer to a request, now or when an equal one ends; None if it must be computed."""
        key = self._key(request)
        if key is None:
            return None
        model = self._model
        if (result := model.result(key, request)) is not None:
            model.hit()
            submitted = EngineRequest(0, request, 0, self._now())
            generation = Generation(submitted, _ENDED, lambda _: None)
            generation.is_cached = True
            generation.finish(without_work(result))
            return generation
        flight = model.flight(key, request.priority)
        if flight is None:
            return None
        model.joined()
        follower = Follower(request, flight, self._submit, self._now)
        self._followers.append(follower.generation)
        return follower.generation

    def computes(self, generation: Generation) -> None:
        """Keep the result of a request that was not found, when it ends."""
        key = self._key(generation.request)
        if key is not None:
            self._model.miss()
            self._model.begin(key, generation)

    async def look_up(self, requests: Sequence[GenerationRequest]) -> None:
        """Ask the shared store, once, for the results of all requests that are not in memory."""
        model, wanted = self._model, dict[bytes, GenerationRequest]()
        for request in requests:
            key = self._key(request)
            if key is None or key in model.memory or model.flight(key, request.priority):
                continue
            wanted[key] = request
        if wanted:
            await model.fetch(wanted)

    def close(self) -> None:
        """Cancel unfinished followers."""
        followers, self._followers = self._followers, []
        for generation in followers:
            generation.cancel()

    def _key(self, request: GenerationRequest) -> bytes | None:
        """The key of a request; None if it can't be cached."""
        if self._last is None or self._last[0] is not request:
            key = self._model.key(self._tenant, request) if can_be_cached(request) else None
            self._last = request, key
        return self._last[1]


class _Ended:
    """The control of a generation that has ended."""

    def stream(self, request_id: int) -> None:
        raise AssertionError("it has ended")

    def cancel(self, request_id: int, error: Exception) -> None:
        raise AssertionError("it has ended")


_ENDED = _Ended()
