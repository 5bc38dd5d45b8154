"""CSV and TSV."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

from cli.batch.file_format import (
    MAX_PART_BYTES,
    Extent,
    FileFormat,
    FormatError,
    Rows,
    Translations,
    grouped,
    has_surrogates,
)


class Csv(FileFormat):
    """Values with commas or tabs between them, and a first row with the columns' names."""

    def __init__(self, delimiter: str) -> None:
        self._delimiter = delimiter

    def _records(self, lines: Iterable[str], num_columns: int = 0) -> Iterator[list[str]]:
        """The rows, none with more values than the header, or than the first one if it is read.

        Blank lines are left out; in a file of one column, they are rows.
        """
        csv.field_size_limit(MAX_PART_BYTES)
        # Strict: a quotation mark that is never closed would hide all rows after it.
        reader = csv.reader(lines, delimiter=self._delimiter, strict=True)
        try:
            for record in reader:
                num_columns = num_columns or len(record)
                if len(record) > num_columns:
                    raise csv.Error(f"{len(record)} values in {num_columns} columns")
                if record or num_columns == 1:
                    yield record
        except csv.Error as exc:
            raise FormatError(f"not CSV at line {reader.line_num}: {exc}") from exc

    def extents(self, file: IO[bytes], digest: Any, part_rows: int) -> Iterator[Extent]:
        """See `FileFormat.extents`; the first row belongs to no part."""
        end = 0

        def lines() -> Iterator[str]:
            nonlocal end
            for line in file:
                digest.update(line)
                # Before a quotation mark, a byte order mark would be a value's first character.
                content = line if end else line.removeprefix(codecs.BOM_UTF8)
                end += len(line)
                # The reader wants text; columns are found alike in any encoding with ASCII in it.
                yield content.decode("latin-1")

        records = self._records(lines())
        if next(records, None) is None:
            return iter(())
        header_end = end
        extents = grouped((end for _ in records), part_rows, header_end)
        # A part without rows still has the header.
        first = next(extents, Extent(header_end, header_end, 0))
        return itertools.chain([first], extents)

    def read(self, file: IO[bytes], extent: Extent, columns: Sequence[str]) -> Rows:
        """See `FileFormat.read`."""
        file.seek(0)
        lines = (line.decode("utf-8-sig", "surrogateescape") for line in file)
        header = next(self._records(lines), [])
        for column in columns:
            if header.count(column) != 1:
                found = "several columns" if column in header else "no column"
                raise FormatError(f"{found} {column!r}; there are {', '.join(header)}")
        file.seek(extent.start)
        content = file.read(extent.end - extent.start)
        texts: dict[str, list[str | None]] = {column: [] for column in columns}
        errors: dict[int, str] = {}
        text = io.StringIO(content.decode("utf-8", "surrogateescape"), newline="")
        records = [
            [*record, *[""] * (len(header) - len(record))]
            for record in self._records(text, len(header))
        ]
        for index, record in enumerate(records):
            for column, into in texts.items():
                value: str | None = record[header.index(column)]
                if value and not value.isascii() and has_surrogates(value):
                    errors[index], value = f"{column}: not valid UTF-8", None
                into.append(value)
        line_end = "\r\n" if content.partition(b"\n")[0].endswith(b"\r") else "\n"
        return Rows(texts, errors, (header, records, line_end))

    def write(
        self, file: IO[bytes], rows: Rows, translations: Translations, *, is_first: bool
    ) -> None:
        """See `FileFormat.write`."""
        header, records, line_end = rows.content
        text = io.StringIO(newline="")

        def write(record: Sequence[str]) -> None:
            # Python's writer forgets the quotation marks that a carriage return needs.
            needs_quotes = any("\r" in value for value in record)
            csv.writer(
                text,
                delimiter=self._delimiter,
                lineterminator=line_end,
                quoting=csv.QUOTE_ALL if needs_quotes else csv.QUOTE_MINIMAL,
            ).writerow(record)

        names = [*header, *(name for name in translations if name not in header)]
        if is_first:
            write(names)
        for index, record in enumerate(records):
            row = [*record, *[""] * (len(names) - len(record))]
            for name, values in translations.items():
                row[names.index(name)] = values[index] or ""
            write(row)
        file.write(text.getvalue().encode("utf-8", "surrogateescape"))
