"""Names of servers as people write them."""

import pytest
from typer.testing import CliRunner

from cli.main import app
from cli.options import DEFAULT_SERVER
from dragoman import addresses
from dragoman.addresses import server_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:7000", "127.0.0.1:7000"),
        ("localhost", "localhost:50051"),
        ("dns", "dns:50051"),
        ("unix:50052", "unix:50052"),
        ("::1", "[::1]:50051"),
        ("[::1]", "[::1]:50051"),
        ("[::1]:7000", "[::1]:7000"),
        ("dns:///dragoman", "dns:///dragoman:50051"),
        ("dns:///dragoman:7000", "dns:///dragoman:7000"),
        ("dns://8.8.8.8/dragoman", "dns://8.8.8.8/dragoman:50051"),
        ("unix:/run/dragoman.sock", "unix:/run/dragoman.sock"),
        ("ipv4:10.0.0.1:7000,10.0.0.2:7000", "ipv4:10.0.0.1:7000,10.0.0.2:7000"),
    ],
)
def test_an_address_without_a_port_gets_ours(text: str, address: str) -> None:
    assert server_address(text) == address


@pytest.mark.parametrize(
    "text",
    ["", "http://localhost:50051", "https://a", "localhost:", ":50051", "a:b", "a:0", "a:65536"],
)
def test_what_names_no_server_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        server_address(text)


def test_a_url_gets_one_clear_line() -> None:
    result = CliRunner().invoke(app, ["models", "--server", "http://localhost:50051"])
    assert result.exit_code == 2
    assert result.stderr == (
        "dragoman: --server: must be HOST:PORT, such as 127.0.0.1:50051, "
        "not 'http://localhost:50051'\n"
    )


def test_the_default_is_the_client_s() -> None:
    assert DEFAULT_SERVER == addresses.DEFAULT_SERVER
