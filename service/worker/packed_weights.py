"""The folder for packed weights: files that all sessions of a model map.

Each session would otherwise pack a copy of the weights into its own memory: two sessions of a
process with lanes, and more with several processes.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Can be written in containers without a folder for temporary files.
_SHARED_MEMORY = "/dev/shm"

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def folder_of_packed_weights() -> Iterator[Path | None]:
    """A folder for packed weights, while sessions are opened; None if none can be made.

    Files that are mapped stay in memory, or on the disk, as long as a process has them.
    """
    for parent in (None, _SHARED_MEMORY):
        try:
            made = tempfile.TemporaryDirectory(
                prefix="dragoman-", dir=parent, ignore_cleanup_errors=True
            )
        except OSError:
            continue
        with made as folder:
            yield Path(folder)
        return
    _log.warning("each session of a model has weights of its own: no folder for temporary files")
    yield None
