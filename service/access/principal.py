"""The principal that makes a call, and its permissions."""

from __future__ import annotations

from dataclasses import dataclass, field

PRIORITIES = ("low", "normal", "high")
"""Names of the priorities, from the lowest to the highest."""


@dataclass(frozen=True)
class Limits:
    """Quotas for calendar periods in UTC: minutes, days and months.

    Attributes:
        requests_per_minute: most requests in a minute; None for no limit.
        characters_per_day: most characters in a day; None for no limit.
        characters_per_month: most characters in a month; None for no limit.
    """

    requests_per_minute: int | None = None
    characters_per_day: int | None = None
    characters_per_month: int | None = None


@dataclass(frozen=True)
class Principal:
    """The holder of a key or token, and its permissions.

    Attributes:
        name: name of the key, or "jwt:" and the subject of a token. Usage is counted by it.
        tenant: name of the tenant that the key belongs to; "" without one.
        models: names of the models that it may use; None for all.
        calls: methods that it may call, such as "Translate"; None for all.
        max_priority: highest priority of its calls; "" for any.
        expires: time at which the key or token expires, in seconds since the epoch; None for never.
    """

    name: str
    tenant: str = ""
    models: frozenset[str] | None = None
    calls: frozenset[str] | None = None
    max_priority: str = ""
    limits: Limits = field(default_factory=Limits)
    expires: float | None = None

    @property
    def client(self) -> str:
        """The client name for fair sharing of a busy server: the tenant, or else the key."""
        return f"tenant:{self.tenant}" if self.tenant else f"key:{self.name}"
