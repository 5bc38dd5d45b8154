"""Formats of a job's files: how their rows are found, read, and written with translations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, cast

from cli.batch.csv_format import Csv
from cli.batch.file_format import (
    Extent,
    FileFormat,
    FormatError,
    Rows,
    Translations,
    grouped,
    has_surrogates,
)
from cli.batch.storage import compression

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")


def _lines(file: IO[bytes], extent: Extent) -> list[bytes]:
    file.seek(extent.start)
    content = file.read(extent.end - extent.start)
    lines = content.split(b"\n")
    return lines[:-1] if content.endswith(b"\n") else lines


class _LineFormat(FileFormat):
    """A row is a line, which ends with a line feed."""

    def extents(self, file: IO[bytes], digest: Any, part_rows: int) -> Iterator[Extent]:
        def ends() -> Iterator[int]:
            end = 0
            for line in file:
                digest.update(line)
                end += len(line)
                yield end

        return grouped(ends(), part_rows)


class TextLines(_LineFormat):
    """Plain text: a line is a row, and so is its translation."""

    def read(self, file: IO[bytes], extent: Extent, columns: Sequence[str]) -> Rows:
        """See `FileFormat.read`; the one column has any name."""
        [column] = columns
        texts: list[str | None] = []
        errors = {}
        for index, line in enumerate(_lines(file, extent)):
            try:
                texts.append(line.decode())
            except UnicodeDecodeError as exc:
                errors[index] = f"not valid UTF-8 at byte {exc.start + 1}"
                texts.append(None)
        return Rows({column: texts}, errors, None)

    def write(
        self, file: IO[bytes], rows: Rows, translations: Translations, *, is_first: bool
    ) -> None:
        """See `FileFormat.write`; a row without a translation is an empty line."""
        [translated] = translations.values()
        for text in translated:
            file.write((text or "").replace("\n", " ").encode() + b"\n")


class JsonLines(_LineFormat):
    """JSON Lines (https://jsonlines.org): a row is an object, a column one of its members."""

    def read(self, file: IO[bytes], extent: Extent, columns: Sequence[str]) -> Rows:
        """See `FileFormat.read`."""
        lines = _lines(file, extent)
        texts: dict[str, list[str | None]] = {column: [] for column in columns}
        errors: dict[int, str] = {}
        content: list[tuple[bytes, dict[str, Any] | None]] = []
        for index, line in enumerate(lines):
            row: dict[str, Any] | None = None
            try:
                parsed = json.loads(line)
                if isinstance(parsed, dict):
                    row = parsed
                else:
                    errors[index] = "not an object"
            except (ValueError, RecursionError) as exc:
                errors[index] = f"not JSON: {exc}"
            for column, into in texts.items():
                value = None if row is None else row.get(column)
                if value is not None and not isinstance(value, str):
                    errors[index], value = f"{column}: not a string", None
                elif value is not None and has_surrogates(value):
                    errors[index], value = f"{column}: half of a surrogate pair", None
                into.append(value)
            content.append((line, row))
        for column in columns:
            rows = [row for _, row in content if row is not None]
            if extent.start == 0 and rows and not any(column in row for row in rows):
                raise FormatError(f"none of the first {len(rows)} rows has a member {column!r}")
        return Rows(texts, errors, content)

    def write(
        self, file: IO[bytes], rows: Rows, translations: Translations, *, is_first: bool
    ) -> None:
        """See `FileFormat.write`; a line that is no object stays as it is."""
        for index, (line, row) in enumerate(rows.content):
            if row is not None:
                new = {name: values[index] for name, values in translations.items()}
                line = _with_members(line, row, new)
            file.write(line + b"\n")


def _with_members(line: bytes, row: dict[str, Any], new: dict[str, str | None]) -> bytes:
    """An object's line with members replaced or added; the others stay byte for byte.

    Written again, 1e999 would become no JSON, and one of two members of a name would be lost.
    """
    text = line.decode("utf-8", "surrogatepass").rstrip()
    if row.keys() & new.keys():
        for name, start, end in reversed([*_values(text)]):
            if name in new:
                text = text[:start] + _json(new[name]) + text[end:]
    if added := {name: value for name, value in new.items() if name not in row}:
        text = text[:-1].rstrip() + (", " if row else "") + _json(added)[1:]
    return text.encode("utf-8", "surrogatepass")


def _values(text: str) -> Iterator[tuple[str, int, int]]:
    """Names of an object's members, with the beginnings and ends of their values."""
    at = _after_space(text, text.index("{") + 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        start = _after_space(text, _after_space(text, at) + 1)  # behind the colon
        _, end = _DECODER.raw_decode(text, start)
        yield name, start, end
        at = _after_space(text, end)
        if text[at] == ",":
            at = _after_space(text, at + 1)


def _after_space(text: str, at: int) -> int:
    return cast("re.Match[str]", _SPACE.match(text, at)).end()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


class Parquet(FileFormat):
    """Apache Parquet; columns of strings."""

    def extents(self, file: IO[bytes], digest: Any, part_rows: int) -> Iterator[Extent]:
        """See `FileFormat.extents`."""
        while block := file.read(1 << 20):
            digest.update(block)
        file.seek(0)
        total = self._open(file).metadata.num_rows
        for start in range(0, max(total, 1), part_rows):  # an empty file has its columns
            end = min(total, start + part_rows)
            yield Extent(start, end, end - start)

    def read(self, file: IO[bytes], extent: Extent, columns: Sequence[str]) -> Rows:
        """See `FileFormat.read`."""
        import pyarrow as pa

        parquet = self._open(file)
        schema = parquet.schema_arrow
        for column in columns:
            if column not in schema.names:
                raise FormatError(f"no column {column!r}; there are {', '.join(schema.names)}")
            kind = schema.field(column).type
            if pa.types.is_dictionary(kind):
                kind = kind.value_type
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                raise FormatError(f"column {column!r} has values of type {kind}, not strings")
        first = skipped = 0
        groups: list[int] = []
        for index in range(parquet.num_row_groups):
            after = first + parquet.metadata.row_group(index).num_rows
            if first < extent.end and extent.start < after:
                if not groups:
                    skipped = extent.start - first
                groups.append(index)
            first = after
        table = parquet.read_row_groups(groups).slice(skipped, extent.rows)
        return Rows({name: table[name].to_pylist() for name in columns}, {}, table)

    def write(
        self, file: IO[bytes], rows: Rows, translations: Translations, *, is_first: bool
    ) -> None:
        """See `FileFormat.write`."""
        import pyarrow as pa
        from pyarrow import parquet

        table = rows.content
        for name, values in translations.items():
            column = pa.array(values, pa.string())
            if name in table.column_names:
                table = table.set_column(table.column_names.index(name), name, column)
            else:
                table = table.append_column(name, column)
        parquet.write_table(table, file)

    def join(self, file: IO[bytes], parts: Iterable[IO[bytes]]) -> None:
        """See `FileFormat.join`: a part is a row group."""
        from pyarrow import parquet

        writer: Any = None
        for part in parts:
            table = parquet.read_table(part)
            writer = writer or parquet.ParquetWriter(file, table.schema)
            writer.write_table(table)
        if writer is not None:
            writer.close()

    @staticmethod
    def _open(file: IO[bytes]) -> Any:
        import pyarrow as pa
        from pyarrow import parquet

        try:
            return parquet.ParquetFile(file)
        except pa.ArrowInvalid as exc:
            raise FormatError(f"not Parquet: {exc}") from exc


FORMATS: dict[str, tuple[FileFormat, tuple[str, ...]]] = {
    "text": (TextLines(), (".txt", ".text")),
    "jsonl": (JsonLines(), (".jsonl", ".ndjson")),
    "csv": (Csv(","), (".csv",)),
    "tsv": (Csv("\t"), (".tsv",)),
    "parquet": (Parquet(), (".parquet",)),
}
"""Formats by name, with the ends of their files' names."""


def format_name(file: str) -> str:
    """The format of a file by its name, before a suffix of a compression; "" if there is none."""
    if compression(file):
        file = file.rpartition(".")[0]
    for name, (_, suffixes) in FORMATS.items():
        if file.lower().endswith(suffixes):
            return name
    return ""
