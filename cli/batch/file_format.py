"""A format of files with rows: parts of a file, and what is read and written."""

from __future__ import annotations

import abc
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

# Of a part: what a killed job does again, and what one takes of memory.
MAX_PART_BYTES = 8 << 20

Translations = Mapping[str, Sequence["str | None"]]


class FormatError(Exception):
    """A file is not as its format wants it. The message may be shown to users."""


@dataclass(frozen=True)
class Extent:
    """Rows that follow one another in a file.

    Attributes:
        start, end: bytes, or in Parquet rows, from the beginning of the file; `end` is exclusive.
        rows: their number.
    """

    start: int
    end: int
    rows: int


@dataclass
class Rows:
    """Rows of a file.

    Attributes:
        texts: texts of all rows, for each column; None where there is nothing to translate.
        errors: reasons why rows can't be translated, by index.
        content: the rows as the format keeps them.
    """

    texts: dict[str, list[str | None]]
    errors: dict[int, str]
    content: Any = field(repr=False)


class FileFormat(abc.ABC):
    """A format of files with rows."""

    @abc.abstractmethod
    def extents(self, file: IO[bytes], digest: Any, part_rows: int) -> Iterator[Extent]:
        """The parts of a file, in order. Reads the whole file once.

        Args:
            file: the file, at its beginning.
            digest: gets the whole content.
            part_rows: most rows of a part.
        """

    @abc.abstractmethod
    def read(self, file: IO[bytes], extent: Extent, columns: Sequence[str]) -> Rows:
        """The rows of a part.

        Raises:
            FormatError: a column is missing, or the file is damaged.
        """

    @abc.abstractmethod
    def write(
        self, file: IO[bytes], rows: Rows, translations: Translations, *, is_first: bool
    ) -> None:
        """Write a part: its rows with translations.

        Args:
            file: file to write the part to.
            rows: rows that `read` returned.
            translations: values of all rows, for each new column; None without a value.
            is_first: whether it is the file's first part.
        """

    def join(self, file: IO[bytes], parts: Iterable[IO[bytes]]) -> None:
        """Write a file from its parts."""
        for part in parts:
            shutil.copyfileobj(part, file, 1 << 20)


def grouped(ends: Iterable[int], part_rows: int, start: int = 0) -> Iterator[Extent]:
    """Parts of rows that end at `ends`."""
    begin, end, rows = start, start, 0
    for end in ends:
        rows += 1
        if rows == part_rows or end - begin >= MAX_PART_BYTES:
            yield Extent(begin, end, rows)
            begin, rows = end, 0
    if rows:
        yield Extent(begin, end, rows)


def has_surrogates(text: str) -> bool:
    """Whether a text has a half of a surrogate pair, which no encoding has."""
    return any("\ud800" <= character <= "\udfff" for character in text)
