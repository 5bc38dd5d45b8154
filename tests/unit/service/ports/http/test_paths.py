"""Paths with slashes too many, and with the prefix of a proxy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from service.errors import StartupError
from service.ports.http.paths import checked_prefix, plain_path, with_origin_form


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


@pytest.mark.parametrize(
    ("target", "path", "host"),
    [
        ("http://a.example/translate", "/translate", "a.example"),
        ("HTTPS://a.example:8000/a%20b", "/a b", "a.example:8000"),
        ("http://[::1]:80", "/", "[::1]:80"),
        ("/http://a.example/", "/http://a.example/", "b.example"),
        ("http:///translate", "http:///translate", "b.example"),
        ("ftp://a.example/", "ftp://a.example/", "b.example"),
        ("*", "*", "b.example"),
    ],
)
async def test_the_url_of_a_target_has_the_path_and_the_host(
    target: str, path: str, host: str
) -> None:
    found: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        found.append(scope)

    headers = [(b"accept", b"*/*"), (b"host", b"b.example")]
    scope = {"raw_path": target.encode(), "path": target, "headers": headers}
    await with_origin_form(app)(scope, None, None)  # type: ignore[arg-type]
    [got] = found
    assert (got["path"], dict(got["headers"])[b"host"].decode()) == (path, host)
    assert dict(got["headers"])[b"accept"] == b"*/*"
