"""Escapes of URLs and forms, as the standard library reads them."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidArgumentError
from service.fronts.http import url_escapes
from service.fronts.http.fields import parse_form
from service.fronts.http.url_escapes import unescaped

pieces = st.sampled_from(
    [b"%", b"%4", b"%41", b"%c3%A4", b"%%", b"%zz", b"a", b"\xff", b"%00", b"f"]
)
data = st.lists(pieces, max_size=60).map(b"".join)


@given(data, st.integers(3, 20))
def test_escapes_wherever_blocks_end(given: bytes, size: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(url_escapes, "_SHORT_BYTES", 0)
        patched.setattr(url_escapes, "_BLOCK_BYTES", size)
        assert unescaped(given) == unquote_to_bytes(given)


@pytest.mark.parametrize("piece", [b"%41", b"%c3%a4x", b"%", b"%%%", b"%4", b"a"])
def test_long_values(piece: bytes) -> None:
    long = piece * (300_000 // len(piece))
    assert unescaped(long) == unquote_to_bytes(long)


fields = st.sampled_from(
    ["a", "=", "&", "+", "%26", "%3D", "%c3%a4", "%e4", "[]", "%", ";", "ä", "b"]
)


@given(st.lists(fields, max_size=30).map("".join))
def test_a_form_is_what_the_standard_library_reads(text: str) -> None:
    try:
        expected = parse_qsl(
            text.encode().decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=9
        )
    except ValueError:
        with pytest.raises(InvalidArgumentError, match="body"):
            parse_form(text.encode(), 9)
        return
    found = parse_form(text.encode(), 9)
    assert {name: found.texts(name) for name in found._values} == {
        name: [value for other, value in expected if other.removesuffix("[]") == name]
        for name in {name.removesuffix("[]") for name, _ in expected}
    }
