"""The certificate of a server: read again when its files change.

A certificate is checked before it serves: that its files can be read, that the key belongs to it,
that gRPC can use that kind of key, and that it is valid now. A new one that fails a check leaves
the old one serving, is logged once, and shows in the metrics.
"""

from __future__ import annotations

import datetime
import logging
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    load_pem_private_key,
)
from cryptography.x509.oid import PublicKeyAlgorithmOID

from service.common.temporary_folders import temporary_folder
from service.errors import StartupError
from service.observability.metrics import ServerMetrics

# At most this often the files are looked at; handshakes come thousands a second.
_CHECK_SECONDS = 1.0
# gRPC's TLS library has no Ed25519. It has P-521 for servers, but its clients, among them this
# project's, offer no signatures of it, so they could not connect.
_CURVES = (ec.SECP256R1, ec.SECP384R1)
_LEAST_RSA_BITS = 2048

_log = logging.getLogger("dragoman.tls")


class CertificateError(ValueError):
    """Files of TLS that can't be used. The message names the setting and the reason."""


@dataclass(frozen=True)
class TlsFiles:
    """Paths of a server's certificate, its key and the authorities of its clients.

    Attributes:
        certificate: the certificate and those between it and its authority, in PEM.
        key: its private key, in PEM, not encrypted.
        client_ca: the authorities whose clients may connect, in PEM; None if clients need no
            certificate.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def signature(self) -> tuple[tuple[int, int, int], ...]:
        """A value that changes when a file is replaced, also through a symbolic link.

        Raises OSError.
        """
        files = [self.certificate, self.key, *([self.client_ca] if self.client_ca else [])]
        stats = [path.stat() for path in files]
        return tuple((stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in stats)


@dataclass(frozen=True)
class TlsMaterial:
    """A certificate that passed the checks, in the form for TLS libraries.

    Attributes:
        chain, key, client_ca: contents of the files, in PEM.
        expires_at: seconds since the epoch.
    """

    chain: bytes
    key: bytes
    client_ca: bytes | None
    expires_at: float

    def grpc_configuration(self) -> grpc.ServerCertificateConfiguration:
        """The certificate as gRPC's configuration."""
        return grpc.ssl_server_certificate_configuration(
            [(self.key, self.chain)], root_certificates=self.client_ca
        )

    def context(self, *, asks_clients: bool) -> ssl.SSLContext:
        """A TLS context of Python's `ssl` with the certificate.

        Args:
            asks_clients: whether clients need a certificate, if there are authorities for them.

        Raises:
            ssl.SSLError: the library can't use the material.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A resumed session would pass by a certificate that was replaced since.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        with temporary_folder("dragoman-tls-") as folder:
            chain, key = folder / "chain", folder / "key"
            chain.write_bytes(self.chain)
            key.write_bytes(self.key)
            context.load_cert_chain(chain, key, password=_no_password)
        if asks_clients and self.client_ca is not None:
            context.load_verify_locations(cadata=self.client_ca.decode("ascii"))
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def _no_password() -> str:
    raise ValueError("the key is encrypted")  # instead of a question on the terminal


def read_material(files: TlsFiles, now: float) -> TlsMaterial:
    """Read and check a certificate.

    Raises:
        CertificateError: it can't be used.
    """
    chain, certificates = _certificates("tls-cert", files.certificate)
    key = _read("tls-key", files.key)
    leaf = certificates[0]
    _check_key("tls-key", files.key, key, leaf)
    expires_at = _valid_until("tls-cert", files.certificate, leaf, now)
    client_ca = None
    if files.client_ca is not None:
        client_ca, _ = _certificates("tls-client-ca", files.client_ca)
    material = TlsMaterial(chain, key, client_ca, expires_at)
    try:
        material.context(asks_clients=True)
    except (ssl.SSLError, ValueError, OSError) as exc:
        raise CertificateError(f"tls-cert: {files.certificate} can't be used: {exc}") from exc
    return material


def _read(setting: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        raise CertificateError(f"{setting}: {path}: {exc.strerror or exc}") from exc


def _certificates(setting: str, path: Path) -> tuple[bytes, list[x509.Certificate]]:
    """The certificates of a PEM file, without text around them, as PEM and parsed."""
    try:
        found = x509.load_pem_x509_certificates(_read(setting, path))
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion) as exc:
        raise CertificateError(f"{setting}: {path} holds no certificate in PEM: {exc}") from exc
    return b"".join(each.public_bytes(Encoding.PEM) for each in found), found


def _valid_until(setting: str, path: Path, leaf: x509.Certificate, now: float) -> float:
    """The expiry of a certificate that is valid now, in seconds since the epoch."""
    begins, expires = leaf.not_valid_before_utc, leaf.not_valid_after_utc
    if begins.timestamp() > now:
        raise CertificateError(f"{setting}: {path} is not valid before {begins.isoformat()}")
    if expires.timestamp() <= now:
        raise CertificateError(f"{setting}: {path} expired at {expires.isoformat()}")
    return expires.timestamp()


def _check_key(setting: str, path: Path, pem: bytes, certificate: x509.Certificate) -> None:
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as exc:
        reason = "is encrypted" if isinstance(exc, TypeError) else "holds no private key in PEM"
        raise CertificateError(f"{setting}: {path} {reason}") from exc
    # A key that is bound to RSA-PSS is an RSA key to the package, and unknown to gRPC.
    is_pss = certificate.public_key_algorithm_oid == PublicKeyAlgorithmOID.RSASSA_PSS
    if isinstance(key, rsa.RSAPrivateKey) and not is_pss:
        if key.key_size < _LEAST_RSA_BITS:
            raise CertificateError(
                f"{setting}: {path} has {key.key_size} bits; at least {_LEAST_RSA_BITS} are needed"
            )
    elif not (isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, _CURVES)):
        raise CertificateError(
            f"{setting}: {path} is of a kind that gRPC can't use; use RSA (not RSA-PSS), "
            "or ECDSA on P-256 or P-384"
        )
    try:
        is_its_key = key.public_key() == certificate.public_key()
    except (ValueError, UnsupportedAlgorithm) as exc:
        raise CertificateError(f"{setting}: the certificate has an unknown key: {exc}") from exc
    if not is_its_key:
        raise CertificateError(f"{setting}: {path} is not the key of the certificate")


class ServerTls:
    """The certificate of a running server. All methods may be called from any thread.

    Args:
        metrics: gets its expiry and the outcome of reading it again.

    Raises:
        StartupError: it can't be used.
    """

    def __init__(
        self, files: TlsFiles, metrics: ServerMetrics, clock: Callable[[], float] = time.time
    ) -> None:
        self._files = files
        self._metrics = metrics
        self._clock = clock
        self._lock = threading.Lock()
        self._contexts: dict[bool, ssl.SSLContext] = {}
        self._has_failed = False
        try:
            self._signature = files.signature()
            self._material = read_material(files, clock())
        except CertificateError as exc:
            raise StartupError(f"--{exc}") from exc
        except OSError as exc:
            raise StartupError(f"--tls-cert: {exc.filename}: {exc.strerror}") from exc
        self._checked_at = clock()
        metrics.tls_expiry.set(self._material.expires_at)

    @property
    def material(self) -> TlsMaterial:
        """The serving certificate; reads its files again if they may have changed."""
        with self._lock:
            now = self._clock()
            if not 0 <= now - self._checked_at < _CHECK_SECONDS:
                self._checked_at = now
                self._refresh(now)
            return self._material

    def _refresh(self, now: float) -> None:
        """Read the files if they have changed."""
        try:
            signature = self._files.signature()
            if signature == self._signature and not self._has_failed:
                return
            material = read_material(self._files, now)
        except (CertificateError, OSError) as exc:
            # Tried again at every look, since a half-written pair is soon a whole one.
            if not self._has_failed:
                _log.error("the new certificate can't be used; the old one serves on: %s", exc)
            self._has_failed = True
            self._metrics.tls_last_reload_successful.set(0)
            return
        self._signature, self._material, self._has_failed = signature, material, False
        self._contexts.clear()
        self._metrics.tls_last_reload_successful.set(1)
        self._metrics.tls_expiry.set(material.expires_at)
        expires = datetime.datetime.fromtimestamp(material.expires_at, datetime.UTC)
        _log.info("the certificate was replaced", extra={"expires": expires.isoformat()})

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Credentials of the gRPC port, which use the present certificate at every handshake."""
        served = first = self.material

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal served
            material = self.material
            if material is served:
                return None
            served = material
            return material.grpc_configuration()

        return grpc.dynamic_ssl_server_credentials(
            first.grpc_configuration(),
            fetch,  # type: ignore[arg-type]  # None, for no change, is missing from its type
            require_client_authentication=bool(first.client_ca),
        )

    def context(self, *, asks_clients: bool) -> ssl.SSLContext:
        """A TLS context of Python's `ssl` that uses the present certificate at every handshake."""
        context = self.material.context(asks_clients=asks_clients)

        def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            connection.context = self._current(asks_clients)

        # Called at every handshake, also of clients that name no host.
        context.sni_callback = choose
        return context

    def _current(self, asks_clients: bool) -> ssl.SSLContext:
        material = self.material
        with self._lock:
            if asks_clients not in self._contexts:
                self._contexts[asks_clients] = material.context(asks_clients=asks_clients)
            return self._contexts[asks_clients]
