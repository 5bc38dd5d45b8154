"""Raw HTTP/2 to the gRPC port: a session that `h2` begins, and frames that no client should send.

The answer is not checked, only that the server lives, translates as before, and takes no more
resources than before.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import hpack

from dragoman.v1 import translation_pb2 as pb
from tests.robustness.fuzz.mutations import changed_bytes, random_bytes
from tests.robustness.fuzz.server import KEY, TRANSLATE, FuzzedServer

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW, CONTINUATION = (
    range(10)
)
END_STREAM, END_HEADERS, PADDED = 1, 4, 8
_KINDS = (*range(10), 10, 12, 255)
_READ_SECONDS = 0.3
_MOST_READ_BYTES = 2**20


@dataclass(frozen=True)
class Http2Input:
    """Bytes to send on one connection.

    Attributes:
        abuses: names of the abuses, in order.
        parts: parts of the bytes; between two, the server's bytes are read.
        is_aborted: whether the connection is reset at the end instead of closed.
    """

    abuses: Sequence[str]
    parts: Sequence[bytes]
    is_aborted: bool


def frame(
    kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"", length: int = -1
) -> bytes:
    """A frame, possibly with a wrong length."""
    size = len(payload) if length < 0 else length
    head = struct.pack(">I", size & 0xFFFFFF)[1:]
    return (
        head + bytes((kind & 255, flags & 255)) + struct.pack(">I", stream & 0xFFFFFFFF) + payload
    )


class Http2Session:
    """The client's side of a connection, as `h2` writes it, with streams of Translate calls."""

    def __init__(self) -> None:
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        self._connection = h2.connection.H2Connection(config)
        self._connection.initiate_connection()
        self._encoder = hpack.Encoder()
        self.next_stream = 1

    def begin(self) -> bytes:
        """The preface and the settings."""
        return self._connection.data_to_send()

    def call(self, *, is_complete: bool = True, texts: Sequence[str] = ("A dog.",)) -> bytes:
        """Add a call; without its end, the stream stays half open."""
        stream = self._connection.get_next_available_stream_id()
        self._connection.send_headers(stream, self.headers())
        message = pb.TranslateRequest(
            contents=texts, source_language_code="en", target_language_code="de"
        ).SerializeToString()
        body = b"\0" + struct.pack(">I", len(message)) + message
        window = self._connection.local_flow_control_window(stream)
        self._connection.send_data(stream, body[: min(window, 16_000)], end_stream=is_complete)
        self.next_stream = stream + 2
        return self._connection.data_to_send()

    @staticmethod
    def headers(*further: tuple[str, str]) -> list[tuple[str, str]]:
        """Headers of a call."""
        return [
            (":method", "POST"), (":scheme", "http"), (":path", TRANSLATE), (":authority",
            "localhost"),
            ("content-type", "application/grpc"), ("te", "trailers"), ("x-api-key", KEY), *further,
        ]  # fmt: skip

    def block(self, *further: tuple[str, str]) -> bytes:
        """Such headers, compressed without the connection's table."""
        return hpack.Encoder().encode(self.headers(*further))


Abuse = Callable[[random.Random, Http2Session], bytes]


def _reset_flood(rng: random.Random, session: Http2Session) -> bytes:
    sent = bytearray()
    stream = session.next_stream
    block = session.block()
    for _ in range(rng.choice((10, 100, 1_000))):
        sent += frame(HEADERS, END_HEADERS | rng.choice((0, END_STREAM)), stream, block)
        sent += frame(RST_STREAM, 0, stream, struct.pack(">I", rng.choice((0, 8, 2**32 - 1))))
        stream += 2
    return bytes(sent)


def _half_open(rng: random.Random, session: Http2Session) -> bytes:
    block, first = session.block(), session.next_stream
    count = rng.choice((1, 50, 500))
    return b"".join(
        frame(HEADERS, END_HEADERS, first + 2 * index, block)
        + (frame(DATA, 0, first + 2 * index, b"\0\0\0\xff\xff") if rng.random() < 0.5 else b"")
        for index in range(count)
    )


def _settings(rng: random.Random, session: Http2Session) -> bytes:
    sent = bytearray()
    for _ in range(rng.choice((1, 10, 500))):
        values = b"".join(
            struct.pack(
                ">HI", rng.choice((1, 2, 3, 4, 5, 6, 8, 0, 99)),
                rng.choice((0, 1, 2, 100, 16_384, 65_535, 2**24, 2**31 - 1, 2**31, 2**32 - 1)),
            )
            for _ in range(rng.choice((0, 1, 1, 2, 6)))
        )  # fmt: skip
        sent += frame(SETTINGS, rng.choice((0, 0, 0, 1)), rng.choice((0, 0, 0, 1)), values)
    return bytes(sent)


def _windows(rng: random.Random, session: Http2Session) -> bytes:
    sent = bytearray()
    for _ in range(rng.choice((1, 5, 500))):
        size = rng.choice((0, 1, 65_535, 2**31 - 1, 2**31, 2**32 - 1))
        sent += frame(
            WINDOW, 0, rng.choice((0, 0, 1, session.next_stream)), struct.pack(">I", size)
        )
    return bytes(sent)


def _header_bomb(rng: random.Random, session: Http2Session) -> bytes:
    stream, kind = session.next_stream, rng.randrange(5)
    if kind == 0:  # one name in the table, a thousand times
        block = session.block(("x-a", "a" * 3_000)) + b"\xbe" * rng.choice((100, 4_000, 16_000))
        return frame(HEADERS, END_HEADERS | END_STREAM, stream, block)
    if kind == 1:  # without end
        parts = [frame(HEADERS, 0, stream, session.block())]
        literal = b"\0\x03x-b" + b"\x7f\x81\x0f" + b"b" * 2_048
        parts += [frame(CONTINUATION, 0, stream, literal[:16_000])] * rng.choice((10, 200))
        return b"".join(parts)
    if kind == 2:
        names = (
            (f"x-{index}", "a" * rng.choice((0, 10, 1_000)))
            for index in range(rng.choice((100, 500)))
        )
        block = session.block(*names)
        pieces = [block[start : start + 16_000] for start in range(0, len(block), 16_000)]
        sent = frame(HEADERS, 0, stream, pieces[0])
        for piece in pieces[1:]:
            sent += frame(CONTINUATION, 0, stream, piece)
        return sent + frame(CONTINUATION, END_HEADERS, stream, b"")
    if kind == 3:  # the size of the table, again and again; integers without end
        odd = rng.choice(
            (b"\x3f\xe1\x1f" * 1_000, b"\x3f" + b"\xff" * 20, b"\xff" * 50, b"\x80", b"\0")
        )
        return frame(HEADERS, END_HEADERS | END_STREAM, stream, odd + session.block())
    empty = [frame(CONTINUATION, 0, stream, b"")] * rng.choice((10, 5_000))
    return frame(HEADERS, 0, stream, session.block()) + b"".join(empty)


def _out_of_order(rng: random.Random, session: Http2Session) -> bytes:
    sent = bytearray()
    for _ in range(rng.choice((1, 3, 20))):
        stream = rng.choice(
            (0, 1, 2, 3, session.next_stream, 2**31 - 1, 2**31 + 1, rng.getrandbits(32))
        )
        payload = rng.choice((b"", session.block(), random_bytes(rng, 50), b"\0" * 8, b"\xff" * 9))
        lies = rng.choice((-1, -1, -1, 0, len(payload) + 1, 2**24 - 1))
        sent += frame(
            rng.choice(_KINDS), rng.choice((0, 1, 4, 5, 8, 0x20, 255)), stream, payload, lies
        )
    return bytes(sent)


def _flood(rng: random.Random, session: Http2Session) -> bytes:
    one = rng.choice(
        (
            frame(PING, 0, 0, b"12345678"), frame(PRIORITY, 0, 1, b"\0\0\0\1\xff"),
            frame(GOAWAY, 0, 0, b"\0" * 8), frame(200, 0, 0, b"x"), frame(DATA, 0, 1, b""),
            frame(WINDOW, 0, 0, b"\0\0\0\1"), frame(SETTINGS, 0, 0, b""),
            frame(RST_STREAM, 0, 1, b"\0\0\0\x08"),
        )
    )  # fmt: skip
    return one * rng.choice((10, 1_000, 10_000))


def _bad_headers(rng: random.Random, session: Http2Session) -> bytes:
    wrong = [
        (":path", rng.choice(("", "/", "x", "/a/b/c", "/dragoman.v1.TranslationService/None"))),
        (":method", rng.choice(("GET", "", "PO ST"))), (":scheme", "ftp"), ("te", "gzip"),
        ("content-type", rng.choice(("text/plain", "", "application/grpc+x"))), ("connection",
        "close"),
        ("grpc-timeout", rng.choice(("", "1", "-1S", "99999999999H", "1x"))), ("X-UPPER", "a"),
        ("grpc-encoding", rng.choice(("gzip", "x", "identity"))), ("content-length", "-1"),
        (":odd", "x"),
        ("grpc-accept-encoding", ","), ("x-bin", "!"), ("x-odd-bin", "=="), ("host", "\r\n"), ("",
        ""),
    ]  # fmt: skip
    found = session.headers()
    for name, value in rng.sample(wrong, rng.randint(1, 4)):
        kept = [pair for pair in found if pair[0] != name]
        found = [(name, value), *kept] if rng.random() < 0.7 else [*kept, (name, value)]
    if rng.random() < 0.3:
        found = rng.sample(found, rng.randint(0, len(found)))
    block = hpack.Encoder().encode(found)
    stream = session.next_stream
    data = rng.choice(
        (b"", b"\1\0\0\0\0", b"\0\xff\xff\xff\xff", b"\0\0\0\0\1\xff", b"\2", random_bytes(rng))
    )
    return frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, data)


ABUSES: dict[str, Abuse] = {
    "reset flood": _reset_flood,
    "half-open streams": _half_open,
    "settings": _settings,
    "windows": _windows,
    "header bomb": _header_bomb,
    "out of order": _out_of_order,
    "flood": _flood,
    "bad headers": _bad_headers,
}


class Http2Frames:
    """The gRPC port, frame by frame."""

    name: ClassVar[str] = "http2"
    share: ClassVar[float] = 0.004
    what: ClassVar[str] = "HTTP/2: " + ", ".join(ABUSES) + ", changed sessions, random bytes"
    at_once: ClassVar[int] = 8

    def generate(self, rng: random.Random) -> Http2Input:
        """Generate a session of valid calls with abuses between them, or changed bytes of one."""
        session = Http2Session()
        parts = [session.begin()]
        if rng.random() < 0.05:
            parts = [rng.choice((b"", PREFACE[:10], PREFACE, random_bytes(rng), PREFACE + PREFACE))]
        names = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            if rng.random() < 0.5:
                parts.append(session.call(is_complete=rng.random() < 0.8))
            names.append(rng.choice(list(ABUSES)))
            parts.append(ABUSES[names[-1]](rng, session))
        if rng.random() < 0.2:
            names.append("changed")
            parts = [changed_bytes(rng, b"".join(parts)[:20_000])]
        return Http2Input(names, parts, rng.random() < 0.5)

    @contextlib.asynccontextmanager
    async def connected(self, server: Any) -> AsyncIterator[None]:
        """Share nothing: each input has a connection of its own."""
        yield

    async def run(self, given: Http2Input, server: FuzzedServer) -> str:
        """Send the parts, and read the answers between and after them."""
        host, _, port = server.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        received, is_closed = bytearray(), False
        key = server.key.encode()
        try:
            for part in given.parts:
                with contextlib.suppress(ConnectionError):
                    writer.write(part.replace(KEY.encode(), key))
                    async with asyncio.timeout(5):
                        await writer.drain()
                is_closed = await _read(reader, received)
                if is_closed:
                    break
        except TimeoutError:
            return "not read"  # the server stopped reading: its window is full
        finally:
            if given.is_aborted:
                writer.transport.abort()
            else:
                writer.close()
        return outcome_of(bytes(received), is_closed=is_closed)


async def _read(reader: asyncio.StreamReader, received: bytearray) -> bool:
    """Read available bytes; returns whether the server has closed the connection."""
    with contextlib.suppress(TimeoutError):
        while len(received) < _MOST_READ_BYTES:
            try:
                async with asyncio.timeout(_READ_SECONDS):
                    data = await reader.read(65536)
            except ConnectionError:
                return True
            if not data:
                return True
            received += data
    return False


def outcome_of(received: bytes, *, is_closed: bool) -> str:
    """The server's reaction, by the last frames that it sent, read by `h2`."""
    config = h2.config.H2Configuration(client_side=True, header_encoding=None)
    connection = h2.connection.H2Connection(config)
    connection.initiate_connection()
    for stream in range(1, 40, 2):
        connection.send_headers(stream, Http2Session.headers())
    kinds: set[str] = set()
    try:
        for event in connection.receive_data(received):
            if isinstance(event, h2.events.ConnectionTerminated):
                kinds.add("went away")
            elif isinstance(event, h2.events.StreamReset):
                kinds.add("reset")
            elif isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                kinds.add("answered")
    except (h2.exceptions.ProtocolError, hpack.HPACKError):
        kinds.add("answered")  # streams that were not opened here
    ending = "closed" if is_closed else "open"
    return ", ".join([*sorted(kinds), ending])
