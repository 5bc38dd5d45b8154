"""Temporary folders, which are removed even if the process ends in the middle of their use."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

_making = threading.Lock()
_in_use: set[Path] = set()


@contextlib.contextmanager
def temporary_folder(prefix: str, parent: str | None = None) -> Iterator[Path]:
    """A new folder that only this user can read, within the `with` block.

    Raises:
        OSError: it can't be made.
    """
    with _making:
        made = tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True)
        folder = Path(made.name)
        _in_use.add(folder)
    try:
        with made:
            yield folder
    finally:
        _in_use.discard(folder)


def remove_all() -> None:
    """Remove the folders that other threads still use; for the end of the process.

    From then on, a thread that wants another folder waits.
    """
    _making.acquire()
    for folder in tuple(_in_use):
        shutil.rmtree(folder, ignore_errors=True)
