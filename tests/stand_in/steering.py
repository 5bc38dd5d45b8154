"""Commands and queries of a test to the stand-in for CUDA in its process."""

from __future__ import annotations

import ctypes
import re


class StandIn:
    """The stand-in's functions; `streams.c` and `captures.c` describe them."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcudart.so.13")

    def journal(self) -> list[str]:
        """The calls since `forget`, in order."""
        return self._lines("stand_in_journal")

    def launched(self) -> list[str]:
        """The kernels, products and calls of cuDNN since `forget`, by the names of functions."""
        return [_plain(name) for name in self._lines("stand_in_launched")]

    def forget(self) -> None:
        """Clear the journal, and the count of copies to the host."""
        self._library.stand_in_forget()

    def hold(self) -> None:
        """Hold all launched work."""
        self._library.stand_in_hold(ctypes.c_int(1))

    def let_go(self) -> None:
        """Let held work be done when a thread waits for it."""
        self._library.stand_in_hold(ctypes.c_int(0))

    def await_copies(self, count: int, seconds: int = 60) -> bool:
        """Wait until `count` copies to the host have been launched; returns whether they were."""
        reached = self._library.stand_in_await(ctypes.c_long(count), ctypes.c_int(seconds))
        return bool(reached)

    def spoil_captures(self, spoil: bool) -> None:
        """Let all captures fail."""
        self._library.stand_in_spoil(ctypes.c_int(spoil))

    def hold_captures(self, hold: bool) -> None:
        """Hold the end of captures, or release it."""
        self._library.stand_in_hold_captures(ctypes.c_int(hold))

    def await_capture(self, seconds: int = 60) -> bool:
        """Wait until a held capture reaches its end; returns whether one does."""
        return bool(self._library.stand_in_await_capture(ctypes.c_int(seconds)))

    def write_to(self, address: int) -> None:
        """Let every kernel write there which copy to the host its result is part of; 0 ends it."""
        self._library.stand_in_write(ctypes.c_void_p(address))

    def _lines(self, name: str) -> list[str]:
        function = getattr(self._library, name)
        function.restype = ctypes.c_size_t
        size = function(None, ctypes.c_size_t(0))
        text = ctypes.create_string_buffer(size + 1)
        function(text, ctypes.c_size_t(size))
        return text.raw[:size].decode().splitlines()


def _plain(mangled: str) -> str:
    """The last name in a mangled one: of _ZN2ns3sub6kernelI..., "kernel"."""
    rest = mangled.removeprefix("_Z").removeprefix("N")
    found = mangled
    while match := re.match("[0-9]+", rest):
        end = match.end() + int(match[0])
        found, rest = rest[match.end() : end], rest[end:]
    return found
