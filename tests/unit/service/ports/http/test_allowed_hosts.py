"""Which requests are from this server's own pages, from programs, and from pages of other sites."""

import ipaddress
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.errors import StartupError
from service.fronts.http.answers import HttpError
from service.ports.http.allowed_hosts import AllowedHosts, checked_origin

PUBLIC, APP, EVIL = "public.example", "https://app.example.org", "https://evil.example"
LOOPBACK = AllowedHosts("127.0.0.1", [PUBLIC], [APP])
OPEN = AllowedHosts("0.0.0.0")


def status(hosts: AllowedHosts, *, is_call: bool = True, **headers: str) -> int:
    """The status that refuses a request with these headers; 200 if the check lets it pass."""
    raw = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    try:
        hosts.check(raw, is_call=is_call)
    except HttpError as refusal:
        return refusal.http_status
    return 200


def names(host: str) -> str:
    """The host that a URL with this authority asks, to Python's reader of URLs; "" if none."""
    try:
        return (urlsplit(f"http://{host}/").hostname or "").lower()
    except ValueError:
        return ""


def is_own(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in ("localhost", PUBLIC)
    return True


# Pieces that a careless reader of hosts takes for the end, or the beginning, of an allowed one.
PIECES = st.sampled_from(
    (
        *(
            "[::1]",
            "[",
            "]",
            ":",
            "::1",
            "127.0.0.1",
            "localhost",
            PUBLIC,
            "evil.example",
            "[v1.x]",
        ),
        *(".", "@", "80", "/", "?", "#", "\\", "%00", "%2e", "\t", " ", ",", "-", "[::1%25lo]"),
    )
)


@given(st.lists(PIECES, min_size=1, max_size=5).map("".join))
@example("[::1]evil.example")
@example("[::1]:80evil.example")
@example("localhost:80@evil.example")
@example("127.0.0.1.evil.example")
def test_a_host_that_passes_is_one_of_the_allowed(host: str) -> None:
    found = status(LOOPBACK, host=host)
    if found == 200:
        assert is_own(names(host))
    if status(OPEN, host=host) == 400:  # no host at all is none anywhere
        assert found == 400


@given(st.ip_addresses(), st.none() | st.integers(0, 65535))
def test_any_address_may_be_asked(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int | None
) -> None:
    host = f"[{address}]" if address.version == 6 else str(address)
    assert status(LOOPBACK, host=host if port is None else f"{host}:{port}") == 200


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *[(host, 200) for host in ("localhost", "LOCALHOST:8000", "[::1]:", f"{PUBLIC}:443", "")],
        *[(host, 403) for host in ("evil.example", "localhost.", "127.1", "2130706433", "a_b:80")],
        *[
            (host, 400)
            for host in ("[::1]evil.example", "::1", "[:::]", "a b", "a:b", "u@localhost")
        ],
        *[
            (host, 400)
            for host in ("localhost:800000", "http://localhost", "localhost/", "[127.0.0.1]")
        ],
    ],
)
def test_hosts(host: str, expected: int) -> None:
    assert status(LOOPBACK, host=host) == expected
    assert status(OPEN, host=host) == (400 if expected == 400 else 200)


def test_names_of_the_settings_are_hosts() -> None:
    assert status(AllowedHosts("127.0.0.1", ["Other.Example:8000"]), host="other.example") == 200
    for bad in ("https://other.example", "other.example/", "[::1]x", ""):
        with pytest.raises(StartupError, match="http_allowed_hosts"):
            AllowedHosts("127.0.0.1", [bad])


@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
def test_a_page_of_another_site_causes_no_work_unseen(site: str) -> None:
    """As an image's URL does, or a form with the method GET: without `Origin`."""
    sent: dict[str, Any] = {"host": "localhost:8000", "sec_fetch_site": site}
    for hosts in (LOOPBACK, OPEN):
        assert status(hosts, **sent) == 403
        assert status(hosts, **sent, referer=f"{EVIL}/page") == 403
        assert status(hosts, **sent, is_call=False) == 200  # a link to the page
    assert status(LOOPBACK, **sent, referer=f"{APP}/page?x#y") == 200
    assert status(LOOPBACK, **sent, referer=f"{APP}@evil.example/") == 403
    assert status(LOOPBACK, **sent, referer=f"{APP}.evil.example/") == 403
    assert status(LOOPBACK, **sent, referer=f"{APP}/", origin=EVIL) == 403
    assert status(AllowedHosts("127.0.0.1", (), ["*"]), **sent) == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"referer": f"{EVIL}/"},  # of a program: no browser that sends it leaves the other out
        {"sec_fetch_site": "none"},
        {"sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "same-origin", "origin": "http://localhost:8000"},
        {"sec_fetch_site": "cross-site", "origin": APP},
    ],
)
def test_programs_and_own_pages_may_ask(headers: dict[str, Any]) -> None:
    assert status(LOOPBACK, host="localhost:8000", **headers) == 200


@pytest.mark.parametrize(
    "origin",
    ["app.example.org", "https://app.example.org/", "https://a b", "https://u@h", "", "**"],
)
def test_what_is_no_origin_stops_the_start(origin: str) -> None:
    with pytest.raises(StartupError, match="http_allow_origin"):
        checked_origin(origin)


def test_an_open_server_may_be_asked_by_any_name() -> None:
    assert status(OPEN, host="other.example:1", origin="http://other.example:1") == 200
    assert status(OPEN, host="localhost:1", origin="http://other") == 403
    assert status(AllowedHosts("0.0.0.0", [PUBLIC]), host="other.example:1") == 403
