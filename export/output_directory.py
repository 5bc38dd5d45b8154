"""Directories that exports write: whole or not at all, and never in place of foreign files.

Free of torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from export.errors import ExportError
from model.bundle.manifest import MANIFEST_FILE

UNFINISHED = "dragoman-unfinished"
"""Beside DIR, its successor is made as .DIR.UNFINISHED.*"""


def check_output(path: Path) -> None:
    """Refuse a directory that no bundle can be written to.

    Raises:
        ExportError: `path` exists and is not a bundle, contains other files than a bundle's, or
            can't be replaced.
    """
    if path.exists() and not (path / MANIFEST_FILE).is_file() and _holds_something(path):
        raise ExportError(f"{path} is in the way: it is not a bundle; choose another directory")
    for name in _foreign_files(path):
        raise ExportError(
            f"{path / name} is in the way: it is not part of the bundle there, whose directory "
            f"would be replaced; move it or choose another directory"
        )
    _check_replaceable(path)


def check_unused(path: Path) -> None:
    """Refuse a path that has something, a bundle included.

    Raises:
        ExportError: `path` exists and is not an empty directory, or can't be replaced.
    """
    if path.exists() and _holds_something(path):
        raise ExportError(f"{path} is in the way: name another directory")
    _check_replaceable(path)


@contextlib.contextmanager
def new_directory(path: Path, check: Callable[[Path], None] = check_output) -> Iterator[Path]:
    """A temporary directory that replaces `path` at the end, or is removed after an exception.

    A link stays one: the directory is replaced that it leads to.

    Args:
        check: refuses a path; asked at the beginning, and again before anything is replaced.

    Raises:
        ExportError: by `check`.
    """
    check(path)
    place = path.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{place.name}.{UNFINISHED}.", dir=place.parent))
    old = temporary.with_name(f"{temporary.name}.old")
    try:
        yield temporary
        temporary.chmod(0o755)  # mkdtemp creates a private one
        check(path)  # others may have written there meanwhile
        try:
            if place.exists():  # out of the way at once: a server may look for it at any time
                os.replace(place, old)
            os.replace(temporary, place)
        except BaseException:
            with contextlib.suppress(OSError):  # there was none, or the new one is in its place
                os.replace(old, place)
            raise
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _check_replaceable(path: Path) -> None:
    if path.exists() and (path.is_mount() or path.samefile(Path.cwd())):
        raise ExportError(
            f"{path} is the current directory or a mount, which can't be replaced: name a new "
            f"directory in it"
        )


def _holds_something(path: Path) -> bool:
    """Whether `path` is a file, or a directory that is not empty."""
    return not path.is_dir() or any(path.iterdir())


def _foreign_files(path: Path) -> list[str]:
    """Names of files in a bundle's directory that no export wrote."""
    if not path.is_dir() or not any(path.iterdir()):
        return []
    own = {MANIFEST_FILE, "MODEL_CARD.md"}
    with contextlib.suppress(ValueError, AttributeError, TypeError):  # damaged: lists nothing
        own |= set(json.loads((path / MANIFEST_FILE).read_bytes()).get("sha256", {}))
    return sorted(file.name for file in path.iterdir() if file.name not in own)
