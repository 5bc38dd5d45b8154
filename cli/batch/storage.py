"""Files of a job, on a disk or in a bucket, through fsspec."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Any, TypeVar, cast

_CALLS_IN_FLIGHT = 16

# fsspec knows more, some of which lose content: it reads one member of a zip archive.
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz"}

# End of the names of files on a disk that are being written.
UNFINISHED = ".dragoman-unfinished"

T = TypeVar("T")
R = TypeVar("R")


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
            ValueError: the protocol is unknown, or one in front of another.
            ImportError: its package is not installed; the message names it.
        """
        import fsspec.core

        # Nobody can tell whether such a name and another one are one file.
        if "::" in url or url.startswith("generic:"):
            raise ValueError(f"{url}: a URL of URLs (::, generic:) is not supported")
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
        """Whether it is `other`, or lies in it; links are followed."""
        (kind, path), (other_kind, folder) = self._place, other._place
        return kind == other_kind and f"{path}/".startswith(f"{folder}/")

    @property
    def _place(self) -> tuple[str, str]:
        path = os.path.realpath(self.path) if self.is_local else self.path
        return type(self.fs).__name__, path.rstrip("/")

    @property
    def identities(self) -> set[tuple[Any, ...]]:
        """Values that two places share if they are one file, by links or letter case as well."""
        if not self.is_local:
            return {self._place}
        try:
            found = os.stat(self.path)
        except OSError:
            return {self._place}
        return {self._place, (found.st_dev, found.st_ino)}

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

        Raises:
            OSError: something that is no lock is in its place.
        """
        if not self.is_local:
            yield True
            return
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        while True:
            # A link would lead to another file, and opening a pipe would wait.
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            with open(os.open(self.path, flags, 0o666), "rb") as file:
                found = os.fstat(file.fileno())
                if found.st_size or not stat.S_ISREG(found.st_mode):
                    raise FileExistsError(errno.EEXIST, "is no lock of a job", self.path)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    yield False
                    return
                if not _is_at(file, self.path):  # its last holder has just removed it
                    continue
                try:
                    yield True
                finally:
                    if _is_at(file, self.path):
                        os.unlink(self.path)
                return

    def exists(self) -> bool:
        """Whether there is such a file or folder now."""
        self.fs.invalidate_cache()
        return bool(self.fs.exists(self.path))

    def version(self) -> str:
        """A string that changes with the file: its size with its time or entity tag."""
        from fsspec import AbstractFileSystem

        self.fs.invalidate_cache()
        # Not the file system's own method: that of HTTP believes that files never change.
        return str(AbstractFileSystem.ukey(self.fs, self.path))

    def open(self) -> IO[bytes]:
        """Open for reading; a compressed file is decompressed."""
        return cast("IO[bytes]", self.fs.open(self.path, "rb", compression=compression(self.path)))

    def read(self) -> bytes | None:
        """The content as it is stored; None if there is no such file."""
        try:
            return cast("bytes", self.fs.cat_file(self.path))
        except FileNotFoundError:
            return None

    def sha256(self) -> str:
        """SHA-256 of the content as it is stored."""
        with self.fs.open(self.path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def write(
        self,
        fill: Callable[[IO[bytes]], Any],
        before_commit: Callable[[str], None] = lambda sha256: None,
    ) -> str:
        """Write a file, as a whole or not at all; compressed if its name has such a suffix.

        Args:
            fill: writes the content.
            before_commit: called with the SHA-256 before the file takes its place.

        Returns:
            SHA-256 of the content as it is stored.
        """
        if not self.is_local:
            file = self.fs.open(self.path, "wb", autocommit=False)
            try:
                sha256 = _fill(file, self.path, fill)
                if not file.closed:
                    file.close()
                before_commit(sha256)
            except BaseException:
                file.discard()
                raise
            file.commit()
            return sha256
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        # Hidden, so that it is no input, and new, so that no other file is opened, nor a link.
        name = f".{secrets.token_hex(8)}{UNFINISHED}"
        temporary = os.path.join(os.path.dirname(self.path), name)
        try:
            with open(temporary, "xb") as file:
                sha256 = _fill(file, self.path, fill)
                file.flush()
                os.fsync(file.fileno())
            before_commit(sha256)
            os.replace(temporary, self.path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        return sha256

    def remove(self) -> None:
        """Delete the file, or the folder and all that is in it, if there is one."""
        if not self.exists():
            return
        if self.is_local:
            self.fs.rm(self.path, recursive=True)
            return
        # Each by its name: `rm` would take a name with an asterisk for a pattern.
        in_parallel(self.fs.rm_file, self.fs.find(self.path))


def in_parallel(call: Callable[[T], R], values: Iterable[T]) -> list[R]:
    """Results of calls for files: those of buckets take long, each."""
    with ThreadPoolExecutor(_CALLS_IN_FLIGHT) as executor:
        return list(executor.map(call, values))


def compression(path: str) -> str | None:
    """fsspec's name of a file's compression, by its suffix; None without one."""
    return _COMPRESSIONS.get(os.path.splitext(path)[1].lower())


def _is_at(file: IO[bytes], path: str) -> bool:
    """Whether an open file is still the one with this path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


class _Hashing:
    """A file that its compressor must not close; hashes what is written, in order."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> IO[bytes]:
        return cast("IO[bytes]", self)

    def __exit__(self, *error: object) -> None:
        return None

    def write(self, content: Any) -> int:
        """Write bytes."""
        self.sha256.update(content)
        return self._file.write(content)

    def writelines(self, lines: Iterable[bytes]) -> None:
        """Write bytes."""
        for line in lines:
            self.write(line)

    def seekable(self) -> bool:
        """Nothing that was written may change."""
        return False

    def close(self) -> None:
        """Leave it open."""


def _fill(file: IO[bytes], path: str, fill: Callable[[IO[bytes]], Any]) -> str:
    """Fill a file, with a compressor in front if its name wants one; returns its SHA-256."""
    from fsspec.compression import compr

    hashing, kind = _Hashing(file), compression(path)
    with compr[kind](hashing, mode="wb") if kind else hashing as content:
        fill(content)
    return hashing.sha256.hexdigest()
