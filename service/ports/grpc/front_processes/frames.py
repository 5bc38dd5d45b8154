"""The messages between a server and its front processes: binary frames that all have one shape.

A front process reads what clients send, so what it sends is data only, and nothing in it names code
(as a pickle does).
"""

from __future__ import annotations

import enum
import math
import struct
from collections.abc import Sequence
from typing import NamedTuple

Metadata = Sequence[tuple[str, str | bytes]]

# Length of what follows, kind, call, number, seconds, number of fields; then a length for each
# field, and the fields.
_HEAD = struct.Struct("<IBQIdH")
_BINARY = "-bin"  # ends the keys of metadata that is bytes, as in gRPC

WINDOW_BYTES = 16 * 1024
"""Messages of a stream that the server sends before gRPC has taken the first of them; one more may
exceed it."""
MESSAGE_BYTES = 64
"""Bytes that are counted for a message beside its own."""


class FrameKind(enum.IntEnum):
    """Kinds of frames; in brackets the fields that each has beside the id of the call."""

    OPEN = 1
    """To a front process: listen (the configuration as JSON)."""
    CERTIFICATE = 2
    """To it: use this certificate from the next handshake on (chain, key, client authorities)."""
    ANSWER = 3
    """To it: the answer of a call (number: 1 if SENT is awaited; metadata, message)."""
    MESSAGE = 4
    """To it: a message of a stream (message)."""
    STATUS = 5
    """To it: the end of a stream, or of a call that failed (number: code; metadata, details)."""
    STOP = 6
    """To it: accept no more calls, and end once those in progress have (seconds: the bound)."""
    READY = 7
    """From it: it listens."""
    FAILED = 8
    """From it: it can't listen (message)."""
    CALL = 9
    """From it: a call (number: method; seconds: deadline by the monotonic clock, or infinity; peer,
    metadata, request)."""
    CANCEL = 10
    """From it: the client is gone, or the deadline has passed."""
    WRITTEN = 11
    """From it: gRPC has taken messages of a stream (number: their bytes)."""
    SENT = 12
    """From it: an answer has left, or never will."""
    PING = 13
    """To it: answer with PONG at once."""
    PONG = 14
    """From it: its event loop runs."""


class Frame(NamedTuple):
    """One message.

    Attributes:
        kind: kind of the message.
        call: id of the call, given by the front process.
        number, seconds, fields: values that the kind carries.
    """

    kind: int
    call: int = 0
    number: int = 0
    seconds: float = math.inf
    fields: Sequence[bytes] = ()


def framed(frame: Frame) -> bytes:
    """Encode a frame."""
    kind, call, number, seconds, fields = frame
    count = len(fields)
    lengths = struct.pack(f"<{count}I", *map(len, fields))
    size = _HEAD.size - 4 + len(lengths) + sum(map(len, fields))
    return b"".join((_HEAD.pack(size, kind, call, number, seconds, count), lengths, *fields))


class FrameReader:
    """Decodes frames from bytes that arrive in pieces of any size.

    Attributes:
        num_missing: number of bytes that a frame lacks whose beginning has arrived, if known.
    """

    def __init__(self) -> None:
        self.num_missing = 0
        self._received = bytearray()

    def feed(self, piece: bytes | memoryview) -> list[Frame]:
        """The frames that this piece completes."""
        received = self._received
        received += piece
        frames: list[Frame] = []
        start = self.num_missing = 0
        with memoryview(received) as view:  # a slice of it is no copy
            while len(view) - start >= _HEAD.size:
                size, kind, call, number, seconds, count = _HEAD.unpack_from(view, start)
                end = start + 4 + size
                self.num_missing = max(0, end - len(view))
                if self.num_missing:
                    break
                place = start + _HEAD.size + 4 * count
                fields: list[bytes] = []
                for length in struct.unpack_from(f"<{count}I", view, start + _HEAD.size):
                    fields.append(bytes(view[place : place + length]))
                    place += length
                frames.append(Frame(kind, call, number, seconds, fields))
                start = end
        del received[:start]
        return frames


def fields_of(metadata: Metadata) -> list[bytes]:
    """Metadata as fields: a key, its value, the next key ..."""
    fields: list[bytes] = []
    for key, value in metadata:
        fields += (key.encode(), value if isinstance(value, bytes) else value.encode())
    return fields


def metadata_of(fields: Sequence[bytes]) -> tuple[tuple[str, str | bytes], ...]:
    """The metadata in fields that `fields_of` made."""
    keys = [key.decode() for key in fields[::2]]
    return tuple(
        (key, value if key.endswith(_BINARY) else value.decode())
        for key, value in zip(keys, fields[1::2], strict=True)
    )
