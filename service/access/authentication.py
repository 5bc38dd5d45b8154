"""The caller of a call, and its permissions.

`RunningCall.authenticate` asks `AccessControl.identify` for every call, whatever its interface. The
`Grant` of the running call, `current_call().grant`, has the principal and its usage.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol
from urllib.parse import parse_qsl

from service.access.principal import PRIORITIES, Principal
from service.access.usage import Charge, Figures, UsageLedger
from service.errors import PermissionDeniedError, UnauthenticatedError

# In order of precedence, if a call has several.
_SCHEMES = ("bearer", "deepl-auth-key")
_HEADERS = ("x-api-key", "x-goog-api-key")
_AUTHORIZATION = "authorization"
_NAMES = (_AUTHORIZATION, *_HEADERS)
KEY_HEADER = _HEADERS[0]
KEY_PARAMETER = "key"
MAX_CREDENTIAL_CHARACTERS = 8192
_MAX_QUERY_CHARACTERS = 16 * 1024
MISSING = (
    "this server needs an API key, in the header `authorization: Bearer KEY` or `x-api-key: KEY`"
)


class Authenticator(Protocol):
    """Finds the principal of a credential."""

    async def authenticate(self, credential: str) -> Principal | None:
        """The principal of the credential, or None if it is unknown or of another kind.

        Raises:
            UnauthenticatedError: the credential is of this kind and not valid; the message says
                why.
        """
        ...


def credential_of(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """The key or token in a call's metadata or headers, with names in lower case; "" if none."""
    found: dict[str, str] = {}
    for name, value in metadata:
        if name in _NAMES and isinstance(value, str):
            found.setdefault(name, value.strip())
    scheme, _, credential = found.get(_AUTHORIZATION, "").partition(" ")
    if scheme.lower() in _SCHEMES and credential.strip():
        return credential.strip()
    return next((found[name] for name in _HEADERS if found.get(name)), "")


def credential_in_query(query: bytes) -> str:
    """The key in a URL's query, `key=KEY`, where Google's clients send it; "" if none."""
    if len(query) > _MAX_QUERY_CHARACTERS:
        return ""
    pairs = parse_qsl(query.decode("latin-1"))
    return next((value.strip() for name, value in pairs if name == KEY_PARAMETER), "")


class Grant:
    """The permissions and the usage of one call.

    Args:
        principal: principal that makes the call; None on a server without authentication, which
            allows everything and counts nothing.
    """

    def __init__(
        self,
        principal: Principal | None = None,
        ledger: UsageLedger | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.principal = principal
        self.num_characters = 0  # charged and not given back
        self._ledger = ledger or UsageLedger()
        self._clock = clock
        self._charges: list[Charge] = []

    @property
    def owner(self) -> str:
        """Owner of the objects that the call creates; "" (everyone) without a principal."""
        return self.principal.client if self.principal else ""

    def begin(self, method: str) -> None:
        """Count the call as a request.

        Raises:
            PermissionDeniedError: the principal may not call this method.
            QuotaError: it has no request left in this minute.
        """
        if (principal := self.principal) is None:
            return
        if principal.calls is not None and method not in principal.calls:
            raise PermissionDeniedError(f"the key does not allow the call {method}")
        self._ledger.take_request(principal, self._clock())

    def check_models(self, names: Iterable[str]) -> None:
        """Raise PermissionDeniedError if the principal may not use one of these models."""
        for name in names:
            if not self.allows_model(name):
                raise PermissionDeniedError(f"the key does not allow the model {name}")

    def allows_model(self, name: str) -> bool:
        """Whether the principal may use a model."""
        return (
            self.principal is None or self.principal.models is None or name in self.principal.models
        )

    def priority(self, wanted: str) -> str:
        """The priority of a call that asks for `wanted`; "" leaves the choice to the server.

        Raises:
            PermissionDeniedError: `wanted` is higher than the principal's highest priority.
        """
        highest = self.principal.max_priority if self.principal else ""
        if not highest or PRIORITIES.index(wanted or "normal") <= PRIORITIES.index(highest):
            return wanted
        if not wanted:
            return highest
        raise PermissionDeniedError(f"options.priority: the key allows {highest} at most")

    def check_characters_left(self) -> None:
        """Raise QuotaError if no character is left."""
        if self.principal is not None:
            self._ledger.check_characters_left(self.principal, self._clock())

    def charge(self, num_characters: int) -> None:
        """Count the characters of the call's texts.

        Raises:
            QuotaError: fewer characters are left; none is counted.
        """
        if self.principal is not None:
            charge = self._ledger.take_characters(self.principal, num_characters, self._clock())
            self._charges.append(charge)
            self.num_characters += num_characters

    def give_back(self, num_characters: int | None = None) -> None:
        """Give back characters of the last charge, or all of them."""
        if num_characters is not None:
            if self._charges:
                self._charges[-1] = self._ledger.give_back(self._charges[-1], num_characters)
                self.num_characters -= num_characters
            return
        for charge in self._charges:
            self._ledger.give_back(charge, charge.num_characters)
        self._charges, self.num_characters = [], 0

    def figures(self) -> Figures | None:
        """The principal's usage and limits; None without a principal."""
        if self.principal is None:
            return None
        return self._ledger.figures(self.principal, self._clock())


class AccessControl:
    """Authenticates calls by their credentials.

    Args:
        authenticators: authenticators to try in this order; none for a server that needs no
            credentials.
    """

    def __init__(
        self,
        authenticators: Sequence[Authenticator] = (),
        ledger: UsageLedger | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._authenticators = authenticators
        self._ledger = ledger or UsageLedger()
        self._clock = clock

    @property
    def is_open(self) -> bool:
        """Whether calls need no credential."""
        return not self._authenticators

    async def identify(self, credential: str) -> Grant:
        """The grant of a call, on which `begin` has not been called.

        Raises:
            UnauthenticatedError: the credential is missing, expired or unknown.
        """
        if self.is_open:
            return Grant()
        principal = await self._principal(credential)
        if principal.expires is not None and principal.expires <= self._clock():
            raise UnauthenticatedError("the API key has expired")
        return Grant(principal, self._ledger, self._clock)

    async def _principal(self, credential: str) -> Principal:
        if not credential:
            raise UnauthenticatedError(MISSING)
        if len(credential) <= MAX_CREDENTIAL_CHARACTERS:
            for authenticator in self._authenticators:
                if (principal := await authenticator.authenticate(credential)) is not None:
                    return principal
        raise UnauthenticatedError("the API key is not valid")
