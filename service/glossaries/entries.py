"""Entries of a glossary as text: values separated by tabs (TSV) or commas (CSV)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping

from service.errors import InvalidArgumentError

FORMATS = ("tsv", "csv")
MAX_ENTRIES = 10_000
"""Most entries in one dictionary of a client's glossary."""
# CSV in DeepL's format may name the languages in each line.
_CSV_COLUMNS = (2, 4)


def read_entries(text: str, form: str, field: str) -> dict[str, str]:
    """Read the translation of each term.

    A megabyte takes some hundredths of a second, so call this in a thread.

    Args:
        text: text with a line for each term. Blank lines are skipped.
        form: one of `FORMATS`.
        field: name of the field, for messages.

    Raises:
        InvalidArgumentError: a line does not have two columns or repeats a term, or there are too
            many lines; names the line.
    """
    found: dict[str, str] = {}
    for number, cells in _rows(text, form, field):
        source, target = (cell.strip() for cell in cells[:2])
        if source in found:
            raise InvalidArgumentError(field, f"line {number}: this term is there already")
        if len(found) == MAX_ENTRIES:
            raise InvalidArgumentError(field, f"more than {MAX_ENTRIES:,} entries, the limit")
        found[source] = target
    if not found:
        raise InvalidArgumentError(field, "has no entry")
    return found


def write_entries(entries: Mapping[str, str]) -> str:
    """Write entries as TSV."""
    return "\n".join(f"{source}\t{target}" for source, target in entries.items())


def _rows(text: str, form: str, field: str) -> Iterable[tuple[int, list[str]]]:
    if form == "csv":
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        try:
            for cells in reader:
                if cells and len(cells) not in _CSV_COLUMNS:
                    columns = " or ".join(map(str, _CSV_COLUMNS))
                    why = f"line {reader.line_num}: {len(cells)} columns, not {columns}"
                    raise InvalidArgumentError(field, why)
                if cells:
                    yield reader.line_num, cells
        except csv.Error as exc:
            raise InvalidArgumentError(field, f"line {reader.line_num}: {exc}") from exc
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            cells = line.rstrip("\r").split("\t")
            if len(cells) != 2:
                raise InvalidArgumentError(
                    field,
                    f"line {number}: needs two columns with a tab between them, has {len(cells)}",
                )
            yield number, cells
