"""The file of keys: JSON Lines, one key in each line.

With JSON Lines, an error can name its line, and a large file is read in small steps, between which
Python's global lock is free for the event loop.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from service.access.keys import StoredKey, from_line, to_line
from service.common.whole_files import check_regular, replacing

MAX_KEYS = 200_000
_MAX_BYTES = 256 * 2**20
_MODE = 0o600


class KeyFileError(Exception):
    """The file can't be read or has an error; the message names file and line."""


def read_keys(path: Path) -> dict[str, StoredKey]:
    """Read the keys of a file, by id.

    Raises:
        KeyFileError: the file can't be read, or a line is wrong.
    """
    return {key.id: key for _, key in _checked(path)}


def read_lines(path: Path) -> tuple[dict[str, str], frozenset[str]]:
    """Read and check the lines of a file, by key id, and the names of the keys.

    A server keeps lines instead of objects: they are small, and the garbage collector, which would
    block the event loop while it visits a hundred thousand keys, ignores them.

    Raises:
        KeyFileError: the file can't be read, or a line is wrong.
    """
    lines, names = {}, set()
    for line, key in _checked(path):
        lines[key.id] = line
        names.add(key.principal.name)
    return lines, frozenset(names)


def _checked(path: Path) -> Iterator[tuple[str, StoredKey]]:
    """Each line with its key. Raises KeyFileError."""
    seen: set[str] = set()  # names, which are quoted here, and ids
    try:
        with path.open(encoding="utf-8") as lines:
            if os.fstat(lines.fileno()).st_size > _MAX_BYTES:
                raise KeyFileError(f"{path}: more than {_MAX_BYTES:,} bytes, the limit")
            for number, line in enumerate(lines, 1):
                if line.isspace():
                    continue
                key = _key(path, number, line)
                own = (key.id, f"'{key.principal.name}'")
                if not seen.isdisjoint(own):
                    raise KeyFileError(f"{path}, line {number}: there is such a name or id already")
                if len(seen) >= 2 * MAX_KEYS:
                    raise KeyFileError(f"{path}: more than {MAX_KEYS:,} keys, the limit")
                seen.update(own)
                yield line, key
    except OSError as exc:
        raise KeyFileError(f"{path}: {exc.strerror or exc}") from exc
    except UnicodeDecodeError as exc:
        raise KeyFileError(f"{path}: not UTF-8") from exc


def _key(path: Path, number: int, line: str) -> StoredKey:
    try:
        return from_line(line)
    except ValueError as exc:
        raise KeyFileError(f"{path}, line {number}: {exc}") from None  # without the line itself


def write_keys(path: Path, keys: dict[str, StoredKey]) -> None:
    """Replace the file atomically: readers see either the old file or the new one.

    A new file has mode 0600; one that is there keeps its own.

    Raises:
        KeyFileError: the file can't be written.
    """
    try:
        with replacing(path, _MODE) as file:
            file.writelines(f"{to_line(key)}\n".encode() for key in keys.values())
    except OSError as exc:
        raise KeyFileError(f"{path}: {exc.strerror or exc}") from exc


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock the file against other writers, which wait.

    The lock is a separate file, because the file of keys is replaced.

    Raises:
        KeyFileError: the lock file can't be written, or `path` is no regular file.
    """
    path = path.resolve()
    lock = path.with_name(f".{path.name}.lock")
    try:
        check_regular(path)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
    except OSError as exc:
        raise KeyFileError(f"{exc.filename or lock}: {exc.strerror or exc}") from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
