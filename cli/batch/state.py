"""State of a job, beside its output: records with their own checksums, and finished parts.

Each file may be damaged, missing, or of another job. A record is believed only if its checksum
holds, a part only if its record names the plan, the part and the rows that are expected.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cli.batch.storage import UNFINISHED, Storage, in_parallel

Record = dict[str, Any]

# With the version of what they hold.
_PLAN = "dragoman batch plan 2"
_PART = "dragoman batch part 1"
_OUTPUT = "dragoman batch output 1"

_PLAN_NAME = "plan"
_PART_NAME = r"\d{5,}-\d{6,}"
_OUTPUT_NAME = r"output-[0-9a-f]{64}"
# All files of a job, with those of earlier versions and those that a killed command has left.
_OWN = rf"({_PLAN_NAME}|{_PART_NAME}|{_OUTPUT_NAME})\..*|\.[0-9a-f]+{re.escape(UNFINISHED)}"


class DamagedError(Exception):
    """A file does not have the content that was written. The message names it, for users."""


def checksum(value: Any) -> str:
    """SHA-256 of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def write_record(file: Storage, kind: str, value: Mapping[str, Any]) -> None:
    """Write JSON values with their kind and a checksum, as a whole or not at all."""
    record = {"kind": kind, **value}
    content = json.dumps({**record, "checksum": checksum(record)}, ensure_ascii=False).encode()
    file.write(lambda opened: opened.write(content))


def read_record(file: Storage, kind: str) -> Record | None:
    """The values of `write_record`; None if there is no such file.

    Raises:
        DamagedError: it is incomplete, was changed, or is another file.
    """
    if (content := file.read()) is None:
        return None
    try:
        record: Record = json.loads(content)
        holds = record.pop("checksum") == checksum(record) and record["kind"] == kind
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        holds = False
    if not holds:
        raise DamagedError(f"{file.path} is damaged, or no {kind}")
    return record


@dataclass(frozen=True)
class JobState:
    """A folder with the plan of a job, its finished parts, and records of the outputs.

    Attributes:
        folder: the folder; made with the first file.
    """

    folder: Storage

    def plan(self) -> Record | None:
        """The plan; None if it is missing or damaged: it can be made again."""
        return self._read(_PLAN_NAME, _PLAN)

    def write_plan(self, value: Mapping[str, Any]) -> None:
        """Replace the plan."""
        write_record(self._record(_PLAN_NAME), _PLAN, value)

    def parts(self) -> dict[str, Record]:
        """Records of the finished parts, by name. Without those that are damaged."""
        found = (re.fullmatch(rf"({_PART_NAME})\.json", name) for name in self._names())
        names = [match[1] for match in found if match]
        records = in_parallel(lambda name: self._read(name, _PART), names)
        return {name: each for name, each in zip(names, records, strict=True) if each is not None}

    def claim(self, output: Mapping[str, str]) -> None:
        """Note that the job writes an output, which has a path and a SHA-256."""
        write_record(self._record(f"output-{checksum(output)}"), _OUTPUT, output)

    def has_claimed(self, output: Mapping[str, str]) -> bool:
        """Whether the job has written an output, or was about to."""
        return self._read(f"output-{checksum(output)}", _OUTPUT) == {"kind": _OUTPUT, **output}

    def keep(self, name: str, content: bytes, value: Mapping[str, Any]) -> None:
        """Keep a finished part: the content first, so that its record tells that it is whole."""
        self._content(name).write(lambda file: file.write(content))
        sha256 = hashlib.sha256(content).hexdigest()
        write_record(self._record(name), _PART, {**value, "sha256": sha256})

    def content(self, name: str, record: Record) -> bytes:
        """The content of a finished part.

        Raises:
            DamagedError: it is not what was kept. The part counts as unfinished from now on.
        """
        content = self._content(name).read()
        if content is None or hashlib.sha256(content).hexdigest() != record["sha256"]:
            self._record(name).remove()
            raise DamagedError(f"{self._content(name).path} is damaged")
        return content

    def remove(self) -> None:
        """Delete the job's files, and the folder if nothing else is in it."""
        own = [name for name in self._names() if re.fullmatch(_OWN, name)]
        in_parallel(self._remove, own)
        if self.folder.is_local:
            with contextlib.suppress(OSError):
                os.rmdir(self.folder.path)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            self.folder.fs.rm_file((self.folder / name).path)

    def _names(self) -> list[str]:
        if not self.folder.exists():
            return []
        paths = self.folder.fs.ls(self.folder.path, False)
        return [path.rstrip("/").rpartition("/")[2] for path in paths]

    def _read(self, name: str, kind: str) -> Record | None:
        try:
            return read_record(self._record(name), kind)
        except DamagedError:
            return None

    def _record(self, name: str) -> Storage:
        return self.folder / f"{name}.json"

    def _content(self, name: str) -> Storage:
        return self.folder / f"{name}.part"
