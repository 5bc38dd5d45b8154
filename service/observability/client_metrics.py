"""Metrics by client and by key, in a bounded number of series."""

from __future__ import annotations

import functools

from prometheus_client import CollectorRegistry, Counter

NUM_CLIENTS = 50
# Prefixes of `CallContext.client` for clients that name themselves or have a key.
_NAMED = ("id:", "key:", "tenant:")
_ADDRESS, _OTHER = "address", "other"


class BoundedNames:
    """Bounds the values of a label: the first names keep theirs, all others become "other".

    It cannot choose the largest: a series that passed from one name to another is not a counter.
    """

    def __init__(self, max_names: int) -> None:
        self._max_names = max_names
        self._names: set[str] = set()

    def label(self, name: str) -> str:
        """The name, or "other"."""
        if name not in self._names:
            if len(self._names) >= self._max_names:
                return _OTHER
            self._names.add(name)
        return name


class KeyMetrics:
    """Counts calls and characters by key, in a bounded number of series.

    Args:
        max_keys: most keys with series of their own; all others count as "other".
    """

    def __init__(self, registry: CollectorRegistry, max_keys: int) -> None:
        self._names = BoundedNames(max_keys)
        requests = Counter(
            "dragoman_key_requests",
            "Calls finished, by name of the API key (or subject of the token): the first ones, and "
            "all others together (other).",
            ["key", "code"],
            registry=registry,
        )
        characters = Counter(
            "dragoman_key_characters",
            "Characters charged to API keys, by name as above.",
            ["key"],
            registry=registry,
        )
        self._requests = functools.cache(requests.labels)
        self._characters = functools.cache(characters.labels)

    def used(self, name: str, code: str, num_characters: int) -> None:
        """Count a call with the key `name` that ended."""
        label = self._names.label(name)
        self._requests(label, code).inc()
        self._characters(label).inc(num_characters)


class ClientMetrics:
    """Counts calls by client, in a bounded number of series.

    Args:
        max_clients: most named clients with series of their own. Further named clients count as
            "other". Unnamed clients count as "address", because an address is not a bounded label.
    """

    def __init__(self, registry: CollectorRegistry, max_clients: int) -> None:
        self._names = BoundedNames(max_clients)
        requests = Counter(
            "dragoman_client_requests",
            "Calls finished, by client: the first clients that name themselves, all other named "
            "clients together (other), and all unnamed clients together (address).",
            ["client", "code"],
            registry=registry,
        )
        self._requests = functools.cache(requests.labels)

    def call_finished(self, client: str, code: str) -> None:
        """Count a call of `client` (`CallContext.client`) that ended with the status `code`."""
        self._requests(self._label(client), code).inc()

    def _label(self, client: str) -> str:
        return self._names.label(client) if client.startswith(_NAMED) else _ADDRESS
