"""Files that are opened once, and stay readable if they are renamed or deleted.

A bundle may be replaced or deleted while it is opened and while it is served. What was opened stays
what it was.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import mmap
import os
import stat
import weakref
from collections.abc import Iterator
from pathlib import Path

_PIECE_BYTES = 2**20
_OPEN_FILES = Path("/proc/self/fd")


class HeldFiles:
    """Open files of one directory, which are closed with the last reference to this object.

    Args:
        directory: the directory. All files are opened in it, even if its name leads elsewhere by
            then.

    Raises:
        OSError: it can't be opened.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptors = {directory: os.open(directory, os.O_RDONLY | os.O_DIRECTORY)}
        self._mapped: dict[Path, mmap.mmap] = {}
        weakref.finalize(self, _close, self._descriptors)

    def hold(self, name: str) -> None:
        """Open the file `name` of the directory, to be read by its path.

        Raises:
            FileNotFoundError: it is missing, or not a regular file.
            OSError: it can't be opened.
        """
        parent, path = self._descriptors[self._directory], self._directory / name
        # Opening a named pipe would wait for a writer.
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK, dir_fd=parent)
        self._descriptors[path] = descriptor
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileNotFoundError(errno.ENOENT, "not a regular file", str(path))

    def keep(self, *paths: Path) -> None:
        """Keep these files open; close all others, and the directory."""
        others = self._descriptors.keys() - paths
        _close({path: self._descriptors.pop(path) for path in others})

    def size(self, path: Path) -> int:
        """Size of a file in bytes."""
        return os.fstat(self._descriptors[path]).st_size

    def read(self, path: Path) -> bytes:
        """The content of a file."""
        return b"".join(self._pieces(path))

    def sha256(self, path: Path) -> str:
        """The SHA-256 of a file's bytes, in hexadecimal."""
        digest = hashlib.sha256()
        for piece in self._pieces(path):
            digest.update(piece)
        return digest.hexdigest()

    def mapped(self, path: Path) -> mmap.mmap:
        """The content of a file that isn't empty, mapped into memory once."""
        if path not in self._mapped:
            descriptor = self._descriptors[path]
            self._mapped[path] = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        return self._mapped[path]

    def path(self, path: Path) -> Path:
        """A path under which another library can open a file while it is held.

        Without Linux's /proc it is the file's own, which may have moved.
        """
        held = _OPEN_FILES / str(self._descriptors[path])
        return held if held.exists() else path

    def _pieces(self, path: Path) -> Iterator[bytes]:
        offset = 0
        while piece := os.pread(self._descriptors[path], _PIECE_BYTES, offset):
            offset += len(piece)
            yield piece


def _close(descriptors: dict[Path, int]) -> None:
    for descriptor in descriptors.values():
        with contextlib.suppress(OSError):
            os.close(descriptor)
