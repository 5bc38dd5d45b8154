"""Certificates: what is accepted, what is refused and why, and what a change does."""

from __future__ import annotations

import datetime
import logging
import os
import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from service.errors import StartupError
from service.observability.metrics import ServerMetrics
from service.ports.certificates import CertificateError, ServerTls, TlsFiles, read_material
from service.ports.tls import is_loopback, server_tls
from service.settings import Settings
from tests.certificates import CertificateFolder, ed25519_pair, future_pair, p521_pair

NOW = datetime.datetime.now(datetime.UTC).timestamp()


@pytest.fixture
def folder(tmp_path: Path) -> CertificateFolder:
    return CertificateFolder.made(tmp_path / "certificates")


def files(folder: CertificateFolder) -> TlsFiles:
    return TlsFiles(folder.certificate, folder.key, folder.ca)


def expired(folder: CertificateFolder) -> None:
    folder.issue(expires=datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1))


def of_another_key(folder: CertificateFolder) -> None:
    old = folder.key.read_bytes()
    folder.issue()
    folder.replace(key=old)


def change(folder: CertificateFolder, before: str, after: str) -> None:
    """Other bytes, in hexadecimal, in the certificate; nobody checks the signature here."""
    leaf = x509.load_pem_x509_certificates(folder.certificate.read_bytes())[0]
    der = leaf.public_bytes(Encoding.DER)
    assert bytes.fromhex(before) in der
    other = der.replace(bytes.fromhex(before), bytes.fromhex(after))
    folder.replace(ssl.DER_cert_to_PEM_cert(other).encode())


BROKEN: dict[str, tuple[Callable[[CertificateFolder], object], str]] = {
    "garbage": (lambda f: f.replace(certificate=b"garbage"), "holds no certificate"),
    "empty": (lambda f: f.replace(certificate=b""), "holds no certificate"),
    "half written": (
        lambda f: f.replace(certificate=f.certificate.read_bytes()[:200]),
        "holds no certificate",
    ),
    "key is garbage": (lambda f: f.replace(key=b"\0" * 100), "holds no private key"),
    "key of another": (of_another_key, "is not the key of the certificate"),
    "expired": (expired, "expired at"),
    "Ed25519": (lambda f: f.replace(*ed25519_pair()), "of a kind that gRPC can't use"),
    "P-521": (lambda f: f.replace(*p521_pair()), "of a kind that gRPC can't use"),
    "unknown kind of key": (
        lambda f: change(f, "06072a8648ce3d0201", "06072a8648ce3c0201"),  # not elliptic curves
        "has an unknown key",
    ),
    "unknown version": (lambda f: change(f, "a003020102", "a003020171"), "holds no certificate"),
    "not valid yet": (lambda f: f.replace(*future_pair()), "is not valid before"),
    "missing key": (lambda f: f.key.unlink(), "No such file"),
    "missing authority": (lambda f: f.ca.unlink(), "No such file"),
    "authority is garbage": (lambda f: f.ca.write_bytes(b"x"), "tls-client-ca"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_certificate_that_cant_serve_is_refused_with_its_reason(
    folder: CertificateFolder, case: str
) -> None:
    read_material(files(folder), NOW)
    spoil, reason = BROKEN[case]
    spoil(folder)
    with pytest.raises(CertificateError, match=reason):
        read_material(files(folder), NOW)
    with pytest.raises(StartupError, match=r"^--tls-"):
        ServerTls(files(folder), ServerMetrics())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="cryptography makes no such key")
def test_a_key_bound_to_rsa_pss_is_refused(folder: CertificateFolder) -> None:
    """Else the port could not be opened, for a reason that gRPC does not give."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa-pss", "-pkeyopt", "rsa_keygen_bits:2048"),
            *("-nodes", "-subj", "/CN=dragoman.test", "-keyout", folder.key),
            *("-out", folder.certificate),
        ],
        check=True,
        capture_output=True,
    )
    with pytest.raises(CertificateError, match="of a kind that gRPC can't use"):
        read_material(files(folder), datetime.datetime.now(datetime.UTC).timestamp())


def test_a_chain_with_text_around_it_is_read(folder: CertificateFolder) -> None:
    folder.replace(b"subject: somebody\n" + folder.certificate.read_bytes() + b"\n# end\n")
    assert read_material(files(folder), NOW).chain.startswith(b"-----BEGIN")


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_new_certificate_leaves_the_old_one(
    folder: CertificateFolder, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = [NOW]
    metrics = ServerMetrics()
    served = ServerTls(files(folder), metrics, lambda: clock[0])
    first = served.material
    good = {path: path.read_bytes() for path in (folder.certificate, folder.key, folder.ca)}

    def value(name: str) -> float | None:
        return metrics.registry.get_sample_value(f"dragoman_tls_{name}")

    BROKEN[case][0](folder)
    with caplog.at_level(logging.INFO, "dragoman.tls"):
        for _ in range(5):
            clock[0] += 2
            assert served.material is first
    assert len(caplog.records) == 1  # not one for each handshake
    assert value("last_reload_successful") == 0
    assert value("certificate_expiry_timestamp_seconds") == first.expires_at
    for path, data in good.items():  # the same files again, and then a new certificate
        path.write_bytes(data)
    clock[0] += 2
    assert served.material.chain == first.chain
    assert value("last_reload_successful") == 1
    folder.issue()
    clock[0] += 2
    assert served.material.chain != first.chain
    assert value("certificate_expiry_timestamp_seconds") == served.material.expires_at


def test_files_are_not_read_at_every_handshake(folder: CertificateFolder) -> None:
    clock = [NOW]
    served = ServerTls(files(folder), ServerMetrics(), lambda: clock[0])
    first = served.material
    folder.issue()
    assert served.material is first
    clock[0] += 2
    assert served.material is not first


def test_a_link_that_is_swapped_is_a_change(folder: CertificateFolder, tmp_path: Path) -> None:
    """As Kubernetes replaces a mounted secret: the files are links into a folder that changes."""
    other = CertificateFolder(tmp_path / "other", folder.authority)
    other.path.mkdir()
    other.issue()
    live = tmp_path / "live"
    live.symlink_to(folder.path)
    clock = [NOW]
    linked = TlsFiles(live / "server.pem", live / "server.key")
    served = ServerTls(linked, ServerMetrics(), lambda: clock[0])
    assert served.material.chain == folder.certificate.read_bytes()
    new = tmp_path / "new"
    new.symlink_to(other.path)
    os.replace(new, live)
    clock[0] += 2
    assert served.material.chain == other.certificate.read_bytes()


@pytest.mark.parametrize("setting", ["host", "metrics_host", "http_host"])
def test_plain_text_beyond_loopback_has_to_be_asked_for(setting: str) -> None:
    exposed: dict[str, Any] = {setting: "0.0.0.0", "http_port": 0}
    flag = setting.replace("_", "-")
    with pytest.raises(StartupError, match=rf"--{flag} 0\.0\.0\.0.*--insecure"):
        server_tls(Settings(**exposed), ServerMetrics())
    assert server_tls(Settings(**exposed, insecure=True), ServerMetrics()) is None


def test_a_port_that_is_not_opened_is_not_exposed() -> None:
    assert server_tls(Settings(http_host="0.0.0.0"), ServerMetrics()) is None


@pytest.mark.parametrize("given", [{"tls_key": "k"}, {"tls_client_ca": "c"}, {"tls_cert": "c"}])
def test_settings_that_lack_another_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(StartupError, match="needs --tls-"):
        server_tls(Settings(**given), ServerMetrics())


def test_loopback() -> None:
    for host in ("127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost"):
        assert is_loopback(host)
    for host in ("0.0.0.0", "::", "10.0.0.1", "localhost.example", "example.com", ""):
        assert not is_loopback(host)
