"""TLS of a client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

_PYTHON_NAMES = {
    "tls": "tls=Tls()",
    "ca": "Tls(ca=...)",
    "cert": "Tls(cert=..., key=...)",
    "server_name": "Tls(server_name=...)",
}
COMMAND_NAMES = {
    "tls": "--tls or --ca",
    "ca": "--ca",
    "cert": "--cert and --key",
    "server_name": "--server-name",
}
"""The options of the commands for `connection_hint`."""

_CLIENT_CERTIFICATE = (
    "a client's certificate ({cert}) that is valid and of an authority that it trusts"
)
# Signs in gRPC's message about a connection that failed, in order, with what to try.
_HINTS = {
    "WRONG_VERSION_NUMBER": "the server speaks plain text: connect without TLS",
    "certificate has expired": "the server's certificate has expired: replace it",
    "certificate is not yet valid": "the server's certificate is not valid yet: check the clocks",
    "CERTIFICATE_VERIFY_FAILED": "the server's certificate is not trusted: give its authority's "
    "({ca})",
    "Hostname Verification": "the server's certificate is for another name: give that "
    "({server_name})",
    "_ALERT_": f"the server refused the TLS handshake; does it need {_CLIENT_CERTIFICATE}?",
    "missing selected ALPN": "the port speaks HTTPS, not gRPC: give that of gRPC",
    "http1.x": "the port speaks HTTP, not gRPC: give that of gRPC",
    "Tls handshake failed": "the TLS handshake failed; does the server speak TLS on this port?",
}
# All that a client sees of a server that speaks TLS, or that wants a certificate.
_DROPPED = (
    *("Socket closed", "reset by peer", "Broken pipe", "End of TCP stream", "Endpoint closing"),
    "before receiving SETTINGS",
)
_DROPPED_HINT = (
    f"the server closed the connection; does it need TLS ({{tls}}), or {_CLIENT_CERTIFICATE}?"
)
# The beginning of a message about a connection that could not be made, not about one that was lost.
_NOT_CONNECTED = "last error: "


@dataclass(frozen=True)
class Tls:
    """TLS options of a client.

    Args:
        ca: file with the certificates of the authorities to trust (PEM); by default those that
            gRPC comes with.
        cert, key: files with the client's own certificate and its private key (PEM), for servers
            that ask for one (mutual TLS).
        server_name: the name in the server's certificate, if its address is another.

    Raises:
        ValueError: only one of `cert` and `key` is given.
    """

    ca: str | Path = ""
    cert: str | Path = ""
    key: str | Path = ""
    server_name: str = ""

    def __post_init__(self) -> None:
        if bool(self.cert) != bool(self.key):
            raise ValueError("tls: cert and key belong together; one of them is missing")

    def credentials(self) -> grpc.ChannelCredentials:
        """Credentials for a channel. Raises ValueError, which names a file that can't be read."""
        ca, cert, key = (_read(name, getattr(self, name)) for name in ("ca", "cert", "key"))
        return grpc.ssl_channel_credentials(ca, key, cert)


def open_channel(
    kind: Any, server: str, tls: Tls | None, options: Sequence[tuple[str, str | int]]
) -> Any:
    """A channel to a server.

    Args:
        kind: `grpc` or `grpc.aio`.
        server: its address.
        tls: TLS options; None for plain text.

    Raises:
        ValueError: a file of `tls` can't be read.
    """
    if tls is None:
        return kind.insecure_channel(server, options=options)
    if tls.server_name:
        options = [*options, ("grpc.ssl_target_name_override", tls.server_name)]
    return kind.secure_channel(server, tls.credentials(), options=options)


def connection_hint(message: str, names: Mapping[str, str] = _PYTHON_NAMES) -> str:
    """The likely cause of a failed connection, such as TLS on one side, and a remedy; or "".

    Args:
        message: text of gRPC's error.
        names: options of TLS in the words of the caller, by the fields of `Tls`, and `tls`.
    """
    hints = (hint for sign, hint in _HINTS.items() if sign in message)
    is_dropped = _NOT_CONNECTED in message and any(sign in message for sign in _DROPPED)
    return next(hints, _DROPPED_HINT if is_dropped else "").format_map(names)


def _read(name: str, file: str | Path) -> bytes | None:
    if not file:
        return None
    try:
        found = Path(file).read_bytes()
    except OSError as exc:
        raise ValueError(f"tls: {name}: {file}: {exc.strerror or exc}") from exc
    if b"-----BEGIN " not in found:
        raise ValueError(f"tls: {name}: {file} holds nothing in PEM")
    return found
