"""TLS of a client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc


@dataclass(frozen=True)
class Tls:
    """How a client connects to a server that speaks TLS.

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
        """For a channel. Raises ValueError for a file that can't be read; names it."""
        ca, cert, key = (_read(name, getattr(self, name)) for name in ("ca", "cert", "key"))
        return grpc.ssl_channel_credentials(ca, key, cert)


def open_channel(
    kind: Any, server: str, tls: Tls | None, options: Sequence[tuple[str, str | int]]
) -> Any:
    """A channel to a server.

    Args:
        kind: `grpc` or `grpc.aio`.
        server: its address.
        tls: None for plain text.
        options: of the channel.

    Raises:
        ValueError: a file of `tls` can't be read.
    """
    if tls is None:
        return kind.insecure_channel(server, options=options)
    if tls.server_name:
        options = [*options, ("grpc.ssl_target_name_override", tls.server_name)]
    return kind.secure_channel(server, tls.credentials(), options=options)


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
