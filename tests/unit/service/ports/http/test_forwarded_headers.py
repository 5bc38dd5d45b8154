"""The headers of proxies are believed from trusted ones only."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from service.errors import StartupError
from service.ports.http.forwarded_headers import ForwardedHeaders

HEADERS = [
    (b"host", b"inner:8000"),
    (b"x-forwarded-for", b"198.51.100.7, 203.0.113.9"),
    (b"x-forwarded-proto", b"https"),
    (b"x-forwarded-host", b"translate.example.org"),
]


async def seen(proxies: list[str], peer: str, **headers: str) -> tuple[str, str, str]:
    """The client, the scheme and the host that an application sees."""
    given = dict(HEADERS) | {
        name.replace("_", "-").encode(): value.encode() for name, value in headers.items()
    }
    got = await answered(proxies, peer, list(given.items()))
    return got["client"][0], got["scheme"], dict(got["headers"])[b"host"].decode()


async def answered(proxies: list[str], peer: str, headers: list[tuple[bytes, bytes]]) -> Scope:
    """The request that an application sees."""
    found: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        found.append(scope)

    scope: dict[str, Any] = {"type": "http", "scheme": "http", "client": (peer, 1234)}
    await ForwardedHeaders(app, proxies)({**scope, "headers": headers}, None, None)  # type: ignore[arg-type]
    [got] = found
    return got


@pytest.mark.parametrize("proxies", [["10.0.0.0/8"], ["192.0.2.1", "10.1.2.3"], ["*"]])
async def test_a_trusted_proxy_is_believed(proxies: list[str]) -> None:
    client = "198.51.100.7" if proxies == ["*"] else "203.0.113.9"
    assert await seen(proxies, "10.1.2.3") == (client, "https", "translate.example.org")


async def test_others_are_not() -> None:
    assert await seen(["10.0.0.0/8"], "192.0.2.8") == ("192.0.2.8", "http", "inner:8000")


async def test_proxies_in_a_row() -> None:
    client, _, _ = await seen(["10.0.0.0/8", "203.0.113.9"], "10.1.2.3")
    assert client == "198.51.100.7"


@pytest.mark.parametrize(
    ("client", "protos", "hosts", "scheme", "host"),
    [
        ("192.0.2.7, 10.0.0.2", "https,http", "a.example, inner", "https", "a.example"),
        ("192.0.2.7, 10.0.0.2", "HTTPS , http", "a.example", "https", "a.example"),
        ("192.0.2.7", "https, http", "a.example, inner", "http", "inner"),
        # The client has sent headers itself, which the first proxy has kept.
        ("10.9.9.9, 192.0.2.7, 10.0.0.2", "http,https,http", "evil, a, inner", "https", "a"),
        # Two of three proxies name a scheme.
        ("192.0.2.7, 10.0.0.2, 10.0.0.3", "https,http", "a.example", "https", "a.example"),
    ],
)
async def test_schemes_and_hosts_of_proxies_in_a_row(
    client: str, protos: str, hosts: str, scheme: str, host: str
) -> None:
    found = await seen(
        ["10.0.0.0/8"],
        "10.1.2.3",
        x_forwarded_for=client,
        x_forwarded_proto=protos,
        x_forwarded_host=hosts,
    )
    assert found == ("192.0.2.7", scheme, host)


async def test_schemes_of_proxies_that_name_no_client() -> None:
    headers = [(b"host", b"inner"), (b"x-forwarded-proto", b"https,http")]
    assert (await answered(["10.0.0.0/8"], "10.1.2.3", headers))["scheme"] == "https"


async def test_forwarded_of_proxies_in_a_row() -> None:
    value = b'for=192.0.2.7;proto=https;host="a.example", for=10.0.0.2;host=inner'
    got = await answered(["10.0.0.0/8"], "10.1.2.3", [HEADERS[0], (b"forwarded", value)])
    assert (got["client"][0], got["scheme"]) == ("192.0.2.7", "https")
    assert dict(got["headers"])[b"host"] == b"a.example"


@pytest.mark.parametrize("bad", ["unknown", "", "a" * 10_000, "1.2.3.4.5"])
async def test_what_is_no_address_leaves_that_of_the_proxy(bad: str) -> None:
    client, scheme, _ = await seen(["10.0.0.0/8"], "10.1.2.3", x_forwarded_for=bad)
    assert (client, scheme) == ("10.1.2.3", "https")


@pytest.mark.parametrize("value", ["203.0.113.9:4711", "[2001:db8::1]:4711", "2001:db8::1"])
async def test_ports_are_left_out(value: str) -> None:
    client, _, _ = await seen(["10.0.0.0/8"], "10.1.2.3", x_forwarded_for=value)
    assert client in ("203.0.113.9", "2001:db8::1")


@pytest.mark.parametrize(
    ("value", "prefix"),
    [(b"/mt", "/mt"), (b"/a, /mt/", "/mt"), (b"/", ""), (b"//evil.example", ""), (b"mt\xff", "")],
)
async def test_a_trusted_proxy_names_the_prefix(value: bytes, prefix: str) -> None:
    headers = [*HEADERS, (b"x-forwarded-prefix", value)]
    assert (await answered(["*"], "10.1.2.3", headers)).get("root_path", "") == prefix
    assert "root_path" not in await answered(["10.0.0.0/8"], "192.0.2.8", headers)


FORWARDED = (
    b'for="[2001:db8::1]:4711";proto=http, For=203.0.113.9;by=10.1.2.3;host="a.example";PROTO=https'
)


async def test_forwarded_is_read_without_the_others() -> None:
    host = HEADERS[:1]
    got = await answered(["10.0.0.0/8"], "10.1.2.3", [*host, (b"forwarded", FORWARDED)])
    assert (got["client"][0], got["scheme"]) == ("203.0.113.9", "https")
    assert dict(got["headers"])[b"host"] == b"a.example"
    got = await answered(["10.0.0.0/8"], "192.0.2.8", [*host, (b"forwarded", FORWARDED)])
    assert (got["client"][0], got["scheme"]) == ("192.0.2.8", "http")
    both = [*HEADERS, (b"forwarded", b"for=192.0.2.1;host=b.example")]
    got = await answered(["10.0.0.0/8"], "10.1.2.3", both)
    assert got["client"][0] == "203.0.113.9"
    assert dict(got["headers"])[b"host"] == b"translate.example.org"


@pytest.mark.parametrize(
    "bad", [b"", b"for", b"for=unknown", b'for="_hidden', b";;,=", b"for=" * 999]
)
async def test_a_bad_forwarded_leaves_the_proxy(bad: bytes) -> None:
    got = await answered(["10.0.0.0/8"], "10.1.2.3", [*HEADERS[:1], (b"forwarded", bad)])
    assert (got["client"][0], got["scheme"]) == ("10.1.2.3", "http")


@pytest.mark.parametrize("bad", ["proxy.example", "10.0.0.1/8", ""])
def test_a_proxy_is_an_address_or_a_network(bad: str) -> None:
    with pytest.raises(StartupError, match="http_trusted_proxies"):
        ForwardedHeaders(None, [bad])  # type: ignore[arg-type]
