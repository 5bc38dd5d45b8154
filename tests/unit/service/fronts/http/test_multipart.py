"""Bodies in multipart/form-data: what is written is read, and anything else is refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidArgumentError
from service.fronts.http.fields import NamedFile
from service.fronts.http.multipart import parse_multipart

BOUNDARY = "X-bound"
KIND = f'multipart/form-data; boundary="{BOUNDARY}"'

names = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=9)
# Near the boundary, where parsers go wrong.
contents = st.lists(
    st.sampled_from([b"\r\n", b"--", BOUNDARY.encode()[:-1], b"\r", b"\0", b"a", b"\xff"]),
    max_size=20,
).map(b"".join)
parts = st.lists(st.tuples(names, st.none() | names, contents), max_size=5)


def body(fields: list[tuple[str, str | None, bytes]]) -> bytes:
    """As clients write it."""
    written = b""
    for name, file, content in fields:
        given = f'; filename="{file}"' if file else ""
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{given}\r\n\r\n'
        written += head.encode() + content + b"\r\n"
    return written + f"--{BOUNDARY}--\r\n".encode()


@given(parts)
def test_files_come_back_byte_by_byte(fields: list[tuple[str, str | None, bytes]]) -> None:
    files = {name: (file or "f", content) for name, file, content in fields}
    found = parse_multipart(body([(name, *file) for name, file in files.items()]), KIND)
    for name, (file, content) in files.items():
        assert found.file(name) == NamedFile(file, content)


def test_texts_and_several_of_one_name() -> None:
    fields = parse_multipart(
        body([("q[]", None, "ä".encode()), ("q[]", None, b""), ("source", None, b"en")]), KIND
    )
    assert fields.texts("q") == ["ä", ""]
    assert fields.text("source") == "en"
    with pytest.raises(InvalidArgumentError, match="source: must be a file"):
        fields.file("source")


@given(parts, st.integers(0, 10**6), st.binary(max_size=9))
def test_damaged_bodies_are_refused_or_read(
    fields: list[tuple[str, str | None, bytes]], place: int, noise: bytes
) -> None:
    data = body(fields)
    place %= len(data)
    with contextlib.suppress(InvalidArgumentError):
        parse_multipart(data[:place] + noise + data[place + 1 :], KIND)


@pytest.mark.parametrize(
    ("data", "kind", "word"),
    [
        (body([]), "multipart/form-data", "boundary"),
        (body([]), f"multipart/form-data; boundary={'x' * 300}", "Boundary"),
        (b"", KIND, "cut off"),
        (body([("a", "b", b"c")])[:-12], KIND, "cut off"),
        (b"{}", KIND, "not multipart/form-data"),
        (body([("a", None, b"\xff")]), KIND, "a: not UTF-8"),
        (body([("a", None, b"")] * 1001), KIND, "1,000 parts"),
        (body([("a" * 3000, None, b"")]), KIND, "not multipart/form-data"),
        (body([("a", None, b"")]).replace(b"form-data;", b"x;"), KIND, "content-disposition"),
        (
            body([("a", None, b"")]).replace(b"\r\n\r\n", b"\r\nA: b" * 9 + b"\r\n\r\n"),
            KIND,
            "eader",
        ),
    ],
)
def test_bad_bodies(data: bytes, kind: str, word: str) -> None:
    with pytest.raises(InvalidArgumentError, match=word):
        parse_multipart(data, kind)


def test_a_bad_body_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InvalidArgumentError, match="multipart"):
        parse_multipart(b"-" * 100, KIND)
    assert not caplog.records
