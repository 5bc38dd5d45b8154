"""The public keys of a token issuer: a JSON Web Key Set, fetched again in the background.

https://www.rfc-editor.org/rfc/rfc7517
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import jwt

from service.errors import KeysUnavailableError, StartupError
from service.observability.metrics import ServerMetrics

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""Accepted signature algorithms, all with public keys: anyone could sign with `none` or HMAC."""
_REFRESH_SECONDS = 300.0
# Pause after a failure, and between two fetches for tokens with unknown keys.
RETRY_SECONDS = 10.0
_WAIT_SECONDS = 5.0
# Most calls that wait for a fetch: their requests are in memory and not counted in a quota yet.
_MAX_WAITING = 32
_FETCH_SECONDS = 10.0
_MAX_BYTES = 2**20
_MAX_KEYS = 100
_FAILURES = (OSError, http.client.HTTPException, ValueError, RecursionError, jwt.PyJWTError)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

_log = logging.getLogger("dragoman.keys")


class KeySet:
    """The keys of an issuer, from the last successful fetch.

    A fetch that fails, or finds no usable key, changes nothing, so that an issuer's outage affects
    no token with a known key.

    Args:
        url: URL of the set: https, http on this machine, or file.

    Raises:
        StartupError: the URL is of another kind.
    """

    def __init__(
        self, url: str, metrics: ServerMetrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        parts = urlsplit(url)
        is_safe = parts.scheme in ("https", "file") or (
            parts.scheme == "http" and parts.hostname in _LOOPBACK
        )
        if not is_safe:
            raise StartupError(
                "--jwks-url: must begin with https:// or file://; http:// is for this machine only"
            )
        self._url = url
        self._metrics = metrics
        self._clock = clock
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._tried_at = -RETRY_SECONDS
        self._refreshing: asyncio.Task[bool] | None = None
        self._has_failed = False
        self._num_waiting = 0

    async def find(self, key_id: str | None) -> jwt.PyJWK | None:
        """The key with this id or, without an id, the only key. Fetches the set for an unknown id.

        Raises:
            KeysUnavailableError: no key has been fetched yet, or too many calls wait for a fetch.
        """
        if (found := self._known(key_id)) is None and self._may_fetch():
            await self._wait()
            found = self._known(key_id)
        if not self._keys:
            raise KeysUnavailableError("the keys of the token's issuer could not be fetched yet")
        return found

    async def _wait(self) -> None:
        """Wait some time for a fetch, which continues if the waiting call ends."""
        fetch = self._refresh()
        if self._num_waiting >= _MAX_WAITING:
            raise KeysUnavailableError("the keys of the token's issuer are being fetched")
        self._num_waiting += 1
        try:
            await asyncio.wait({fetch}, timeout=_WAIT_SECONDS)
        finally:
            self._num_waiting -= 1

    async def keep_fresh(self) -> None:
        """Fetch the set periodically, until cancelled."""
        while True:
            is_fresh = await asyncio.shield(self._refresh())
            await asyncio.sleep(_REFRESH_SECONDS if is_fresh else RETRY_SECONDS)

    def _known(self, key_id: str | None) -> jwt.PyJWK | None:
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    def _may_fetch(self) -> bool:
        is_under_way = self._refreshing is not None and not self._refreshing.done()
        return is_under_way or self._clock() - self._tried_at >= RETRY_SECONDS

    def _refresh(self) -> asyncio.Task[bool]:
        """The fetch in progress, or a new one."""
        if self._refreshing is None or self._refreshing.done():
            self._tried_at = self._clock()
            self._refreshing = asyncio.create_task(self._fetch_and_take())
        return self._refreshing

    async def _fetch_and_take(self) -> bool:
        """Fetch the set and keep its keys; returns whether that succeeded."""
        try:
            self._keys = await asyncio.to_thread(lambda: _parsed(_fetched(self._url)))
        except _FAILURES as exc:
            self._metrics.jwks_last_fetch_successful.set(0)
            if not self._has_failed:  # logged once, not at each try
                _log.error(
                    "keys of the token issuer not fetched: the ones before stay valid",
                    extra={"url": self._url, "error": f"{type(exc).__name__}: {exc}"[:300]},
                )
            self._has_failed = True
            return False
        if self._has_failed:
            _log.info("keys of the token issuer fetched again", extra={"keys": len(self._keys)})
        self._has_failed = False
        self._metrics.jwks_last_fetch_successful.set(1)
        return True


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, so that keys come only from the configured URL."""

    def redirect_request(self, *_: object) -> None:
        """Return None, so that urllib raises HTTPError."""


def _fetched(url: str) -> bytes:
    """Fetch a URL. Raises OSError or ValueError."""
    if url.startswith("file:"):
        path = Path(urllib.request.url2pathname(urlsplit(url).path))
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    else:
        opener = urllib.request.build_opener(_NoRedirects)
        asked = urllib.request.Request(url, headers={"accept": "application/json"})
        ends_at = time.monotonic() + _FETCH_SECONDS
        received = bytearray()
        with opener.open(asked, timeout=_FETCH_SECONDS) as response:
            # The timeout is for one read: an answer in single bytes would block further fetches.
            while len(received) <= _MAX_BYTES and (piece := response.read1(_MAX_BYTES)):
                received += piece
                if time.monotonic() > ends_at:
                    raise TimeoutError(f"no whole answer within {_FETCH_SECONDS:g} s")
        data = bytes(received)
    if len(data) > _MAX_BYTES:
        raise ValueError(f"more than {_MAX_BYTES:,} bytes")
    return data


def _parsed(data: bytes) -> dict[str | None, jwt.PyJWK]:
    """The usable keys of a set, by id. Raises ValueError if there is none."""
    content = json.loads(data)
    found = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(found, list):
        raise ValueError("not a JSON Web Key Set")
    keys: dict[str | None, jwt.PyJWK] = {}
    for each in found[:_MAX_KEYS]:
        # A set may contain keys of unknown kinds or for other purposes, which are ignored.
        with contextlib.suppress(jwt.PyJWTError, ValueError, TypeError, KeyError):
            if isinstance(each, dict) and each.get("use", "sig") == "sig":
                key = jwt.PyJWK.from_dict(each)
                if key.algorithm_name in ALGORITHMS:
                    keys[key.key_id] = key
    if not keys:
        raise ValueError("no public key of a known algorithm")
    return keys
