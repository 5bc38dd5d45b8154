"""Tokens of an issuer (JSON Web Tokens) in place of API keys.

The claim `sub` names the principal, and the optional claim `dragoman` has the same fields as a line
in the file of keys: tenant, models, calls, max_priority and quotas.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import jwt

from service.access.key_set import ALGORITHMS, KeySet
from service.access.keys import description_of
from service.access.principal import Principal
from service.errors import UnauthenticatedError

CLAIM = "dragoman"
_LEEWAY_SECONDS = 30.0  # tolerated difference between the clocks of issuer and server
_PLAIN = re.compile(r"[A-Za-z0-9\-_.:/+=@]{1,100}")
_INVALID = "the token is not valid"
_REASONS: tuple[tuple[type[jwt.PyJWTError], str], ...] = (
    (jwt.ExpiredSignatureError, "the token has expired"),
    (jwt.ImmatureSignatureError, "the token is not valid yet"),
    (jwt.InvalidAudienceError, "the token is for another audience"),
    (jwt.InvalidIssuerError, "the token is of another issuer"),
    (jwt.MissingRequiredClaimError, "the token lacks one of the claims exp, sub, iss and aud"),
)


class TokenAuthenticator:
    """An `Authenticator` for tokens that an issuer has signed.

    Args:
        issuer: expected value of the claim `iss`.
        audience: expected value of the claim `aud`.
    """

    def __init__(self, issuer: str, audience: str, keys: KeySet) -> None:
        self._issuer = issuer
        self._audience = audience
        self._keys = keys

    async def authenticate(self, credential: str) -> Principal | None:
        """The principal of the token, or None if the credential is not a JWT.

        Raises:
            UnauthenticatedError: the token is not valid; the message says why.
            KeysUnavailableError: the token can't be checked now.
        """
        if credential.count(".") != 2:
            return None
        try:
            header = jwt.get_unverified_header(credential)
            # Checked first, so that an invalid token does not cause a fetch of keys.
            if header.get("alg") not in ALGORITHMS:
                raise UnauthenticatedError(_INVALID)
            key = await self._keys.find(header.get("kid"))
            if key is None:
                raise UnauthenticatedError("the token is signed with a key that is not known here")
            claims = jwt.decode(
                credential,
                key,
                algorithms=[key.algorithm_name],
                issuer=self._issuer,
                audience=self._audience,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "sub", "iss", "aud"]},
            )
        except jwt.PyJWTError as exc:
            reason = next((text for kind, text in _REASONS if isinstance(exc, kind)), _INVALID)
            raise UnauthenticatedError(reason) from None  # the exception may contain the token
        except (ValueError, RecursionError):  # deeply nested JSON
            raise UnauthenticatedError(_INVALID) from None
        return _principal(claims)


def _principal(claims: dict[str, Any]) -> Principal:
    """The principal of valid claims. Raises UnauthenticatedError if `dragoman` is wrong."""
    subject, values = claims["sub"], claims.get(CLAIM, {})
    if not isinstance(values, dict):
        raise UnauthenticatedError(f"the token's claim {CLAIM} must be an object")
    # A subject can be any text: unusual ones are named by a hash, with a prefix of their own.
    digest = hashlib.sha256(subject.encode(errors="backslashreplace")).hexdigest()
    name = f"jwt:{subject}" if _PLAIN.fullmatch(subject) else f"jwt#{digest[:32]}"
    try:
        return Principal(name=name, **description_of(values))
    except ValueError as exc:
        raise UnauthenticatedError(f"the token's claim {CLAIM}: {exc}") from None
