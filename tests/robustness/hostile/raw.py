"""Hostile bytes: requests and frames whose cost is in their number, not in their size."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_PAUSE_SECONDS = 0.01
_ANSWER_SECONDS = 5.0


@dataclass(frozen=True)
class RawAttack:
    """Bytes that connections send, one connection after another.

    Attributes:
        port: "http", "metrics" or "grpc".
        head: the first bytes of a connection.
        piece: bytes that follow, a number of times.
        times: that number.
        at_once: number of connections at a time.
        reads: whether the client reads what the server sends.
        seconds: time from the first connection until all are closed.
    """

    port: str
    head: bytes
    piece: bytes
    times: int = 15
    at_once: int = 8
    reads: bool = True
    seconds: float = 20.0


async def send_raw(address: str, attack: RawAttack, codes: Counter[str]) -> None:
    """Send the bytes until cancelled; counts the outcomes of connections in `codes`."""

    async def work() -> None:
        while True:
            codes[await _outcome(address, attack)] += 1
            await asyncio.sleep(_PAUSE_SECONDS)

    await asyncio.gather(*(work() for _ in range(attack.at_once)))


async def _outcome(address: str, attack: RawAttack) -> str:
    """Send all bytes on one connection; the status of the first answer, or how it ended."""
    host, _, port = address.rpartition(":")
    try:
        reader, writer = await asyncio.open_connection(host, int(port))
    except OSError as exc:
        return type(exc).__name__
    answer = asyncio.ensure_future(_first_answer(reader)) if attack.reads else None
    try:
        with contextlib.suppress(ConnectionError):
            writer.write(attack.head)
            for _ in range(attack.times):
                writer.write(attack.piece)
                await writer.drain()
        if answer is None:
            await asyncio.sleep(_ANSWER_SECONDS)
            return "not read"
        async with asyncio.timeout(_ANSWER_SECONDS):
            return await answer
    except TimeoutError:
        return "no answer"
    finally:
        if answer is not None:
            answer.cancel()
        writer.transport.abort()


async def _first_answer(reader: asyncio.StreamReader) -> str:
    """The status that a connection's first bytes tell, once it has ended."""
    first = b""
    with contextlib.suppress(ConnectionError):
        while received := await reader.read(2**16):
            first = first or received
    words = first[:20].split()
    is_status = len(words) > 1 and words[0].startswith(b"HTTP/1.")
    return words[1].decode() if is_status else "frames" if first else "closed"


def _post(path: str, *headers: str, host: str = "localhost") -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"host: {host}", *headers, "", ""]
    return "\r\n".join(lines).encode()


def _chunks(
    path: str = "/v1/translate",
    chunk: bytes = b"1\r\n \r\n",
    port: str = "http",
    host: str = "localhost",
) -> RawAttack:
    """A body in chunks, 256 KiB at a time, about 31 MB on eight connections."""
    kinds = "content-type: application/json", "transfer-encoding: chunked"
    return RawAttack(port, _post(path, *kinds, host=host), chunk * (2**18 // len(chunk)))


def _trailers() -> RawAttack:
    head = _post("/v1/translate", "content-type: application/json", "transfer-encoding: chunked")
    return RawAttack("http", head + b"2\r\n{}\r\n0\r\n", b"a:\r\n" * 2**16)


def _header_lines(port: str = "http") -> RawAttack:
    """Lines of headers, as a whole request in one read, then without end."""
    request = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n" + b"a:\n" * 80_000 + b"\r\n"
    return RawAttack(port, b"", request)


def _pipelined(path: str, port: str = "http", at_once: int = 8, *, reads: bool = True) -> RawAttack:
    """Small requests in one read."""
    request = f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    piece = request * (2**18 // len(request))
    return RawAttack(port, b"", piece, at_once=at_once, reads=reads)


_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _CONTINUATION = 0, 1, 3, 4, 6, 9
_END_HEADERS = 4
# In HPACK: literals without indexing, with indexed names where the static table has them.
_CALL = (
    b"\x83\x86"  # :method POST, :scheme http
    + b"\x04\x29/dragoman.v1.TranslationService/Translate"
    + b"\x01\x01a"  # :authority
    + b"\x0f\x10\x10application/grpc"
    + b"\x00\x02te\x08trailers"
)


def _frame(kind: int, payload: bytes = b"", stream: int = 0, flags: int = 0) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _frames(piece: bytes, *, head: bytes = b"") -> RawAttack:
    """Frames, 256 KiB at a time, on a connection to the gRPC port."""
    return RawAttack("grpc", _PREFACE + _frame(_SETTINGS) + head, piece * (2**18 // len(piece)))


def _tiny_data() -> RawAttack:
    """A message of a megabyte, in frames of one byte."""
    head = _frame(_HEADERS, _CALL, 1, _END_HEADERS) + _frame(_DATA, b"\0\0\x10\0\0", 1)
    return _frames(_frame(_DATA, b"\n", 1), head=head)


def _resets() -> RawAttack:
    """Calls that are reset at once."""
    calls = b"".join(
        _frame(_HEADERS, _CALL, stream, _END_HEADERS) + _frame(_RST_STREAM, b"\0\0\0\x08", stream)
        for stream in range(1, 60_000, 2)
    )
    return RawAttack("grpc", _PREFACE + _frame(_SETTINGS), calls, times=1)


RAW_ATTACKS: Mapping[str, Callable[[], RawAttack]] = {
    "idle": lambda: RawAttack("http", b"", b"", at_once=1, reads=False),  # to compare with
    "chunks": _chunks,
    "chunks-front": lambda: _chunks("/translate"),
    "chunks-missing": lambda: _chunks("/nowhere"),
    "chunks-host": lambda: _chunks(host="evil.example"),
    "chunks-metrics": lambda: _chunks("/metrics", port="metrics"),
    "chunk-extensions": lambda: _chunks(chunk=b"1;a\r\n \r\n"),
    "trailers": _trailers,
    "header-lines": _header_lines,
    "header-lines-metrics": lambda: _header_lines("metrics"),
    "pipelined": lambda: _pipelined("/nowhere"),
    "pipelined-connections": lambda: _pipelined("/nowhere", at_once=500),
    "pipelined-metrics": lambda: _pipelined("/livez", "metrics"),
    "unread": lambda: _pipelined("/openapi.json", reads=False),
    "unread-metrics": lambda: _pipelined("/metrics", "metrics", reads=False),
    "frames-data": _tiny_data,
    "frames-ping": lambda: _frames(_frame(_PING, b"12345678")),
    "frames-settings": lambda: _frames(_frame(_SETTINGS, b"\0\4\0\0\xff\xff")),
    "frames-continuation": lambda: _frames(
        _frame(_CONTINUATION, b"", 1), head=_frame(_HEADERS, _CALL, 1)
    ),
    "frames-reset": _resets,
}
