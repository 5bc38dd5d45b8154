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
from cli.batch.formats import FORMATS, format_name
from cli.batch.storage import Storage


class JobError(Exception):
    """A job can't be done. The message may be shown to users."""


@dataclass(frozen=True)
class InputFile:
    """A file to translate.

    Attributes:
        storage: place of the file.
        output: place of its translation.
        format: a name in `FORMATS`.
    """

    storage: Storage
    output: Storage
    format: str


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
        version: value of `Storage.version`.
        sha256: of its content, decompressed.
        extents: its parts.
    """

    path: str
    version: str
    sha256: str
    extents: tuple[Extent, ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(extent.rows for extent in self.extents)


def find_inputs(url: str, output: Storage, format: str) -> list[InputFile]:
    """The files that a path, a folder, a pattern or a URL means, with their outputs.

    One file is translated to a file, or into a folder that exists; several into a folder, in which
    they keep their names.

    Args:
        url: path, pattern or URL, for example in.jsonl, texts/, s3://bucket/*.parquet.
        output: file or folder.
        format: a name in `FORMATS`; "" for the one that the names of the files say.

    Raises:
        JobError: there is no such file, or one of no known format.
    """
    found = Storage.of(url)
    fs, path = found.fs, found.path.rstrip("/")
    if output.is_in(Storage(fs, path)):
        raise JobError("--output: is the input, or lies in it")
    if output.is_special:
        raise JobError("--output: is neither a file nor a folder")
    if fs.isfile(path):
        into = output / found.name if output.fs.isdir(output.path) else output
        return [InputFile(found, into, _format(path, format))]
    if any(sign in path for sign in "*?["):
        paths = sorted(each for each in fs.glob(path) if _is_visible(each) and fs.isfile(each))
        base = path[: min(path.find(sign) for sign in "*?[" if sign in path)].rpartition("/")[0]
    elif fs.isdir(path):
        names = fs.find(path)
        paths = sorted(
            each for each in names if (format or format_name(each)) and _is_visible(each)
        )
        base = path
    else:
        raise JobError(f"INPUT: there is no file {url}")
    if not paths:
        raise JobError(f"INPUT: {url} has no files of a known type")
    return [
        InputFile(Storage(fs, each), output / each[len(base) :].lstrip("/"), _format(each, format))
        for each in paths
    ]


def _is_visible(path: str) -> bool:
    return not path.rpartition("/")[2].startswith((".", "_"))


def _format(path: str, wanted: str) -> str:
    if found := wanted or format_name(path):
        return found
    suffixes = ", ".join(suffix for _, suffixes in FORMATS.values() for suffix in suffixes)
    raise JobError(f"{path}: unsupported file type: expected {suffixes}, or --format")


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
    return FilePlan(file.storage.path, version, digest.hexdigest(), extents)


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
