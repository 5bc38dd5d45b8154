"""Certificates for tests, made by an authority of their own."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from dragoman.tls import Tls

NAME = "dragoman.test"


@dataclass(frozen=True)
class CertificateFolder:
    """A folder with a server's certificate, as `dragoman serve` reads it.

    Attributes:
        path: path of the folder.
        authority: authority that signs.
    """

    path: Path
    authority: trustme.CA

    @classmethod
    def made(cls, path: Path) -> CertificateFolder:
        """A folder with a good certificate."""
        path.mkdir(parents=True, exist_ok=True)
        made = cls(path, trustme.CA(key_type=trustme.KeyType.ECDSA))
        made.authority.cert_pem.write_to_path(made.ca)
        made.issue()
        return made

    @property
    def ca(self) -> Path:
        """The authority's certificate."""
        return self.path / "ca.pem"

    @property
    def certificate(self) -> Path:
        return self.path / "server.pem"

    @property
    def key(self) -> Path:
        return self.path / "server.key"

    def issue(self, *names: str, expires: datetime.datetime | None = None) -> str:
        """Replace the certificate by a new one; returns its serial number in hexadecimal."""
        leaf = self.authority.issue_cert(
            *(names or (NAME, "127.0.0.1")), not_after=expires, key_type=trustme.KeyType.ECDSA
        )
        self.replace(leaf.cert_chain_pems[0].bytes(), leaf.private_key_pem.bytes())
        found = x509.load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes())
        return f"{found.serial_number:X}"

    def replace(self, certificate: bytes | None = None, key: bytes | None = None) -> None:
        """Replace files, each atomically by a rename."""
        for path, data in ((self.key, key), (self.certificate, certificate)):
            if data is not None:
                new = path.with_suffix(".new")
                new.write_bytes(data)
                new.replace(path)

    def client(self) -> Tls:
        """TLS options of a client with a certificate of the authority."""
        leaf = self.authority.issue_cert("client@dragoman.test", key_type=trustme.KeyType.ECDSA)
        certificate, key = self.path / "client.pem", self.path / "client.key"
        leaf.cert_chain_pems[0].write_to_path(certificate)
        leaf.private_key_pem.write_to_path(key)
        return Tls(str(self.ca), str(certificate), str(key))

    def settings(self, *, mutual: bool = False) -> dict[str, str]:
        """TLS settings of a server."""
        found = {"tls_cert": str(self.certificate), "tls_key": str(self.key)}
        return {**found, "tls_client_ca": str(self.ca)} if mutual else found


def ed25519_pair() -> tuple[bytes, bytes]:
    """A self-signed certificate and its key, of a kind that gRPC can't use."""
    return signed_by_itself(ed25519.Ed25519PrivateKey.generate(), None)


def p521_pair() -> tuple[bytes, bytes]:
    """A self-signed certificate and its key, of a kind that gRPC's servers can use, not clients."""
    return signed_by_itself(ec.generate_private_key(ec.SECP521R1()), hashes.SHA256())


def future_pair() -> tuple[bytes, bytes]:
    """A self-signed certificate and its key, valid from tomorrow on."""
    key = ec.generate_private_key(ec.SECP256R1())
    return signed_by_itself(key, hashes.SHA256(), datetime.timedelta(days=1))


def signed_by_itself(
    key: CertificateIssuerPrivateKeyTypes,
    algorithm: hashes.SHA256 | None,
    begins: datetime.timedelta = datetime.timedelta(0),
) -> tuple[bytes, bytes]:
    """A self-signed certificate, valid for a day that begins after `begins`, and its key."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC) + begins
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, algorithm)
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return certificate.public_bytes(Encoding.PEM), pem
