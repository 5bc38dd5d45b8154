"""Hints for messages of gRPC about connections, most of which `test_tls.py` provokes."""

import pytest

from dragoman.tls import COMMAND_NAMES, connection_hint

FAILED = "connections to all backends failing; last error: UNAVAILABLE: ipv4:127.0.0.1:1: "


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (f"{FAILED}Socket closed", "does it need TLS (--tls or --ca)"),
        (f"{FAILED}recvmsg:Connection reset by peer", "does it need TLS"),
        (f"{FAILED}connection attempt timed out before receiving SETTINGS frame", "need TLS"),
        (f"{FAILED}Tls handshake failed: TLSV13_ALERT_CERTIFICATE_REQUIRED", "--cert and --key"),
        (f"{FAILED}Tls handshake failed (TSI_PROTOCOL_FAILURE)", "does the server speak TLS"),
        (f"{FAILED}CERTIFICATE_VERIFY_FAILED: certificate is not yet valid", "clocks"),
        (f"{FAILED}Cannot check peer: missing selected ALPN property.", "HTTPS, not gRPC"),
        (f"{FAILED}Trying to connect an http1.x server (HTTP status 400)", "HTTP, not gRPC"),
        (f"{FAILED}connect: Connection refused (111)", ""),
        ("Socket closed", ""),  # of a server that died within a call
        ("the server is draining", ""),
    ],
)
def test_hints(message: str, words: str) -> None:
    found = connection_hint(message, COMMAND_NAMES)
    assert words in found
    assert bool(words) == bool(found)
