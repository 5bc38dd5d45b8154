"""The client's API key: what it may be, and where it may go."""

import warnings

import pytest

from dragoman import requests
from dragoman.addresses import is_local
from dragoman.client import Client


@pytest.mark.parametrize(
    "address",
    ["localhost:1", "127.0.0.1:50051", "127.8.8.8:1", "[::1]:7", "dns:///localhost:1", "unix:/a"],
)
def test_addresses_of_this_machine(address: str) -> None:
    assert is_local(address)


@pytest.mark.parametrize(
    "address",
    [
        "example.org:1",
        "localhost.example.org:1",
        "127.0.0.1.example.org:1",
        "dns:///dragoman:50051",
        "dns://1.1.1.1/example.org:1",
        "10.0.0.1:1",
        "ipv4:127.0.0.1:1,10.0.0.1:1",
        "xds:///x",
    ],
)
def test_addresses_of_others(address: str) -> None:
    assert not is_local(address)


def test_a_key_on_the_network_is_a_warning_without_the_key() -> None:
    with pytest.warns(UserWarning, match="unencrypted") as caught:
        Client("example.org:50051", api_key="secret").close()
    assert "secret" not in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Client("127.0.0.1:50051", api_key="secret").close()
        Client("example.org:50051").close()


@pytest.mark.parametrize("key", ["two words", "ümlaut", "x\n", "x" * 9000])
def test_what_is_no_key_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(ValueError, match=r"^api_key: ") as caught:
        requests.key_metadata(key)
    assert key not in str(caught.value)
