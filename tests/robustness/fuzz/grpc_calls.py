"""Calls over gRPC: valid and invalid messages, metadata, deadlines, cancellations."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import grpc
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from service.fronts.google_v3.messages import POOL
from service.fronts.google_v3.messages import SERVICE as GOOGLE
from tests.robustness.fuzz.documents import TARGETS as DOCUMENTS
from tests.robustness.fuzz.messages import random_message, wire_bytes
from tests.robustness.fuzz.mutations import changed_bytes, random_bytes
from tests.robustness.fuzz.requests import SERVICE
from tests.robustness.fuzz.served import check_text
from tests.robustness.fuzz.server import KEY, FuzzedServer
from tests.robustness.fuzz.target import Finding

_CHANNELS = 4
_MAX_EVENTS = 2_000
DOCUMENTED = frozenset(
    {
        *("OK", "INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "UNAUTHENTICATED"),
        *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "UNIMPLEMENTED"),
    }
)
"""Statuses that proto/README.md lists for a server that is up."""


@dataclass(frozen=True)
class GrpcInput:
    """A call.

    Attributes:
        method: path of the method.
        messages: serialized messages of the client; most methods take one.
        streams_in, streams_out: whether the client sends and receives a stream.
        metadata: metadata, with or without a key.
        timeout: timeout in seconds.
        cancel_after: time of the cancellation in seconds; None to wait for the end.
    """

    method: str
    messages: Sequence[bytes]
    streams_in: bool
    streams_out: bool
    metadata: Sequence[tuple[str, str | bytes]]
    timeout: float
    cancel_after: float | None


class GrpcCalls:
    """The gRPC port."""

    name: ClassVar[str] = "grpc"
    share: ClassVar[float] = 0.04
    what: ClassVar[str] = (
        "gRPC: all methods, Google's v3, health and reflection: messages, metadata, deadlines, "
        "cancellations"
    )
    at_once: ClassVar[int] = 32

    def __init__(self) -> None:
        pools = ((descriptor_pool.Default(), SERVICE), (POOL, GOOGLE))
        self._methods = [
            (f"/{service}/{method.name}", method.input_type, method.server_streaming)
            for pool, service in pools
            for method in pool.FindServiceByName(service).methods
        ]
        health: Any = health_pb2.HealthCheckRequest.DESCRIPTOR
        reflection: Any = reflection_pb2.ServerReflectionRequest.DESCRIPTOR
        self._methods += [
            ("/grpc.health.v1.Health/Check", health, False),
            ("/grpc.health.v1.Health/Watch", health, True),
            ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", reflection, True),
            ("/dragoman.v1.TranslationService/None", health, False),
        ]
        self._documents = [make() for make in DOCUMENTS]
        self._channels: list[grpc.aio.Channel] = []

    def generate(self, rng: random.Random) -> GrpcInput:
        """Generate a call; about half of the requests are valid."""
        # Methods that translate are chosen more often than those that list.
        weights = [6 if "ranslate" in path else 2 for path, _, _ in self._methods]
        [(path, kind, streams)] = rng.choices(self._methods, weights)
        if path.endswith("/TranslateDocument") and rng.random() < 0.7:
            data = self._document(rng)
        else:
            data = wire_bytes(rng, kind)
        messages = [data]
        streams_in = "Reflection" in path or rng.random() < 0.02
        if streams_in:
            messages = [wire_bytes(rng, kind) for _ in range(rng.choice((0, 1, 2, 3)))]
        timeout = rng.choice((0.001, 0.05, *(20.0,) * 8))
        return GrpcInput(
            path,
            messages,
            streams_in,
            streams if rng.random() < 0.98 else not streams,
            self._metadata(rng),
            0.1 if path.endswith("/Watch") or streams_in else timeout,
            rng.choice((0.0, 0.002, 0.05)) if rng.random() < 0.1 else None,
        )

    def _document(self, rng: random.Random) -> bytes:
        target = rng.choice(self._documents)
        file_name, data = target.generate(rng)
        [kind] = [kind for path, kind, _ in self._methods if path.endswith("/TranslateDocument")]
        request: Any = random_message(rng, kind)
        request.file_name, request.content = file_name, data[: 2 * 2**20]
        request.target_language_code, request.model = "de", ""
        encoded: bytes = request.SerializeToString()
        return encoded if rng.random() < 0.9 else changed_bytes(rng, encoded)

    def _metadata(self, rng: random.Random) -> list[tuple[str, str | bytes]]:
        metadata: list[tuple[str, str | bytes]] = [("x-api-key", KEY)]
        odd = ("", " ", "Bearer", f"Bearer {KEY}", "drg_", "a" * 4_000, "%00", "~!@#$^&*()", KEY)
        if rng.random() < 0.1:
            name = rng.choice(("authorization", "x-api-key", "x-goog-api-key"))
            metadata = [(name, rng.choice(odd))] * rng.choice((0, 1, 2))
        for _ in range(rng.choice((0, 0, 0, 1, 3))):
            name = rng.choice(("x-client-id", "x-priority", "traceparent", "x-request-id", "x-odd"))
            values = (
                "high",
                "low",
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                *odd,
            )
            metadata.append((name, rng.choice(values)))
        if rng.random() < 0.05:
            metadata.append(("x-odd-bin", random_bytes(rng)))
        return metadata

    @contextlib.asynccontextmanager
    async def connected(self, server: Any) -> AsyncIterator[None]:
        """Open channels that calls take in turn."""
        async with contextlib.AsyncExitStack() as stack:
            self._channels = [
                await stack.enter_async_context(
                    grpc.aio.insecure_channel(
                        server.address,
                        options=[("dragoman.connection", number), ("grpc.enable_retries", 0)],
                    )
                )
                for number in range(_CHANNELS)
            ]
            yield

    async def run(self, given: GrpcInput, server: FuzzedServer) -> str:
        """Make the call."""
        channel = self._channels[len(given.messages[0]) % _CHANNELS if given.messages else 0]
        make: Callable[[str], Any] = {
            (False, False): channel.unary_unary,
            (False, True): channel.unary_stream,
            (True, False): channel.stream_unary,
            (True, True): channel.stream_stream,
        }[given.streams_in, given.streams_out]
        metadata = [
            (name, value.replace(KEY, server.key) if isinstance(value, str) else value)
            for name, value in given.metadata
        ]
        sent: Any = iter(given.messages) if given.streams_in else given.messages[0]
        call: Any = make(given.method)(sent, timeout=given.timeout, metadata=metadata)
        is_cancelled = given.cancel_after is not None
        if given.cancel_after is not None:
            asyncio.get_running_loop().call_later(given.cancel_after, call.cancel)
        code, message = "OK", ""
        try:
            if given.streams_out:
                count = 0
                async for _ in call:
                    count += 1
                    if count > _MAX_EVENTS:
                        raise Finding("a stream without end", given.method)
            else:
                await call
        except grpc.aio.AioRpcError as exc:
            code, message = exc.code().name, exc.details() or ""
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Of the call: cancelled as asked, or ended while its client still sent messages.
            found = await call.code()
            code, message = found.name, await call.details() or ""
        finally:
            call.cancel()
        return judge_status(code, message, is_cancelled=is_cancelled)


# Messages of gRPC's client if a call ends while it still sends messages.
_OF_THE_CLIENT = ("Internal error from Core", "Locally cancelled by application!")


def judge_status(code: str, message: str, *, is_cancelled: bool) -> str:
    """The outcome of a call that ended with a status.

    Raises:
        Finding: the status is not documented, or its message shows internals of the server.
    """
    check_text(message, "a status message")
    if message in _OF_THE_CLIENT:
        return "ended early"
    is_documented = code in DOCUMENTED or (code == "CANCELLED" and is_cancelled)
    if not is_documented:
        raise Finding(f"a call ended with {code}: {message[:60]}", message)
    return code
