"""The plan of a job: its files and their parts."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import lzma
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import IO, Any

from cli.batch.file_format import Extent, FormatError
from cli.batch.formats import FORMATS
from cli.batch.inputs import InputFile, JobError


@dataclass(frozen=True)
class JobPart:
    """Rows of one file that are translated, and kept, together.

    Attributes:
        file: index of the file.
        number: index among the parts of the file.
        first_row: number of rows before it.
        extent: its rows.
    """

    file: int
    number: int
    first_row: int
    extent: Extent

    @property
    def name(self) -> str:
        """Name of its files among a job's."""
        return f"{self.file:05}-{self.number:06}"


@dataclass(frozen=True)
class FilePlan:
    """A file as it was when the job began.

    Attributes:
        path: its path.
        output: path of its translation.
        format: a name in `FORMATS`.
        version: value of `Storage.version`.
        sha256: of its content, decompressed.
        extents: its parts.
    """

    path: str
    output: str
    format: str
    version: str
    sha256: str
    extents: tuple[Extent, ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(extent.rows for extent in self.extents)


def plan_file(file: InputFile, part_rows: int) -> FilePlan:
    """Read a file once, and divide it into parts.

    Args:
        file: the file.
        part_rows: most rows of a part.

    Raises:
        JobError: the file is damaged.
        OSError: it can't be read.
    """
    version = file.storage.version()
    digest = hashlib.sha256()
    with reading(file) as content:
        extents = tuple(FORMATS[file.format][0].extents(content, digest, part_rows))
    return FilePlan(
        *(file.storage.path, file.output.path, file.format),
        *(version, digest.hexdigest(), extents),
    )


@contextlib.contextmanager
def reading(file: InputFile) -> Iterator[IO[bytes]]:
    """An input, opened.

    Raises:
        JobError: its content is not as its format or its compression want it.
    """
    try:
        with file.storage.open() as content:
            yield content
    except (FormatError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as exc:
        raise JobError(f"{file.storage.path}: {exc}") from exc


def parts_of(plans: Sequence[FilePlan]) -> list[JobPart]:
    """The parts of all files, in order."""
    parts = []
    for file, plan in enumerate(plans):
        first = 0
        for number, extent in enumerate(plan.extents):
            parts.append(JobPart(file, number, first, extent))
            first += extent.rows
    return parts


def to_json(plans: Sequence[FilePlan]) -> list[dict[str, Any]]:
    """Plans as JSON values."""
    return [asdict(plan) for plan in plans]


def from_json(values: Sequence[Mapping[str, Any]]) -> list[FilePlan]:
    """Plans from `to_json`."""
    return [
        FilePlan(**{**value, "extents": tuple(Extent(**each) for each in value["extents"])})
        for value in values
    ]
