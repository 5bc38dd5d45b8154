"""The connection between a server and one of its front processes, the same on both sides."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from service.ports.grpc.front_processes.frames import Frame, FrameReader, framed

# Bytes that are read in one iteration of the event loop: the calls in them all begin in the next
# iteration, which takes some 50 microseconds and 100 bytes for each. The rest of a large frame is
# read in larger pieces.
_PIECE_BYTES = 4 * 1024
_LARGE_PIECE_BYTES = 256 * 1024


class FrameConnection(asyncio.BufferedProtocol):
    """Sends and receives frames; those of one iteration of the event loop leave together.

    Args:
        on_frame: called with each frame that arrives.
        on_end: called once the other side has closed the connection, or has died.
    """

    def __init__(self, on_frame: Callable[[Frame], None], on_end: Callable[[], None]) -> None:
        self._on_frame = on_frame
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._piece = memoryview(bytearray(_LARGE_PIECE_BYTES))
        self._reader = FrameReader()
        self._unsent: list[bytes] = []
        self._sending_large = asyncio.Lock()
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._transport: asyncio.Transport

    @classmethod
    async def over(
        cls,
        connected: socket.socket,
        on_frame: Callable[[Frame], None],
        on_end: Callable[[], None],
    ) -> FrameConnection:
        """A connection over a connected socket, which it owns."""
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(lambda: cls(on_frame, on_end), sock=connected)
        return made

    def send(self, frame: Frame) -> None:
        """Send a frame, unless the connection has ended."""
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(framed(frame))

    async def send_large(self, frame: Frame) -> None:
        """Send a frame once the other side has taken those before it, one such frame at a time.

        So small frames wait for one large frame at most.
        """
        async with self._sending_large:
            await self._can_write.wait()
            self.send(frame)
            self._flush()

    def close(self) -> None:
        """End the connection once everything has been sent."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and not self._transport.is_closing():
            # Not `writelines`: early releases of Python 3.12 and 3.13 do not pause writing there.
            self._transport.write(b"".join(unsent))

    # --- called by asyncio -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes."""
        return self._piece[: max(_PIECE_BYTES, self._reader.num_missing)]

    def buffer_updated(self, nbytes: int) -> None:
        """Hand out the frames that the bytes complete."""
        for frame in self._reader.feed(self._piece[:nbytes]):
            self._on_frame(frame)

    def pause_writing(self) -> None:
        """Let large frames wait."""
        self._can_write.clear()

    def resume_writing(self) -> None:
        """Let the next large frame go."""
        self._can_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner."""
        self._can_write.set()
        self._on_end()
