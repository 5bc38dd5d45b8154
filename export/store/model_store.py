"""The models of this machine that were pulled: a bundle for each pair of languages. Free of torch.

en-de/            the bundle
.pulls/en-de/     files that are on their way, and the lock
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from export.errors import ExportError
from export.output_directory import UNFINISHED
from export.store.pairs import pair_key, spelling_key
from model.bundle.manifest import MANIFEST_FILE


def default_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """The default directory of models, by the XDG specification."""
    cache = environment.get("XDG_CACHE_HOME", "")
    # The specification ignores a relative path.
    root = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    return root / "dragoman"


class ModelStore:
    """A directory of pulled models.

    Args:
        directory: made with the first model.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def find(self, pair: str) -> Path | None:
        """The bundle's directory for a pair, in any spelling; None if there is none.

        Raises:
            ExportError: it is no pair of languages, or the directory can't be read.
        """
        key = pair_key(pair)
        return next((path for path in self.bundles() if spelling_key(path.name) == key), None)

    def bundles(self) -> list[Path]:
        """The directories of all bundles, by name.

        Raises:
            ExportError: the directory can't be read.
        """
        try:
            # Hidden ones are being written.
            return sorted(file.parent for file in self.directory.glob(f"[!.]*/{MANIFEST_FILE}"))
        except OSError as exc:
            raise ExportError(f"{self.directory}: {exc.strerror}") from exc

    def bundle(self, pair: str) -> Path:
        """The directory of a pair's bundle, which may not exist yet."""
        return self.directory / pair

    def downloads(self, pair: str) -> Path:
        """The directory of a pair's files that are on their way."""
        return self.directory / ".pulls" / pair

    def manifest(self, pair: str) -> dict[str, Any]:
        """The manifest of a pair's bundle; empty if there is none that can be read."""
        try:
            found = json.loads((self.bundle(pair) / MANIFEST_FILE).read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    @contextlib.contextmanager
    def locked(self, pair: str, on_wait: Callable[[], None]) -> Iterator[None]:
        """Keep others, threads and processes alike, from pulling the same pair.

        Args:
            on_wait: called if another pull holds the lock, before the wait.

        Raises:
            OSError: the store can't be written.
        """
        folder = self.downloads(pair)
        folder.mkdir(parents=True, exist_ok=True)
        # Not removed: whoever waits for it would hold a lock that nobody else sees.
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Pulls that were killed leave half-written bundles, and an old one that was moved away.
            for left in self.directory.glob(f".{pair}.{UNFINISHED}.*"):
                if left.suffix == ".old" and not self.bundle(pair).exists():
                    left.replace(self.bundle(pair))
                shutil.rmtree(left, ignore_errors=True)
            yield
        finally:
            os.close(descriptor)
