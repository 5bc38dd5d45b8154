"""The key of a request: a hash of everything that its result depends on."""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
from typing import Any

from service.domain.requests import GenerationRequest, ScoringRequest, SearchOptions

# Fields about the client and the time. Every other field is part of the key, a future one as well.
_UNRELATED = frozenset({"deadline", "request_id", "client", "client_id", "priority"})
_KEY_BYTES = 32


def can_be_cached(request: GenerationRequest) -> bool:
    """Whether the result is small: soft alignments and attention weights are not."""
    if not isinstance(request, ScoringRequest):
        return True
    return request.selection is None and request.alignment != "soft"


def request_key(revision: str, tenant: str, request: GenerationRequest) -> bytes:
    """The key of a request.

    Args:
        revision: model, software and machine, as far as results depend on them.
        tenant: name of the tenant that the result belongs to; "" for all.
        request: the request.

    Raises:
        TypeError: a field of the request or of its options has no canonical form.
    """
    whole = repr((revision, tenant, _canonical(request)))
    return hashlib.blake2b(whole.encode(), digest_size=_KEY_BYTES).digest()


def _canonical(value: Any) -> object:
    """A value whose `repr` is the same for equal values, and different for others."""
    if isinstance(value, SearchOptions):
        return _options(value)
    if dataclasses.is_dataclass(value):
        return _fields(value)
    if isinstance(value, enum.Enum):
        return type(value).__name__, value.name
    if isinstance(value, tuple | list):
        is_plain = set(map(type, value)) <= {int}
        return tuple(value) if is_plain else tuple(map(_canonical, value))
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TypeError(f"{type(value).__name__} has no canonical form: {value!r}")


def _fields(value: Any) -> object:
    pairs = ((each.name, getattr(value, each.name)) for each in dataclasses.fields(value))
    kept = tuple((name, _canonical(item)) for name, item in pairs if name not in _UNRELATED)
    return type(value).__name__, kept


# Most requests have the same options, which take longer to encode than a sentence.
_options = functools.lru_cache(256)(_fields)
