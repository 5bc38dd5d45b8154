"""Sets up access control from the settings: the file of keys, tokens, and saved usage."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.access.authentication import AccessControl, Authenticator
from service.access.key_store import KeyStore
from service.access.usage import UsageLedger
from service.access.usage_store import UsageStore
from service.errors import StartupError
from service.observability.metrics import ServerMetrics
from service.settings import Settings

if TYPE_CHECKING:
    from service.access.key_set import KeySet

_log = logging.getLogger("dragoman.keys")


class Access:
    """Access control and its background tasks.

    Attributes:
        control: authenticates calls; it refuses all until `start` has ended, unless the settings
            ask for no credentials.

    Raises:
        StartupError: a setting is missing.
    """

    def __init__(self, settings: Settings, metrics: ServerMetrics) -> None:
        self._ledger = UsageLedger()
        self._tasks: list[asyncio.Task[None]] = []
        self._keys: KeyStore | None = None
        self._usage: UsageStore | None = None
        if path := settings.usage or (settings.keys and f"{settings.keys}.usage.db"):
            self._usage = UsageStore(Path(path), metrics)
        authenticators: list[Authenticator] = []
        if settings.keys:
            self._keys = KeyStore(Path(settings.keys), metrics, self._ledger.reserve)
            authenticators.append(self._keys)
        self._token_keys: KeySet | None = None
        if _wants_tokens(settings):
            self._token_keys, tokens = _tokens(settings, metrics)
            authenticators.append(tokens)
        if settings.usage and not authenticators:
            raise StartupError("--usage: there is no usage to keep without --keys or --jwt-issuer")
        self.control = AccessControl(authenticators, self._ledger)

    async def start(self) -> None:
        """Read the files, and start to watch them.

        Raises:
            StartupError: a file can't be read or has an error.
        """
        if self._keys is not None:
            await self._keys.load()
            self._run("keys", self._keys.watch())
        if self._token_keys is not None:
            self._run("keys of the token issuer", self._token_keys.keep_fresh())
        if self._usage is not None:
            self._ledger.restore(await self._usage.load())
            self._run("usage", self._usage.save_for_ever(self._ledger))

    async def stop(self) -> None:
        """Stop the background tasks, and save the remaining changes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._usage is not None:
            await self._usage.save_changes(self._ledger)
            await self._usage.close()

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(_log_failure)
        self._tasks.append(task)


def _wants_tokens(settings: Settings) -> bool:
    """Whether the settings ask for tokens. Raises StartupError if one of them is missing."""
    given = [
        bool(value) for value in (settings.jwt_issuer, settings.jwt_audience, settings.jwks_url)
    ]
    if any(given) and not all(given):
        raise StartupError("--jwt-issuer, --jwt-audience and --jwks-url need each other")
    return all(given)


def _tokens(settings: Settings, metrics: ServerMetrics) -> tuple[KeySet, Authenticator]:
    """The authenticator of tokens and its keys. Raises StartupError."""
    try:  # an extra, imported only if it is needed
        from service.access.key_set import KeySet
        from service.access.tokens import TokenAuthenticator
    except ModuleNotFoundError as exc:
        raise StartupError(
            "--jwt-issuer: PyJWT is missing: pip install '.[jwt]' in the folder of Dragoman's "
            "source"
        ) from exc
    keys = KeySet(settings.jwks_url, metrics)
    return keys, TokenAuthenticator(settings.jwt_issuer, settings.jwt_audience, keys)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        _log.critical("%s failed", task.get_name(), exc_info=error)
