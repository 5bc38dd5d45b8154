"""Credentials of clients: key files, tokens, headers, certificates."""

from __future__ import annotations

import asyncio
import base64
import datetime
import hashlib
import json
import random
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from jwt.algorithms import OKPAlgorithm

from service.access.authentication import credential_in_query, credential_of
from service.access.key_file import KeyFileError, read_keys, read_lines
from service.access.key_set import KeySet
from service.access.keys import StoredKey, find, to_line
from service.access.principal import Limits, Principal
from service.access.tokens import TokenAuthenticator
from service.errors import UnauthenticatedError
from service.fronts.http.answers import HttpError
from service.fronts.http.context import HttpContext
from service.observability.metrics import ServerMetrics
from service.observability.open_telemetry import OpenTelemetryTracing
from service.ports.certificates import CertificateError, TlsFiles, read_material
from service.ports.http.allowed_hosts import AllowedHosts
from tests.robustness.fuzz.configuration import InDirectory, json_bytes, json_changed
from tests.robustness.fuzz.mutations import (
    changed_bytes,
    changed_text,
    odd_text,
    random_bytes,
)
from tests.robustness.fuzz.target import expect


class KeyFiles(InDirectory):
    """Files of keys."""

    name: ClassVar[str] = "keys"
    share: ClassVar[float] = 4
    what: ClassVar[str] = "files of API keys, and keys looked up in them"

    def __init__(self) -> None:
        super().__init__()
        limits = Limits(10, 1_000, 10_000)
        principal = Principal("app", "tenant", frozenset(("en-de",)), limits=limits)
        key_id = "0123456789abcdef"
        self._key = f"drg_{key_id}_{'k' * 43}"
        digest = hashlib.sha256(self._key.encode()).hexdigest()
        self._line = json.loads(to_line(StoredKey(key_id, digest, principal)))

    def generate(self, rng: random.Random) -> bytes:
        """Generate a file with valid and changed lines of this target's key."""
        lines = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            line = dict(self._line)
            if rng.random() < 0.5:
                line["name"], line["id"] = odd_text(rng, 1), f"{rng.getrandbits(64):016x}"
            if rng.random() < 0.3:
                line["expires"] = rng.choice(
                    ("2027-01-31", "9999-12-31T23:59:59-23:59", "0001-01-01", 1)
                )
            lines.append(json_bytes(rng, line))
        if rng.random() < 0.003:
            lines.append(b"[" * 100_000)
        return rng.choice((b"\n", b"\n", b"\r\n", b"\n\n")).join(lines)

    def run(self, given: bytes) -> str:
        """Read the file, both ways, and look a key up."""
        file = self.directory / "keys.jsonl"
        file.write_bytes(given)
        try:
            keys = read_keys(file)
        except KeyFileError as exc:
            expect(bool(str(exc)), "a refusal without a reason", given)
            expect(self._line["sha256"] not in str(exc), "a refusal that shows the hash", given)
            return "refused"
        lines, _ = read_lines(file)
        expect(lines.keys() == keys.keys(), "two readers disagree", given)
        find(lines, self._key)
        for line in lines.values():
            expect(self._key not in line, "a key in clear text", given)
        return "read"


class Tokens(InDirectory):
    """JSON Web Tokens and key sets."""

    name: ClassVar[str] = "tokens"
    share: ClassVar[float] = 3
    what: ClassVar[str] = "JSON Web Tokens, changed and signed again or not"
    _issuer, _audience = "https://issuer.example", "dragoman"

    def __init__(self) -> None:
        super().__init__()
        self._private = ed25519.Ed25519PrivateKey.from_private_bytes(b"\1" * 32)
        public = dict(OKPAlgorithm.to_jwk(self._private.public_key(), as_dict=True))
        file = self.directory / "keys.json"
        file.write_text(json.dumps({"keys": [{**public, "kid": "a"}]}), encoding="utf-8")
        keys = KeySet(file.as_uri(), ServerMetrics())
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(keys.find("a"))
        self._authenticator = TokenAuthenticator(self._issuer, self._audience, keys)

    def generate(self, rng: random.Random) -> tuple[Any, str, int]:
        """Generate claims, and a random change of the token with its seed."""
        claims: Any = {
            "sub": rng.choice(("app", odd_text(rng, 2))), "iss": self._issuer,
            "aud": self._audience,
            "exp": rng.choice((2**31 - 1,) * 4 + (0, 10**30, -1)),
            "dragoman": {"tenant": "t", "models": ["en-de"], "requests_per_minute": 5},
        }  # fmt: skip
        for _ in range(rng.choice((0, 1, 1, 2))):
            claims = json_changed(rng, claims)
        spoilt = rng.choice(("", "", "none", "signature", "header", "text", "bytes"))
        return claims, spoilt, rng.getrandbits(32)

    def run(self, given: tuple[Any, str, int]) -> str:
        """Authenticate the token: only a signed and unchanged one may be valid."""
        claims, spoilt, seed = given
        token = self._token(claims, spoilt, random.Random(seed))
        authenticate = self._authenticator.authenticate(token)
        try:
            found = self._loop.run_until_complete(authenticate)
        except UnauthenticatedError as exc:
            expect(
                len(token) < 20 or token not in str(exc), "a refusal that shows the token", given
            )
            return "refused"
        if found is None:
            return "no token"
        expect(spoilt not in ("none", "header"), "an unsigned token was accepted", (given, token))
        return "accepted"

    def _token(self, claims: Any, spoilt: str, rng: random.Random) -> str:
        payload = json.dumps(claims).encode()
        if rng.random() < 0.01:
            payload = b"[" * 100_000
        signed = jwt.api_jws.encode(payload, self._private, "EdDSA", {"kid": "a"})
        head, body, signature = signed.split(".")
        if spoilt == "none":
            return f"{_base64(json.dumps({'alg': 'none', 'typ': 'JWT'}).encode())}.{body}."
        if spoilt == "header":
            odd = json_changed(rng, {"alg": "EdDSA", "kid": "a", "typ": "JWT"})
            return f"{_base64(json.dumps({'x': 1, 'was': odd}).encode())}.{body}.{signature}"
        if spoilt == "signature":
            return f"{head}.{body}.{signature[::-1]}"
        if spoilt == "text":
            return changed_text(rng, signed, (".", "..", "=", "-", "_", "ÿ", "\0"))
        if spoilt == "bytes":
            odd_head = _base64(random_bytes(rng, 40) or b"[" * 50_000)
            return f"{odd_head}.{body}.{signature}"
        return signed


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Headers:
    """Headers and metadata."""

    name: ClassVar[str] = "headers"
    share: ClassVar[float] = 8
    what: ClassVar[str] = "keys, deadlines, hosts and traceparent in headers, metadata and URLs"
    _names = (
        "authorization", "x-api-key", "x-goog-api-key", "grpc-timeout", "traceparent", "tracestate",
        "host", "origin", "x-client-id", "x-priority", "content-length", "sec-fetch-site",
        "referer",
    )  # fmt: skip
    _values = (
        "Bearer drg_0123456789abcdef_" + "a" * 43, "bearer", "Bearer  ", "DeepL-Auth-Key k:fx",
        "10S",
        "99999999H", "-1S", "1", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "localhost",
        "00-00000000000000000000000000000000-0000000000000000-00", "ff-x-y-z", "a=1,b=2",
        "[::1]:80",
        "127.0.0.1", "evil.example", "http://localhost:80", "null", "http://[", "localhost:x",
        "[", "",
    )  # fmt: skip

    def __init__(self) -> None:
        from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

        class NoExporter(SpanExporter):
            def export(self, spans: object) -> SpanExportResult:
                return SpanExportResult.SUCCESS

        self._tracing = OpenTelemetryTracing("0", "fuzz", NoExporter())
        self._hosts = AllowedHosts("127.0.0.1", ("translate.example",))

    def generate(self, rng: random.Random) -> tuple[list[tuple[str, str]], bytes]:
        """Headers, and the query of a URL."""
        pairs = []
        for _ in range(rng.randint(0, 6)):
            value = rng.choice(self._values)
            if rng.random() < 0.5:
                value = changed_text(rng, value, self._values)
            pairs.append(
                (rng.choice(self._names), value.encode("latin-1", "replace").decode("latin-1"))
            )
        query = changed_bytes(rng, b"key=drg_a&x=%41", (b"key=", b"&", b"%", b"%ff", b"+", b"\xff"))
        return pairs, query

    def run(self, given: tuple[list[tuple[str, str]], bytes]) -> str:
        """Read the headers as a call over HTTP, and as metadata."""
        pairs, query = given
        credential = credential_of(pairs)
        expect(credential == credential.strip(), "a credential with spaces", given)
        credential_in_query(query)
        trace = self._tracing.begin("Translate", pairs)
        if trace is not None:
            expect(len(trace.ids["trace_id"]) == 32, "a trace id of another length", given)
            trace.end("OK", {})
        headers = [(name.encode(), value.encode("latin-1")) for name, value in pairs]
        scope = {"headers": headers, "query_string": query, "client": ("127.0.0.1", 1)}
        try:
            self._hosts.check(dict(headers))
            context = HttpContext(scope)
        except HttpError as exc:
            expect(400 <= exc.http_status < 500, "a status that blames the server", given)
            return "refused"
        expect(context.time_remaining() < 4e11, "a deadline without end", given)
        return "read"


class Certificates(InDirectory):
    """Certificates and their keys in PEM."""

    name: ClassVar[str] = "certificates"
    share: ClassVar[float] = 1
    what: ClassVar[str] = "certificates and keys of TLS in PEM"

    def __init__(self) -> None:
        super().__init__()
        key = ec.derive_private_key(12345, ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fuzz.example")])
        begins, ends = (datetime.datetime(year, 1, 1, tzinfo=datetime.UTC) for year in (2020, 2120))
        certificate = x509.CertificateBuilder(name, name, key.public_key(), 1, begins, ends).sign(
            key, hashes.SHA256(), ecdsa_deterministic=True
        )
        pem = certificate.public_bytes(Encoding.PEM)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self._contents = [pem, private, pem]
        self._now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).timestamp()

    def generate(self, rng: random.Random) -> list[bytes]:
        """A certificate, its key and an authority."""
        contents = list(self._contents)
        for index in rng.choice(((0,), (1,), (2,), (0, 1, 2))):
            if rng.random() < 0.2:
                contents[index] = changed_bytes(rng, contents[index])
                continue
            head, *body, end = contents[index].splitlines()
            der = changed_bytes(rng, base64.b64decode(b"".join(body)))
            contents[index] = b"\n".join([head, base64.b64encode(der), end])
        return contents

    def run(self, given: list[bytes]) -> str:
        """Read the files."""
        paths = [self.directory / name for name in ("tls.crt", "tls.key", "ca.crt")]
        for path, content in zip(paths, given, strict=True):
            path.write_bytes(content)
        try:
            read_material(TlsFiles(*paths), self._now)
        except CertificateError as exc:
            expect(bool(str(exc)), "a refusal without a reason", given)
            return "refused"
        return "read"


TARGETS: Sequence[Callable[[], Any]] = (KeyFiles, Tokens, Headers, Certificates)
