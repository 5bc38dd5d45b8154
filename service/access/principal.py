"""Who makes a call, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass, field

PRIORITIES = ("low", "normal", "high")
"""From the lowest to the highest."""


@dataclass(frozen=True)
class Limits:
    """Quotas in periods of UTC, each from the beginning of its minute, day or month.

    Attributes:
        requests_per_minute, characters_per_day, characters_per_month: None for no limit.
    """

    requests_per_minute: int | None = None
    characters_per_day: int | None = None
    characters_per_month: int | None = None


@dataclass(frozen=True)
class Principal:
    """Who makes a call, as a key or a token says.

    Attributes:
        name: of the key, or "jwt:" and the subject of a token. Usage is counted by it.
        tenant: whom the key belongs to; "" for nobody in particular.
        models: the only ones that it may use; None for all.
        calls: the only methods that it may call, such as "Translate"; None for all.
        max_priority: the highest of its calls; "" for any.
        limits: its quotas.
        expires: seconds since the epoch; None for never.
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
        """The identity that shares a busy server with others: the tenant, or the key alone."""
        return f"tenant:{self.tenant}" if self.tenant else f"key:{self.name}"
