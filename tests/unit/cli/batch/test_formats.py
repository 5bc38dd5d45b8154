"""Files of rows: every row is in one part, and comes out once, with its translation."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.batch.csv_format import Csv
from cli.batch.file_format import Extent, FileFormat, FormatError, Rows
from cli.batch.formats import FORMATS, format_name

ANY_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
# The ends of lines come often enough to be next to each other.
VALUE = ANY_TEXT | st.text('a"\r\n,\t', max_size=4)
LINES = st.lists(ANY_TEXT.map(lambda text: text.replace("\n", " ")), max_size=12)


def parts(format: FileFormat, content: bytes, part_rows: int, column: str) -> list[Rows]:
    """The parts of a file, and a check that its content was digested."""
    digest = hashlib.sha256()
    extents = list(format.extents(io.BytesIO(content), digest, part_rows))
    assert digest.digest() == hashlib.sha256(content).digest()
    assert all(0 < extent.rows <= part_rows for extent in extents[1:])
    read = [format.read(io.BytesIO(content), extent, [column]) for extent in extents]
    for extent, rows in zip(extents, read, strict=True):
        assert len(rows.texts[column]) == extent.rows
    return read


def written(format: FileFormat, read: list[Rows], column: str) -> bytes:
    """The joined output, where each text is translated to itself in brackets."""
    outputs = []
    for index, rows in enumerate(read):
        output = io.BytesIO()
        new = {"new": [None if t is None else f"[{t}]" for t in rows.texts[column]]}
        format.write(output, rows, new, is_first=index == 0)
        outputs.append(io.BytesIO(output.getvalue()))
    joined = io.BytesIO()
    format.join(joined, outputs)
    return joined.getvalue()


@given(LINES, st.integers(1, 5), st.booleans())
def test_lines_are_rows(lines: list[str], part_rows: int, ends: bool) -> None:
    if not ends and lines and not lines[-1]:
        lines[-1] = "."  # else it would be the end of the line before
    content = "\n".join([*lines, ""] if ends and lines else lines).encode()
    format = FORMATS["text"][0]
    read = parts(format, content, part_rows, "text")
    assert [text for rows in read for text in rows.texts["text"]] == lines
    assert written(format, read, "text").decode() == "".join(f"[{line}]\n" for line in lines)


@given(st.lists(st.dictionaries(ANY_TEXT, ANY_TEXT | st.integers()), max_size=9), st.integers(1, 4))
def test_objects_keep_their_members(objects: list[dict[str, Any]], part_rows: int) -> None:
    objects = [{**each, "text": f"t{index}"} for index, each in enumerate(objects)]
    content = "".join(json.dumps(each) + "\n" for each in objects).encode()
    format = FORMATS["jsonl"][0]
    output = written(format, parts(format, content, part_rows, "text"), "text").decode()
    found = [json.loads(line) for line in output.split("\n")[:-1]]
    assert found == [{**each, "new": f"[{each['text']}]"} for each in objects]


@given(
    st.lists(VALUE.filter(lambda name: name != "text"), max_size=2),
    st.lists(st.lists(VALUE, min_size=1, max_size=3), max_size=9),
    st.integers(1, 4),
    st.sampled_from(",\t"),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_values_keep_their_commas_quotes_and_line_breaks(
    others: list[str],
    records: list[list[str]],
    part_rows: int,
    delimiter: str,
    line_end: str,
    marked: bool,
) -> None:
    """Rows may be shorter than the header, wherever they are in a part."""
    header = [*others, "text"]
    records = [record[: len(header)] for record in records]
    file = io.StringIO(newline="")
    # In quotes: Python's writer forgets those that a carriage return alone needs.
    writer = csv.writer(file, delimiter=delimiter, lineterminator=line_end, quoting=csv.QUOTE_ALL)
    writer.writerows([header, *records])
    content = file.getvalue().encode("utf-8-sig" if marked else "utf-8")
    format = Csv(delimiter)
    output = written(format, parts(format, content, part_rows, "text"), "text").decode()
    found = list(csv.reader(io.StringIO(output, newline=""), delimiter=delimiter, strict=True))
    whole = [[*record, *[""] * (len(header) - len(record))] for record in records]
    new = [] if "new" in header else ["new"]
    assert found[0] == [*header, *new]
    expected = [[*record, *[""] * len(new)] for record in whole]
    for record, each in zip(expected, whole, strict=True):
        record[found[0].index("new")] = f"[{each[-1]}]"
    assert found[1:] == expected


@pytest.mark.parametrize(
    ("name", "content", "errors"),
    [
        ("text", b"a\n\xff\nb\n", {1: "not valid UTF-8 at byte 1"}),
        (
            "jsonl",
            b'{"text": "a"}\n[]\n{"text": 3}\n',
            {1: "not an object", 2: "text: not a string"},
        ),
        ("jsonl", b'{"text": "\\ud800"}\n', {0: "text: half of a surrogate pair"}),
        ("csv", b"id,text\n1,\xff\n", {0: "text: not valid UTF-8"}),
    ],
)
def test_rows_that_are_wrong_stay_with_a_reason(
    name: str, content: bytes, errors: dict[int, str]
) -> None:
    format = FORMATS[name][0]
    [rows] = parts(format, content, 100, "text")
    assert rows.errors == errors
    assert {index for index, text in enumerate(rows.texts["text"]) if text is None} == errors.keys()
    output = written(format, [rows], "text")
    assert output.count(b"\n") == content.count(b"\n")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("jsonl", b'{"n": 1.10, "text":"a" }\n', b'{"n": 1.10, "text":"a", "new": "[a]"}\n'),
        ("jsonl", b'{"new": 1, "text": "a"}\n', b'{"new": "[a]", "text": "a"}\n'),
        (
            "jsonl",
            b' {"new":[1e999, {"new": 2}],"n":12345678901234567.89,"n" : 1e999 , "text":"a"}\r\n',
            b' {"new":"[a]","n":12345678901234567.89,"n" : 1e999 , "text":"a"}\n',
        ),
        (
            "jsonl",
            b'{"new": 1, "\\u006eew": null, "s": "\\ud800", "text": "a"}\n',
            b'{"new": "[a]", "\\u006eew": "[a]", "s": "\\ud800", "text": "a"}\n',
        ),
        (
            "jsonl",
            b'{"n": 1e999, "n": 1,"text":"a"}\n',
            b'{"n": 1e999, "n": 1,"text":"a", "new": "[a]"}\n',
        ),
        ("csv", b"text\nhello\n\nworld\n", b"text,new\nhello,[hello]\n,[]\nworld,[world]\n"),
        ("csv", b"\ntext\n\n\na\n\n", b"text,new\n,[]\n,[]\na,[a]\n,[]\n"),
        ("csv", b"id,text\n1,a\n\n2,b\n", b"id,text,new\n1,a,[a]\n2,b,[b]\n"),
        ("csv", b"Stra\xdfe,text\n1,a\n", b"Stra\xdfe,text,new\n1,a,[a]\n"),
        ("csv", b"new,text\n1,a\n", b"new,text\n[a],a\n"),
        ("csv", b"id,id,text\n1,2,a\n", b"id,id,text,new\n1,2,a,[a]\n"),
        ("csv", b"id,x,text\n1\n", b"id,x,text,new\n1,,,[]\n"),
        ("csv", b"id,text\n", b"id,text,new\n"),
    ],
)
def test_other_values_stay_and_older_translations_do_not(
    name: str, content: bytes, expected: bytes
) -> None:
    format = FORMATS[name][0]
    assert written(format, parts(format, content, 9, "text"), "text") == expected


def test_a_line_that_is_no_json_stays_and_says_why() -> None:
    [rows] = parts(FORMATS["jsonl"][0], b"{\n", 1, "text")
    assert rows.errors[0].startswith("not JSON: ")
    assert written(FORMATS["jsonl"][0], [rows], "text") == b"{\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'id,text\n1,"a\n2,b\n', "not CSV at line 3: unexpected end of data"),
        (b"id,text\n1,a\n2,b,c\n", "not CSV at line 3: 3 values in 2 columns"),
    ],
)
def test_rows_that_would_be_lost_are_an_error_of_the_file(content: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        list(Csv(",").extents(io.BytesIO(content), hashlib.sha256(), 1))


def test_a_member_that_no_object_has_is_an_error() -> None:
    with pytest.raises(FormatError, match="none of the first 1 rows has a member 'txet'"):
        FORMATS["jsonl"][0].read(io.BytesIO(b'{"text": "a"}\n'), Extent(0, 14, 1), ["txet"])


def test_a_missing_column_is_named_with_those_there_are() -> None:
    with pytest.raises(FormatError, match="no column 'text'; there are id, body"):
        Csv(",").read(io.BytesIO(b"id,body\n1,a\n"), Extent(8, 12, 1), ["text"])
    with pytest.raises(FormatError, match="several columns 'a'; there are a, a"):
        Csv(",").read(io.BytesIO(b"a,a\n1,a\n"), Extent(4, 8, 1), ["a"])


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("a.txt", "text"),
        ("A.JSONL", "jsonl"),
        ("a.csv.gz", "csv"),
        ("a.tsv", "tsv"),
        ("a.parquet", "parquet"),
        ("a.docx", ""),
    ],
)
def test_formats_are_known_by_names(file: str, name: str) -> None:
    assert format_name(file) == name
