"""Files of a job, on a disk or in a bucket, through fsspec."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any, cast


@dataclass(frozen=True)
class Storage:
    """A file system and a path on it.

    Attributes:
        fs: an fsspec file system.
        path: a path on it, without the protocol.
    """

    fs: Any
    path: str

    @classmethod
    def of(cls, url: str) -> Storage:
        """The place of a path or URL, such as s3://bucket/folder.

        Raises:
            ValueError: the protocol is unknown.
            ImportError: its package is not installed; the message names it.
        """
        import fsspec.core

        found = cls(*fsspec.core.url_to_fs(url))
        # One name for one file, and an output goes where a link points.
        return cls(found.fs, os.path.realpath(found.path)) if found.is_local else found

    @property
    def is_local(self) -> bool:
        """Whether it is on a disk of this machine."""
        from fsspec.implementations.local import LocalFileSystem

        return isinstance(self.fs, LocalFileSystem)

    @property
    def name(self) -> str:
        """The last component of the path."""
        return self.path.rstrip("/").rpartition("/")[2]

    def __truediv__(self, name: str) -> Storage:
        return Storage(self.fs, f"{self.path.rstrip('/')}/{name}")

    def with_suffix(self, suffix: str) -> Storage:
        """A file beside this one, with `suffix` after its whole name."""
        return Storage(self.fs, self.path.rstrip("/") + suffix)

    def is_in(self, other: Storage) -> bool:
        """Whether it is `other`, or lies in it."""
        is_below = f"{self.path.rstrip('/')}/".startswith(f"{other.path.rstrip('/')}/")
        return bool(type(self.fs) is type(other.fs) and is_below)

    @property
    def is_special(self) -> bool:
        """Whether it is a device, a pipe or the like."""
        return (
            self.is_local
            and os.path.exists(self.path)
            and not (os.path.isfile(self.path) or os.path.isdir(self.path))
        )

    @contextlib.contextmanager
    def locked(self) -> Iterator[bool]:
        """Hold a lock that other processes of this machine see, on a disk only.

        Yields:
            Whether no other process holds it.
        """
        if not self.is_local:
            yield True
            return
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(self.path, "wb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            try:
                yield True
            finally:
                os.unlink(self.path)

    def exists(self) -> bool:
        """Whether there is such a file or folder now."""
        self.fs.invalidate_cache()
        return bool(self.fs.exists(self.path))

    def version(self) -> str:
        """A string that changes with the file: its size with its time or entity tag."""
        self.fs.invalidate_cache()
        return str(self.fs.ukey(self.path))

    def open(self) -> IO[bytes]:
        """Open for reading; a compressed file is decompressed."""
        return cast("IO[bytes]", self.fs.open(self.path, "rb", compression="infer"))

    def read_json(self) -> Any:
        """The content of a JSON file; None if it is missing or incomplete."""
        try:
            return json.loads(self.fs.cat_file(self.path))
        except (FileNotFoundError, ValueError):
            return None

    def write_json(self, value: Any) -> None:
        """Write a JSON file, as a whole or not at all."""
        self.write(lambda file: file.write(json.dumps(value, ensure_ascii=False).encode()))

    def write(self, fill: Callable[[IO[bytes]], Any]) -> None:
        """Write a file, as a whole or not at all; compressed if its name has such a suffix.

        Args:
            fill: writes the content.
        """
        if not self.is_local:
            file = self.fs.open(self.path, "wb", autocommit=False)
            try:
                with _compressed(file, self.path) as content:
                    fill(content)
                if not file.closed:
                    file.close()
            except BaseException:
                file.discard()
                raise
            file.commit()
            return
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        temporary = f"{self.path}.writing"
        with open(temporary, "wb") as file:
            with _compressed(file, self.path) as content:
                fill(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path)

    def remove(self) -> None:
        """Delete the folder and all that is in it, if there is one."""
        if self.exists():
            self.fs.rm(self.path, recursive=True)


class _KeptOpen:
    """A file that its compressor must not close."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> IO[bytes]:
        return cast("IO[bytes]", self)

    def __exit__(self, *error: object) -> None:
        return None

    def close(self) -> None:
        """Leave it open."""


def _compressed(file: IO[bytes], path: str) -> Any:
    """A context manager with `file`, or with a compressor in front of it."""
    from fsspec.compression import compr
    from fsspec.utils import infer_compression

    kept, kind = _KeptOpen(file), infer_compression(path)
    return compr[kind](kept, mode="wb") if kind else kept
