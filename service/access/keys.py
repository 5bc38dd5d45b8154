"""API keys: their form, their hash, and their line in the file of keys.

A key has 256 random bits, so it cannot be guessed, and a fast hash is enough to store it. A slow
hash, as for passwords, protects secrets that can be guessed, and would delay each call.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.access.principal import PRIORITIES, Limits, Principal

_PATTERN = re.compile(r"drg_([0-9a-f]{16})_[A-Za-z0-9_-]{43}")
_ID = re.compile(r"[0-9a-f]{16}")
_HASH = re.compile(r"[0-9a-f]{64}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
"""Names of keys and tenants, which are short enough for logs and labels of metrics."""
MAX_LIMIT = 10**15

_LIMITS = ("requests_per_minute", "characters_per_day", "characters_per_month")
_FIELDS = ("name", "id", "sha256", "tenant", "models", "calls", "max_priority", *_LIMITS, "expires")


@dataclass(frozen=True)
class StoredKey:
    """A key in the file of keys.

    Attributes:
        id: the part of the key that is not secret.
        sha256: hash of the whole key, in hexadecimal digits.
    """

    id: str
    sha256: str
    principal: Principal

    def matches(self, key: str) -> bool:
        """Whether `key` is this one; takes the same time for every key."""
        return hmac.compare_digest(self.sha256, _hash(key))


def new_key(principal: Principal) -> tuple[str, StoredKey]:
    """Make a new key; returns the key itself, which is not stored, and its stored form."""
    key_id = secrets.token_hex(8)
    key = f"drg_{key_id}_{secrets.token_urlsafe(32)}"
    return key, StoredKey(key_id, _hash(key), principal)


def id_of(key: str) -> str:
    """The id in a key; "" if the text is not a key."""
    found = _PATTERN.fullmatch(key)
    return found[1] if found else ""


def find(lines: Mapping[str, str], key: str) -> Principal | None:
    """The holder of `key` by the checked lines of the file; None if the key is unknown."""
    line = lines.get(id_of(key))
    if line is None:  # the answer's time may reveal this: an id is not secret
        return None
    stored = from_line(line)
    return stored.principal if stored.matches(key) else None


def to_line(key: StoredKey) -> str:
    """The line of a key in the file."""
    who = key.principal
    values: dict[str, Any] = {
        "name": who.name,
        "id": key.id,
        "sha256": key.sha256,
        "tenant": who.tenant,
        "models": None if who.models is None else sorted(who.models),
        "calls": None if who.calls is None else sorted(who.calls),
        "max_priority": who.max_priority,
        **{name: getattr(who.limits, name) for name in _LIMITS},
        "expires": None if who.expires is None else _moment(who.expires),
    }
    kept = {name: value for name, value in values.items() if value is not None and value != ""}
    return json.dumps(kept)


def from_line(line: str) -> StoredKey:
    """Parse a line of the file. Raises ValueError, which names the field."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("not a JSON object") from None
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    if unknown := sorted(set(values) - set(_FIELDS)):
        name = unknown[0][:40]  # shorter than a hash, which may be there by mistake
        raise ValueError(f"there is no field {name!r}; there are {', '.join(_FIELDS)}")
    key_id, digest = _matching(values, "id", _ID), _matching(values, "sha256", _HASH)
    return StoredKey(key_id, digest, principal_of(values))


def principal_of(values: Mapping[str, Any]) -> Principal:
    """The principal that these values describe. Raises ValueError, which names the field."""
    return Principal(
        name=_matching(values, "name", NAME),
        expires=_expiry(values.get("expires")),
        **description_of(values),
    )


def description_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The permissions among some values, as arguments of `Principal`; others are ignored.

    Raises:
        ValueError: a value is wrong; the message names the field.
    """
    return {
        "tenant": _matching(values, "tenant", NAME) if "tenant" in values else "",
        "models": _names(values, "models"),
        "calls": _names(values, "calls"),
        "max_priority": _priority(values),
        "limits": _limits_of(values),
    }


def _limits_of(values: Mapping[str, Any]) -> Limits:
    """The limits among some values. Raises ValueError."""
    for name in _LIMITS:
        value = values.get(name)
        if value is not None and (type(value) is not int or not 0 <= value <= MAX_LIMIT):
            raise ValueError(f"{name}: must be a whole number from 0 to {MAX_LIMIT:,}")
    return Limits(**{name: values.get(name) for name in _LIMITS})


def moment_of(text: str) -> float:
    """Seconds since the epoch of a date or a time, UTC if it has no zone. Raises ValueError."""
    moment = datetime.datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()


def _expiry(value: Any) -> float | None:
    if value is None:
        return None
    try:
        return moment_of(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("expires: must be a time such as 2027-01-31T00:00:00Z") from None


def _moment(seconds: float) -> str:
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.isoformat().replace("+00:00", "Z")


def _matching(values: Mapping[str, Any], name: str, pattern: re.Pattern[str]) -> str:
    value = values.get(name)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"{name}: must match {pattern.pattern}")
    return value


def _names(values: Mapping[str, Any], name: str) -> frozenset[str] | None:
    found = values.get(name)
    if found is None:
        return None
    if not isinstance(found, list) or not all(isinstance(each, str) and each for each in found):
        raise ValueError(f"{name}: must be a list of names")
    return frozenset(found)


def _priority(values: Mapping[str, Any]) -> str:
    value = values.get("max_priority", "")
    if value not in ("", *PRIORITIES):
        raise ValueError(f"max_priority: must be one of {', '.join(PRIORITIES)}")
    return str(value)


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode(errors="backslashreplace")).hexdigest()
