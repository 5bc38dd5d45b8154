"""A steady load of several kinds of clients, with an account of all calls."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from dragoman.client import AsyncClient
from dragoman.results import TranslationError
from dragoman.tls import Tls, open_channel
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from tests.robustness.faults.account import NO_CONNECTION, CallAccount

DEADLINE_SECONDS = 20.0
GRACE_SECONDS = 10.0  # after its deadline, a call is said to hang
_PAUSE_SECONDS = 0.02  # of a client that was refused
# Connects again soon: the default waits up to two minutes. An attempt to connect may take as long
# as a call, since a busy machine answers late.
CHANNEL_OPTIONS = [
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", int(DEADLINE_SECONDS * 1000)),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
]


@dataclass(frozen=True)
class Place:
    """The addresses of a server, and options for calling it.

    Attributes:
        address: HOST:PORT of gRPC.
        http_port: port of HTTP on loopback; 0 for none.
        tls: TLS options; None for plain text.
        api_key: API key of every call.
    """

    address: str
    http_port: int = 0
    tls: Tls | None = None
    api_key: str = ""

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of a gRPC call."""
        return (("authorization", f"Bearer {self.api_key}"),) if self.api_key else ()

    def channel(self) -> Any:
        """A channel that does not retry."""
        return open_channel(grpc.aio, self.address, self.tls, CHANNEL_OPTIONS)


class FaultLoad:
    """Clients that call one after another until the load ends.

    Args:
        place: addresses of the server.
        account: account of the calls.
        seed: random seed of the texts' order.
        clients: number of clients of each kind: "unary" and "stream" (gRPC without retries),
            "retrying" (our client), "http".
    """

    def __init__(
        self, place: Place, account: CallAccount, seed: int, clients: Sequence[str]
    ) -> None:
        self.account = account
        self._place = place
        self._seed = seed
        self._clients = clients
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[FaultLoad]:
        """Run the clients; at the end, wait for the calls in progress."""
        kinds: dict[str, Callable[[random.Random], Awaitable[None]]] = {
            "unary": self._unary,
            "stream": self._stream,
            "retrying": self._retrying,
            "http": self._http,
        }
        self._tasks = [
            asyncio.ensure_future(kinds[kind](random.Random(self._seed * 100 + number)))
            for number, kind in enumerate(self._clients)
        ]
        try:
            yield self
        finally:
            self._is_over = True
            await asyncio.gather(*self._tasks)

    async def calls(self, count: int, seconds: float = 60.0) -> None:
        """Wait for a number of further correct answers.

        Raises:
            TimeoutError: they did not arrive within `seconds`.
        """
        enough = self.account.right + count
        async with asyncio.timeout(seconds):
            while self.account.right < enough and not self.account.finds:
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _unary(self, rng: random.Random) -> None:
        async with self._place.channel() as channel:
            stub: Any = TranslationServiceStub(channel)
            await self._repeat("unary", rng, lambda text: unary(stub, text, self._place.metadata))

    async def _stream(self, rng: random.Random) -> None:
        async with self._place.channel() as channel:
            stub: Any = TranslationServiceStub(channel)
            await self._repeat("stream", rng, lambda text: stream(stub, text, self._place.metadata))

    async def _retrying(self, rng: random.Random) -> None:
        place = self._place
        async with AsyncClient(
            place.address, timeout=DEADLINE_SECONDS, tls=place.tls, api_key=place.api_key
        ) as client:

            async def call(text: str) -> str:
                try:
                    [found] = (await client.translate([text])).translations
                except TranslationError as exc:
                    raise CallRefused(exc.code.name, str(exc)) from exc
                if found.error:
                    raise CallRefused(found.error.code.name, str(found.error))
                return found.text

            await self._repeat("retrying", rng, call)

    async def _http(self, rng: random.Random) -> None:
        await self._repeat("http", rng, lambda text: asyncio.to_thread(post, self._place, text))

    async def _repeat(
        self, kind: str, rng: random.Random, call: Callable[[str], Awaitable[str]]
    ) -> None:
        texts = sorted(self.account.expected)
        while not self._is_over:
            if not await account_for(self.account, kind, rng.choice(texts), call):
                await asyncio.sleep(_PAUSE_SECONDS)


class CallRefused(Exception):
    """A call ended with an error.

    Attributes:
        code: code of gRPC, or of HTTP as text.
        got: text that a stream had sent before.
    """

    def __init__(self, code: str, message: str, got: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.got = got


async def account_for(
    account: CallAccount, kind: str, text: str, call: Callable[[str], Awaitable[str]]
) -> bool:
    """Make a call and record its outcome; returns whether it was answered."""
    try:
        async with asyncio.timeout(DEADLINE_SECONDS + GRACE_SECONDS):
            account.answered(kind, text, await call(text))
        return True
    except CallRefused as exc:
        account.failed(kind, exc.code, str(exc), text=text, got=exc.got)
    except TimeoutError:
        account.hung(kind, GRACE_SECONDS)
    return False


async def unary(stub: Any, text: str, metadata: Sequence[tuple[str, str]] = ()) -> str:
    """A translation by `Translate`. Raises CallRefused."""
    request = pb.TranslateRequest(contents=[text])
    try:
        response = await stub.Translate(request, timeout=DEADLINE_SECONDS, metadata=metadata)
    except grpc.aio.AioRpcError as exc:
        raise CallRefused(exc.code().name, exc.details() or "") from exc
    [translation] = response.translations
    if translation.status.code:
        raise CallRefused(code_name(translation.status.code), translation.status.message)
    return str(translation.translated_text)


async def stream(stub: Any, text: str, metadata: Sequence[tuple[str, str]] = ()) -> str:
    """The joined pieces of `StreamTranslate`. Raises CallRefused."""
    got, is_whole = "", False
    call = stub.StreamTranslate(
        pb.StreamTranslateRequest(content=text), timeout=DEADLINE_SECONDS, metadata=metadata
    )
    try:
        async for event in call:
            got += event.delta.text
            is_whole = event.HasField("summary")
    except grpc.aio.AioRpcError as exc:
        raise CallRefused(exc.code().name, exc.details() or "", got) from exc
    if not is_whole:
        raise CallRefused("OK", "the stream ended without its summary", got)
    return got


def post(place: Place, text: str) -> str:
    """A translation over HTTP, on a connection of its own. Raises CallRefused, TimeoutError."""
    seconds = DEADLINE_SECONDS + GRACE_SECONDS
    connection: http.client.HTTPConnection
    if place.tls is None:
        connection = http.client.HTTPConnection("127.0.0.1", place.http_port, timeout=seconds)
    else:
        context = ssl.create_default_context(cafile=place.tls.ca)
        connection = http.client.HTTPSConnection(
            "127.0.0.1", place.http_port, timeout=seconds, context=context
        )
    headers = {
        "content-type": "application/json",
        "grpc-timeout": f"{DEADLINE_SECONDS:.0f}S",
        **dict(place.metadata),
    }
    try:
        connection.request("POST", "/v1/translate", json.dumps({"contents": [text]}), headers)
        response = connection.getresponse()
        body = response.read()
    except TimeoutError:
        raise
    except (OSError, http.client.HTTPException) as exc:
        raise CallRefused(NO_CONNECTION, repr(exc)) from exc
    finally:
        connection.close()
    if response.status != 200:
        raise CallRefused(str(response.status), body.decode(errors="replace")[:200])
    [translation] = json.loads(body)["translations"]
    if code := translation.get("status", {}).get("code"):
        raise CallRefused(code_name(code), translation["status"].get("message", ""))
    return str(translation.get("translatedText", ""))


def code_name(number: int) -> str:
    """The name of a gRPC code."""
    return next(code.name for code in grpc.StatusCode if code.value[0] == number)
