"""Standard input as an asynchronous stream of lines, without reading ahead of who consumes it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator

_CHUNK_BYTES = 65_536


async def read_lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    r"""The lines that come from a file descriptor, as many at a time as are there.

    Lines end with \n, which is taken off, and with nothing else: a carriage return or a Unicode
    line separator belongs to its line. A last line without \n is a line too.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue(maxsize=1)

    def read() -> None:
        # os.read, since a thread that hangs in a buffered reader blocks the interpreter's exit.
        while True:
            chunk = os.read(descriptor, _CHUNK_BYTES)
            asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
            if not chunk:
                return

    # A daemon: at a terminal it may wait for a line that never comes.
    threading.Thread(target=read, daemon=True, name="standard input").start()
    begun: list[bytes] = []  # parts of a line whose end has not come
    while chunk := await chunks.get():
        first, *rest = chunk.split(b"\n")
        begun.append(first)
        if rest:
            yield [b"".join(begun), *rest[:-1]]
            begun = [rest[-1]]
    if last := b"".join(begun):
        yield [last]
