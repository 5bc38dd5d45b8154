"""Files of a bundle that can be read as long as they are held, whatever becomes of their names.

A bundle may be replaced or deleted while it is served. What is mapped stays; what is opened later
has to be held until then.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

from model.bundle import MANIFEST_FILE, Bundle, BundleCorruptError


class HeldFiles:
    """Open files of one bundle.

    Args:
        bundle: what they belong to.
        paths: the files.

    Raises:
        OSError: one can't be opened.
    """

    def __init__(self, bundle: Bundle, paths: Iterable[Path]) -> None:
        self._checksums = {
            bundle.path / name: sha for name, sha in bundle.manifest["sha256"].items()
        }
        self._files = {path: path.open("rb") for path in paths}

    def verify(self) -> None:
        """Compare every checksum: a file may have been written over.

        Raises:
            BundleCorruptError: one has; names it.
        """
        for path, file in self._files.items():
            file.seek(0)
            if hashlib.file_digest(file, "sha256").hexdigest() != self._checksums[path]:
                raise BundleCorruptError(
                    f"{path} was written over while it was served (its sha256 is not the one in "
                    f"{MANIFEST_FILE} any more): export into another directory, and restart"
                )

    @property
    def are_in_place(self) -> bool:
        """Whether all names still lead to these files."""
        try:
            return all(
                os.path.samestat(os.fstat(file.fileno()), path.stat())
                for path, file in self._files.items()
            )
        except OSError:
            return False

    def mapped(self, path: Path) -> mmap.mmap:
        """The content of a file, mapped; to be closed."""
        return mmap.mmap(self._files[path].fileno(), 0, access=mmap.ACCESS_READ)

    def others(self, path: Path) -> list[Path]:
        """All files but `path`."""
        return [other for other in self._files if other != path]

    def close(self) -> None:
        """Hold them no more."""
        for file in self._files.values():
            file.close()
