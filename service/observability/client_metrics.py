"""Calls by client, in a bounded number of series."""

from __future__ import annotations

import functools

from prometheus_client import CollectorRegistry, Counter

NUM_CLIENTS = 50

_NAMED = (
    "id:"  # as `service.api.interceptor.CallContext.client` begins for a client that names itself
)
_ADDRESS, _OTHER = "address", "other"


class ClientMetrics:
    """Counts calls by the client that sent them: the first clients since the start, then the rest.

    The first, not the largest: a counter that passed from one client to another, or came back lower
    than it was, would be no counter to Prometheus.

    Args:
        registry: where the metric is registered.
        max_clients: that have a series of their own (for each code). Calls of further ones count as
            those of the client "other", and calls of clients that are known by their address alone
            as those of "address": addresses are no labels.
    """

    def __init__(self, registry: CollectorRegistry, max_clients: int = NUM_CLIENTS) -> None:
        self._max_clients = max_clients
        self._clients: set[str] = set()
        requests = Counter(
            "dragoman_client_requests",
            "Calls finished, of the first clients that named themselves; then of all others "
            "(other), and of those that did not (address).",
            ["client", "code"],
            registry=registry,
        )
        self._requests = functools.cache(requests.labels)  # which takes longer than to count

    def call_finished(self, client: str, code: str) -> None:
        """A call of a client (`CallContext.client` of the interceptor) ended with a gRPC status."""
        self._requests(self._label(client), code).inc()

    def _label(self, client: str) -> str:
        if not client.startswith(_NAMED):
            return _ADDRESS
        if client not in self._clients:
            if len(self._clients) >= self._max_clients:
                return _OTHER
            self._clients.add(client)
        return client
