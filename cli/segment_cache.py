"""Translations of parts of a document, kept in a file until the document is complete."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self


class SegmentCache:
    """A file beside the output, with a line for each translation.

    A run that was killed resumes from it. Keys are hashes of the text and of
    all that its translation depends on, so that another model or other options find nothing.

    Args:
        depends_on: settings that translations depend on, as JSON values.

    Attributes:
        num_found: translations that an earlier run left.
    """

    def __init__(self, output: Path, depends_on: Any) -> None:
        self.path = output.with_name(f".{output.name}.dragoman-cache")
        self._depends_on = json.dumps(depends_on, sort_keys=True)
        self._found = self._read()
        self.num_found = len(self._found)
        self._file: IO[str] = self.path.open("a", encoding="utf-8")
        self._file.write("\n")  # ends a line that was cut off

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def get(self, text: str, mime_type: str) -> str | None:
        """The translation of a text, if there is one."""
        return self._found.get(self._key(text, mime_type))

    def add(self, text: str, mime_type: str, translation: str) -> None:
        """Keep a translation. It is on disk after `flush`."""
        key = self._key(text, mime_type)
        line = json.dumps([key, translation, _checksum(key, translation)], ensure_ascii=False)
        self._file.write(f"{line}\n")

    def flush(self) -> None:
        """Write added entries to the file, which has them even if this process dies."""
        self._file.flush()

    def remove(self) -> None:
        """Delete the file: the document is complete."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    def _key(self, text: str, mime_type: str) -> str:
        content = f"{self._depends_on}\0{mime_type}\0{text}".encode("utf-8", "surrogatepass")
        return hashlib.sha256(content).hexdigest()

    def _read(self) -> dict[str, str]:
        found = {}
        try:
            # By line feeds only: a translation may hold other characters that end lines.
            lines = self.path.read_text(encoding="utf-8", errors="replace").split("\n")
        except FileNotFoundError:
            return {}
        for line in lines:
            try:
                key, translation, checksum = json.loads(line)
            except (ValueError, TypeError, RecursionError):  # cut off
                continue
            if checksum == _checksum(key, translation):
                found[key] = translation
        return found


def _checksum(key: Any, translation: Any) -> str:
    return hashlib.sha256(json.dumps([key, translation]).encode()).hexdigest()
