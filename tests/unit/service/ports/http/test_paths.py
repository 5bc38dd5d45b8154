"""Paths with slashes too many, and with the prefix of a proxy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import StartupError
from service.ports.http.paths import checked_prefix, plain_path


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("/translate", "/translate"),
        ("//translate", "/translate"),
        ("/translate/", "/translate"),
        ("/v2//translate", "/v2/translate"),
        ("/mt/translate", "/translate"),
        ("/mt//translate", "/translate"),
        ("//mt/translate/", "/translate"),
        ("/mt", "/"),
        ("/mt/", "/"),
        ("/", "/"),
        ("//", "/"),
        ("/mtx", "/mtx"),
    ],
)
def test_paths(path: str, plain: str) -> None:
    assert plain_path({"path": path}, "/mt") == plain


@given(path=st.text("/mta", max_size=20), prefix=st.sampled_from(["", "/mt", "/a/mt"]))
def test_a_path_begins_with_one_slash(path: str, prefix: str) -> None:
    plain = plain_path({"path": f"/{path}"}, prefix)
    assert plain.startswith("/")
    assert "//" not in plain


@pytest.mark.parametrize(
    ("given", "prefix"), [("/", ""), ("/mt", "/mt"), ("/mt/", "/mt"), ("/a/b-c", "/a/b-c")]
)
def test_prefixes(given: str, prefix: str) -> None:
    assert checked_prefix(given) == prefix


@pytest.mark.parametrize("bad", ["mt", "/a b", "/a//b", "http://x/mt", "/a?b", "/ä"])
def test_what_is_no_path_is_refused(bad: str) -> None:
    with pytest.raises(StartupError, match="http_prefix"):
        checked_prefix(bad)
