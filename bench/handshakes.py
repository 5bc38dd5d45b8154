"""Memory of a server whose clients fail in the TLS handshake.

    python -m bench.handshakes --port http --kind alert --blocks 10 --block 2000

It starts the server of the shipped model with a certificate of its own, lets handshakes fail over
loopback, and prints the resident memory of the server after each block. Memory that is taken once
levels off; a leak does not.

Kinds of failures: "alert" (the client does not trust the certificate), "plain" (bytes that are no
TLS), "gone" (the client resets the connection in the middle of the handshake), or "mixed".
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from bench.processes import status_bytes
from bench.suite.systems import ROOT, environment

_AT_ONCE = 8
_SECONDS = 20.0  # of one handshake
_RESET = struct.pack("ii", 1, 0)


def _connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=_SECONDS)


def _alert(port: int) -> None:
    """Refuse the certificate, which is of an authority that nobody trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with _connect(port) as connection, contextlib.suppress(OSError):
        context.wrap_socket(connection, server_hostname="localhost")


def _plain(port: int) -> None:
    """Speak HTTP without TLS."""
    with _connect(port) as connection, contextlib.suppress(OSError):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while connection.recv(4096):
            pass


def _gone(port: int) -> None:
    """Reset the connection once the server has answered the first message."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    with _connect(port) as connection, contextlib.suppress(OSError):
        connection.sendall(outgoing.read())
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


_KINDS: dict[str, Sequence[Callable[[int], None]]] = {
    "alert": (_alert,),
    "plain": (_plain,),
    "gone": (_gone,),
    "mixed": (_alert, _plain, _gone),
}


def _fail(port: int, kinds: Sequence[Callable[[int], None]], count: int) -> None:
    """So many handshakes, some at once."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(lambda number: kinds[number % len(kinds)](port), range(count)):
            pass


@contextlib.contextmanager
def _server() -> Iterator[tuple[int, dict[str, int]]]:
    """A server with TLS: its process, and its ports by name."""
    with tempfile.TemporaryDirectory(prefix="handshakes-") as folder:
        certificate, key = Path(folder, "cert.pem"), Path(folder, "key.pem")
        subprocess.run(
            [
                *(
                    "openssl",
                    "req",
                    "-x509",
                    "-newkey",
                    "ec",
                    "-pkeyopt",
                    "ec_paramgen_curve:P-256",
                ),
                *("-nodes", "-days", "2", "-subj", "/CN=localhost"),
                *("-keyout", str(key), "-out", str(certificate)),
            ],
            check=True,
            capture_output=True,
        )
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "cli.main", "serve", "--log-format", "json"),
                *("--port", "0", "--metrics-port", "0", "--http-port", "0"),
                *("--tls-cert", str(certificate), "--tls-key", str(key)),
            ],
            cwd=ROOT,
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stderr is not None
            entries = map(json.loads, process.stderr)
            served = next(entry for entry in entries if entry["message"] == "serving")
            # The rest of the log is read and dropped, so that the server never waits.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            addresses = {"grpc": f"//{served['address']}"}
            addresses |= {name: served[name] for name in ("http", "metrics")}
            yield process.pid, {name: urlsplit(at).port or 0 for name, at in addresses.items()}
        finally:
            process.terminate()
            process.wait()


def main() -> None:
    """Print the memory after each block."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", choices=["http", "grpc", "metrics"], default="http")
    parser.add_argument("--kind", choices=list(_KINDS), default="mixed")
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--block", type=int, default=2000, help="handshakes of one block")
    options = parser.parse_args()
    with _server() as (pid, ports):
        print(f"start: {status_bytes('VmRSS', pid) / 2**20:.1f} MiB", flush=True)
        for number in range(1, options.blocks + 1):
            _fail(ports[options.port], _KINDS[options.kind], options.block)
            after = status_bytes("VmRSS", pid) / 2**20
            print(f"{number * options.block:,}: {after:.1f} MiB", flush=True)


if __name__ == "__main__":
    main()
