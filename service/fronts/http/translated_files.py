"""Files that were translated, until their senders fetch them: in memory, bounded in three ways."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from service.errors import InvalidArgumentError, NotFoundError
from service.fronts.http.fields import NamedFile

_MAX_FILES = 1_000
_MAX_SECONDS = 600.0
_ID_BYTES = 16


@dataclass(frozen=True)
class _Kept:
    file: NamedFile
    owner: str
    expires: float


class TranslatedFiles:
    """Keeps files for ten minutes, each for its owner.

    When the limit is reached, the owner with the most bytes loses its oldest file. So clients that
    send a lot lose their own files, not those of others.

    Args:
        max_files: the most files; a smaller file counts as `max_bytes / max_files`.
    """

    def __init__(
        self,
        max_bytes: int,
        max_files: int = _MAX_FILES,
        max_seconds: float = _MAX_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_bytes = max_bytes
        self._least_bytes = max_bytes // max_files
        self._max_seconds = max_seconds
        self._clock = clock
        self._kept: dict[str, _Kept] = {}  # the oldest first
        self._bytes: Counter[str] = Counter()  # by owner

    def add(self, file: NamedFile, owner: str) -> str:
        """Keep a file; returns its id, which nobody can guess.

        Raises:
            InvalidArgumentError: the file alone is too large.
        """
        if (size := self._size(file)) > self._max_bytes:
            raise InvalidArgumentError(
                "file", f"its translation has {size:,} bytes, the limit is {self._max_bytes:,}"
            )
        self._drop_expired()
        while self._bytes.total() + size > self._max_bytes:
            [(largest, _)] = self._bytes.most_common(1)
            self._drop(next(each for each, kept in self._kept.items() if kept.owner == largest))
        file_id = secrets.token_hex(_ID_BYTES)
        self._kept[file_id] = _Kept(file, owner, self._clock() + self._max_seconds)
        self._bytes[owner] += size
        return file_id

    def get(self, file_id: str, owner: str) -> NamedFile:
        """The file with this id, for its owner.

        Raises:
            NotFoundError: no file has this id, it was dropped, or it belongs to another owner.
        """
        self._drop_expired()
        kept = self._kept.get(file_id)
        if kept is None or kept.owner != owner:
            minutes = round(self._max_seconds / 60)
            raise NotFoundError(f"no such file; translated files are kept for {minutes} minutes")
        return kept.file

    def _drop_expired(self) -> None:
        now = self._clock()
        while self._kept:
            oldest = next(iter(self._kept))
            if self._kept[oldest].expires > now:
                return
            self._drop(oldest)

    def _drop(self, file_id: str) -> None:
        kept = self._kept.pop(file_id)
        self._bytes[kept.owner] -= self._size(kept.file)
        if not self._bytes[kept.owner]:
            del self._bytes[kept.owner]

    def _size(self, file: NamedFile) -> int:
        return max(len(file.content), self._least_bytes)
