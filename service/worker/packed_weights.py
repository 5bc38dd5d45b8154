"""The folder for packed weights: files that all sessions of a model map.

Each session would otherwise pack a copy of the weights into its own memory: two sessions of a
process with lanes, and more with several processes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from model.bundle.bundle import Bundle
from service.common.temporary_folders import temporary_folder

# Can be written in containers without a folder for temporary files.
_SHARED_MEMORY = "/dev/shm"
# Of a bundle's own weights. Packed ones were 1.2 to 1.6 times as large.
_LARGEST_SHARE = 2

_log = logging.getLogger(__name__)


def parent_with_room(bundle: Bundle) -> str | None:
    """The folder that the packed weights of a bundle can be written to; None if there is none."""
    path = bundle.weights_path
    needed = 0 if path is None else _LARGEST_SHARE * bundle.files.size(path)
    for parent in (*_folder_of_temporary_files(), _SHARED_MEMORY):
        if os.access(parent, os.W_OK) and shutil.disk_usage(parent).free >= needed:
            return parent
    return None


def _folder_of_temporary_files() -> tuple[str, ...]:
    with contextlib.suppress(OSError):
        return (tempfile.gettempdir(),)
    return ()


@contextlib.contextmanager
def folder_of_packed_weights(bundle: Bundle) -> Iterator[Path | None]:
    """A folder for packed weights, while sessions are opened; None if there is no room for it.

    Files that are mapped stay in memory, or on the disk, as long as a process has them.
    """
    with contextlib.ExitStack() as made:
        folder = None
        if (parent := parent_with_room(bundle)) is not None:
            with contextlib.suppress(OSError):  # no folder can be made there after all
                folder = made.enter_context(temporary_folder("dragoman-", parent))
        if folder is None:
            _log.warning(
                "each session of %s has weights of its own: no folder for temporary files has room "
                "for a copy that they share", bundle.name,
            )  # fmt: skip
        yield folder
