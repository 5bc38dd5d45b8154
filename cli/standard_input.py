"""Standard input as an asynchronous stream of lines, read no further than it is consumed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator

_CHUNK_BYTES = 65_536


class InputError(Exception):
    """Standard input can't be read. The message is for the user."""


async def read_lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    r"""The lines from a file descriptor, as many at a time as are available.

    Lines end with \n, which is removed, and nothing else: a carriage return or a Unicode line
    separator belongs to its line. The last line may lack \n.

    Raises:
        InputError: it can't be read.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    wanted = threading.Semaphore(1)  # one chunk may be read ahead

    def read() -> None:
        # os.read, because a thread that hangs in a buffered reader blocks the interpreter's exit.
        chunk: bytes | OSError = b"begin"
        while chunk and not isinstance(chunk, OSError):
            wanted.acquire()
            try:
                chunk = os.read(descriptor, _CHUNK_BYTES)
            except OSError as exc:
                chunk = exc
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)

    # A daemon: on a terminal it may wait for ever.
    threading.Thread(target=read, daemon=True, name="standard input").start()
    begun: list[bytes] = []  # parts of an incomplete line
    while chunk := await chunks.get():
        if isinstance(chunk, OSError):
            raise InputError(f"standard input: {chunk.strerror or chunk}") from chunk
        wanted.release()
        first, *rest = chunk.split(b"\n")
        begun.append(first)
        if rest:
            yield [b"".join(begun), *rest[:-1]]
            begun = [rest[-1]]
    if last := b"".join(begun):
        yield [last]
