"""Tokens of an issuer that serves its keys on loopback."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from service.access import key_set
from service.access.key_set import RETRY_SECONDS, KeySet
from service.access.principal import Limits
from service.access.tokens import TokenAuthenticator
from service.errors import KeysUnavailableError, StartupError, UnauthenticatedError
from service.observability.metrics import ServerMetrics

ISSUER, AUDIENCE = "https://issuer.example", "dragoman"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()


def public(key: Any, key_id: str | None) -> dict[str, Any]:
    kinds: list[tuple[Any, Any]] = [
        (rsa.RSAPrivateKey, RSAAlgorithm),
        (ec.EllipticCurvePrivateKey, ECAlgorithm),
        (ed25519.Ed25519PrivateKey, OKPAlgorithm),
    ]
    [kind] = [algorithm for kind, algorithm in kinds if isinstance(key, kind)]
    found = dict(kind.to_jwk(key.public_key(), as_dict=True))
    return found if key_id is None else {**found, "kid": key_id}


KEYS = [public(RSA, "rsa"), public(EC, "ec"), public(ED, "ed")]


class Issuer:
    """Serves an answer at a URL, and counts the requests."""

    def __init__(self) -> None:
        self.answer: tuple[int, bytes] = (200, json.dumps({"keys": KEYS}).encode())
        self.num_fetches = 0
        self.drips = False
        self.may_answer = threading.Event()
        self.may_answer.set()
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.num_fetches += 1
                issuer.may_answer.wait()
                status, body = issuer.answer
                if status:  # otherwise the answer is no HTTP
                    self.send_response(status)
                    if status == 302:
                        self.send_header("location", body.decode())
                    self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(body)
                    while issuer.drips:
                        self.wfile.write(b" ")
                        time.sleep(0.01)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/jwks"

    def serve(self, *keys: dict[str, Any]) -> None:
        self.answer = (200, json.dumps({"keys": keys}).encode())


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.drips = False
    made.may_answer.set()
    made.server.shutdown()
    thread.join()
    made.server.server_close()


class Setup:
    def __init__(self, url: str) -> None:
        self.now = 1000.0
        self.metrics = ServerMetrics()
        self.keys = KeySet(url, self.metrics, lambda: self.now)
        self.tokens = TokenAuthenticator(ISSUER, AUDIENCE, self.keys)

    @property
    def fetched(self) -> float | None:
        return self.metrics.registry.get_sample_value("dragoman_jwks_last_fetch_successful")


def token(
    key: Any = RSA, algorithm: str = "RS256", key_id: str | None = "rsa", **claims: Any
) -> str:
    content = {
        "iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": time.time() + 600, **claims,
    }  # fmt: skip
    kept = {name: value for name, value in content.items() if value is not None}
    return jwt.encode(kept, key, algorithm, headers={"kid": key_id} if key_id else None)


@pytest.mark.parametrize(
    ("key", "algorithm", "key_id"),
    [(RSA, "RS256", "rsa"), (EC, "ES256", "ec"), (ED, "EdDSA", "ed")],
)
async def test_a_token_names_its_principal(
    issuer: Issuer, key: Any, algorithm: str, key_id: str
) -> None:
    setup = Setup(issuer.url)
    found = await setup.tokens.authenticate(token(key, algorithm, key_id))
    assert found is not None
    assert (found.name, found.tenant, found.limits) == ("jwt:alice", "", Limits())
    assert setup.fetched == 1


async def test_a_claim_says_what_it_allows(issuer: Issuer) -> None:
    claim = {
        "tenant": "acme", "models": ["en-de"], "calls": ["Translate"], "max_priority": "low",
        "requests_per_minute": 1, "characters_per_day": 2, "characters_per_month": 3,
    }  # fmt: skip
    found = await Setup(issuer.url).tokens.authenticate(token(dragoman=claim))
    assert found is not None
    assert (found.tenant, found.max_priority) == ("acme", "low")
    assert (found.models, found.calls) == (frozenset({"en-de"}), frozenset({"Translate"}))
    assert found.limits == Limits(1, 2, 3)


def unsigned(header: bytes, content: bytes = b"{}") -> str:
    parts = (base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (header, content))
    return ".".join([*parts, "AAAA"])


PUBLIC_PEM = json.dumps(KEYS[0])
BAD: dict[str, tuple[Any, str]] = {
    "expired": (lambda: token(exp=time.time() - 60), "expired"),
    "early": (lambda: token(nbf=time.time() + 600), "not valid yet"),
    "audience": (lambda: token(aud="another"), "audience"),
    "issuer": (lambda: token(iss="another"), "issuer"),
    "no subject": (lambda: token(sub=None), "lacks"),
    "no end": (lambda: token(exp=None), "lacks"),
    "no issuer": (lambda: token(iss=None), "lacks"),
    "another's signature": (lambda: token(OTHER), "not valid"),
    "unknown key": (lambda: token(OTHER, key_id="new"), "not known"),
    "no key id": (lambda: token(key_id=None), "not known"),
    "none": (lambda: token(None, "none"), "not valid"),
    "public key as secret": (lambda: token(PUBLIC_PEM * 2, "HS256"), "not valid"),
    "key of another kind": (lambda: token(RSA, "RS256", "ec"), "not valid"),
    "claim": (lambda: token(dragoman=[]), "must be an object"),
    "quota": (lambda: token(dragoman={"characters_per_day": "x"}), "characters_per_day"),
    "tenant": (lambda: token(dragoman={"tenant": 7}), "tenant"),
    "empty": (lambda: "..", "not valid"),
    "nonsense": (lambda: "a.b.c", "not valid"),
    "nested": (lambda: unsigned(b"[" * 5000), "not valid"),
    "nested key id": (lambda: unsigned(b'{"alg": "RS256", "kid": {"a": 1}}'), "not valid"),
    "number": (lambda: unsigned(b'{"alg": 7}'), "not valid"),
    "no object": (lambda: unsigned(b"[]"), "not valid"),
    "critical": (lambda: unsigned(b'{"alg": "RS256", "kid": "rsa", "crit": ["b64"]}'), "not valid"),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_token_is_nobody_s(issuer: Issuer, name: str) -> None:
    make, reason = BAD[name]
    bad = make()
    with pytest.raises(UnauthenticatedError, match=reason) as caught:
        await Setup(issuer.url).tokens.authenticate(bad)
    assert len(bad) < 20 or bad not in str(caught.value)


async def test_what_is_no_token_is_left_to_others(issuer: Issuer) -> None:
    setup = Setup(issuer.url)
    assert await setup.tokens.authenticate("drg_0123456789abcdef_x") is None
    assert issuer.num_fetches == 0


@pytest.mark.parametrize(
    "answer",
    [
        (500, b""),
        (404, b"no"),
        (200, b""),
        (200, b"[]"),
        (200, b"[" * 100_000),
        (200, b"\xff"),
        (200, b'{"keys": []}'),
        (200, b'{"keys": [7, null, {"kty": "RSA"}]}'),
        (200, json.dumps({"keys": [{"kty": "oct", "k": "AAAA", "kid": "rsa"}]}).encode()),
        (200, b" " * (2**20 + 1)),
        (302, b"http://127.0.0.1:1/elsewhere"),
        (0, b"220 mail.example ESMTP\r\n"),
    ],
    ids=lambda answer: f"{answer[0]} {answer[1][:20]!r}",
)
async def test_a_bad_answer_locks_nobody_out(issuer: Issuer, answer: tuple[int, bytes]) -> None:
    setup = Setup(issuer.url)
    assert await setup.tokens.authenticate(token())
    issuer.answer = answer
    setup.now += RETRY_SECONDS
    with pytest.raises(UnauthenticatedError):  # which asks for the keys again
        await setup.tokens.authenticate(token(OTHER, key_id="new"))
    assert setup.fetched == 0
    assert await setup.tokens.authenticate(token())
    issuer.serve(*KEYS, public(OTHER, "new"))
    setup.now += RETRY_SECONDS
    assert await setup.tokens.authenticate(token(OTHER, key_id="new"))
    assert setup.fetched == 1


async def test_a_new_key_is_taken_and_an_old_one_given_up(issuer: Issuer) -> None:
    setup = Setup(issuer.url)
    assert await setup.tokens.authenticate(token())
    issuer.serve(public(OTHER, None))
    setup.now += RETRY_SECONDS
    with pytest.raises(UnauthenticatedError):
        await setup.tokens.authenticate(token(OTHER, key_id="rotated"))
    with pytest.raises(UnauthenticatedError):
        await setup.tokens.authenticate(token())
    assert await setup.tokens.authenticate(token(OTHER, key_id=None))


async def test_unknown_keys_cause_one_fetch_in_ten_seconds(issuer: Issuer) -> None:
    setup = Setup(issuer.url)
    calls = [setup.tokens.authenticate(token(OTHER, key_id=f"key-{n}")) for n in range(30)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, UnauthenticatedError) for result in results)
    assert issuer.num_fetches == 1
    setup.now += RETRY_SECONDS
    with pytest.raises(UnauthenticatedError):
        await setup.tokens.authenticate(token(OTHER, key_id="key"))
    assert issuer.num_fetches == 2


async def test_a_flood_of_unknown_keys_while_the_issuer_hangs_holds_few_calls(
    issuer: Issuer,
) -> None:
    """Waiting calls hold their requests in memory, outside of all quotas."""
    setup = Setup(issuer.url)
    assert await setup.tokens.authenticate(token())
    issuer.may_answer.clear()
    setup.now += RETRY_SECONDS
    forged = token(OTHER, key_id="forged")
    calls = [asyncio.create_task(setup.tokens.authenticate(forged)) for _ in range(500)]
    while sum(call.done() for call in calls) < 400:
        await asyncio.sleep(0)
    assert await setup.tokens.authenticate(token())  # whoever has a known key does not wait
    issuer.may_answer.set()
    results = await asyncio.gather(*calls, return_exceptions=True)
    unavailable = sum(isinstance(result, KeysUnavailableError) for result in results)
    assert 400 <= unavailable < 500
    assert sum(isinstance(result, UnauthenticatedError) for result in results) == 500 - unavailable
    assert issuer.num_fetches == 2


async def test_before_the_first_keys_no_token_is_called_wrong(issuer: Issuer) -> None:
    issuer.answer = (503, b"")
    setup = Setup(issuer.url)
    with pytest.raises(KeysUnavailableError):  # a client may try again
        await setup.tokens.authenticate(token())
    issuer.serve(*KEYS)
    setup.now += RETRY_SECONDS
    assert await setup.tokens.authenticate(token())


async def test_an_answer_byte_by_byte_ends_the_fetch(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_set, "_FETCH_SECONDS", 0.2)
    setup = Setup(issuer.url)
    assert await setup.tokens.authenticate(token())
    issuer.drips = True
    setup.now += RETRY_SECONDS
    with pytest.raises(UnauthenticatedError):
        await setup.tokens.authenticate(token(OTHER, key_id="new"))
    assert setup.fetched == 0
    issuer.drips = False
    issuer.serve(*KEYS, public(OTHER, "new"))
    setup.now += RETRY_SECONDS
    assert await setup.tokens.authenticate(token(OTHER, key_id="new"))


async def test_keys_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": KEYS}))
    assert await Setup(path.as_uri()).tokens.authenticate(token())


async def test_subjects_have_a_name_of_their_own(issuer: Issuer) -> None:
    setup = Setup(issuer.url)
    found = [
        await setup.tokens.authenticate(token(sub=subject))
        for subject in ("alice", "Alice B", "x" * 5000, "jwt#" + "0" * 32, "ä")
    ]
    names = [principal.name for principal in found if principal]
    assert len(set(names)) == 5
    assert all(len(name) < 110 and name.isascii() for name in names)


@pytest.mark.parametrize("url", ["http://issuer.example/jwks", "ftp://x/y", "jwks.json", "data:,x"])
def test_a_url_that_others_could_answer_is_refused(url: str) -> None:
    with pytest.raises(StartupError, match="--jwks-url"):
        Setup(url)
