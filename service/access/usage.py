"""Usage of quotas by principals, in the current minute, day and month.

The functions are pure: the time is an argument. A period is a calendar period in UTC, so that its
end is known and a count survives a restart as two numbers. Within a period, usage never exceeds the
limit.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace

from service.access.principal import Limits, Principal
from service.errors import QuotaError, QuotaKind, ResourceExhaustedError

MAX_RECORDS = 100_000
"""Most principals of tokens that are counted in a month, in addition to the keys of the file."""
# If the clock is set back by less than this, the period continues: its count would be lost.
_MAX_STEP_BACK_SECONDS = 60
_MINUTE, _DAY = 60, 86_400


@dataclass(frozen=True)
class Figures:
    """A principal's usage and limits.

    Attributes:
        characters_per_day: limit of the day; None without one.
        day_ends: end of the day, in seconds since the epoch.
        characters_per_month: limit of the month; None without one.
        month_ends: end of the month, in seconds since the epoch.
    """

    characters_in_day: int
    characters_per_day: int | None
    day_ends: int
    characters_in_month: int
    characters_per_month: int | None
    month_ends: int


@dataclass(frozen=True)
class Charge:
    """Characters charged to a principal, which can be given back to the same periods."""

    name: str
    num_characters: int
    day: int
    month: int


@dataclass
class Record:
    """Usage of one principal; a period is named by its first second since the epoch."""

    minute: int = 0
    num_requests: int = 0
    day: int = 0
    characters_in_day: int = 0
    month: int = 0
    characters_in_month: int = 0

    def enter(self, now: float) -> None:
        """Begin the periods of this time, if they have not begun.

        This also handles a clock that was set back: no quota can be used twice because of that, and
        none is used up for longer than its period.
        """
        before, self.minute = self.minute, _period(self.minute, _start_of_minute(now), now)
        if self.minute > before:
            self.num_requests = 0
        before, self.day = self.day, _period(self.day, _start_of_day(now), now)
        if self.day > before:
            self.characters_in_day = 0
        # A month can begin or end only together with a day.
        before, self.month = self.month, start_of_month(self.day)
        if self.month > before:
            self.characters_in_month = 0


class UsageLedger:
    """The usage of all principals.

    Args:
        max_records: most principals of tokens that are counted in a month. Further principals with
            a limit are refused, so that no limit is exceeded; those without one are not counted.

    """

    def __init__(self, max_records: int = MAX_RECORDS) -> None:
        self._changed: dict[str, None] = {}  # names of principals with records to be saved
        self._records: dict[str, Record] = {}
        self._max_records = max_records
        self._reserved: frozenset[str] = frozenset()
        self._num_others = 0  # records of names that are not reserved
        self._forgotten_before = 0  # the month before which records were dropped

    def reserve(self, names: frozenset[str]) -> None:
        """Always keep records of these names, which are those of the keys in the file."""
        self._reserved = names
        self._count_others()

    def restore(self, records: Iterable[tuple[str, Record]]) -> None:
        """Continue with the records of an earlier run."""
        self._records.update(records)
        self._count_others()

    def record(self, name: str) -> Record:
        """The record of a principal."""
        return self._records[name]

    def take_changed(self, count: int) -> list[str]:
        """Remove and return up to `count` names with changed records, to save them."""
        names = list(itertools.islice(self._changed, count))
        for name in names:
            del self._changed[name]
        return [name for name in names if name in self._records]

    def put_back(self, names: Iterable[str]) -> None:
        """Put back names with records that could not be saved."""
        self._changed.update(dict.fromkeys(names))

    def take_request(self, principal: Principal, now: float) -> None:
        """Count a request.

        Raises:
            QuotaError: no request is left in this minute.
        """
        record = self._entered(principal, now)
        limit = principal.limits.requests_per_minute
        if limit is not None and record.num_requests >= limit:
            raise QuotaError(
                f"the key's {limit:,} requests a minute are used up",
                _seconds_until(record.minute + _MINUTE, now),
                QuotaKind.REQUESTS,
            )
        record.num_requests += 1
        self._change(principal.name)

    def check_characters_left(self, principal: Principal, now: float) -> None:
        """Check that at least one character is left.

        Raises:
            QuotaError: no character is left in this day or month.
        """
        try:
            _check_characters(self._entered(principal, now), principal.limits, 1, now)
        except QuotaError as exc:
            message = "the key's characters of this day or month are used up"
            raise QuotaError(message, exc.retry_after_seconds, exc.kind) from None

    def take_characters(self, principal: Principal, count: int, now: float) -> Charge:
        """Count characters, all of them or none.

        Raises:
            QuotaError: fewer characters are left in this day or month.
        """
        record = self._entered(principal, now)
        _check_characters(record, principal.limits, count, now)
        record.characters_in_day += count
        record.characters_in_month += count
        self._change(principal.name)
        return Charge(principal.name, count, record.day, record.month)

    def give_back(self, charge: Charge, num_characters: int) -> Charge:
        """Give back some of the charged characters, unless their period is over.

        Returns:
            The rest of the charge.
        """
        assert num_characters <= charge.num_characters
        record = self._records.get(charge.name)
        if record is not None:
            if record.day == charge.day:
                record.characters_in_day -= num_characters
            if record.month == charge.month:
                record.characters_in_month -= num_characters
            self._change(charge.name)
        return replace(charge, num_characters=charge.num_characters - num_characters)

    def figures(self, principal: Principal, now: float) -> Figures:
        """A principal's usage and limits."""
        record = self._entered(principal, now)
        return Figures(
            record.characters_in_day,
            principal.limits.characters_per_day,
            record.day + _DAY,
            record.characters_in_month,
            principal.limits.characters_per_month,
            _end_of_month(record.month),
        )

    def _entered(self, principal: Principal, now: float) -> Record:
        """The principal's record, updated to the periods of `now`."""
        record = self._records.get(principal.name)
        if record is None:
            record = self._new(principal, now)
        record.enter(now)
        return record

    def _new(self, principal: Principal, now: float) -> Record:
        record, name = Record(), principal.name
        if name not in self._reserved:
            self._forget_old(start_of_month(now))
            if self._num_others >= self._max_records:
                if principal.limits == Limits():
                    return record  # not stored, since nothing limits it
                raise ResourceExhaustedError(
                    "the usage of too many principals is counted already", 60.0, reason="principals"
                )
            self._num_others += 1
        self._records[name] = record
        return record

    def _forget_old(self, month: int) -> None:
        """Drop the records of months that are over, once a month."""
        if month != self._forgotten_before:
            self._forgotten_before = month
            self._records = {
                name: record for name, record in self._records.items() if record.month >= month
            }
            self._count_others()

    def _count_others(self) -> None:
        self._num_others = sum(name not in self._reserved for name in self._records)

    def _change(self, name: str) -> None:
        if name in self._records:
            self._changed[name] = None


def _check_characters(record: Record, limits: Limits, count: int, now: float) -> None:
    # The month first: if both are used up, a retry after the day's end would fail.
    _check_left(
        record.characters_in_month, count, limits.characters_per_month, "month",
        _seconds_until(_end_of_month(record.month), now),
    )  # fmt: skip
    _check_left(
        record.characters_in_day, count, limits.characters_per_day, "day",
        _seconds_until(record.day + _DAY, now),
    )  # fmt: skip


def _check_left(used: int, count: int, limit: int | None, period: str, seconds: float) -> None:
    if limit is None or used + count <= limit:
        return
    raise QuotaError(
        f"{count:,} characters are more than the key has left of its {limit:,} a {period}: "
        f"{max(0, limit - used):,}",
        seconds,
        QuotaKind.CHARACTERS,
    )


def _period(period: int, start: int, now: float) -> int:
    """Return `period`, or `start` if `period` is over or far in the future."""
    return period if start <= period <= now + _MAX_STEP_BACK_SECONDS else start


def _start_of_minute(now: float) -> int:
    return int(now) // _MINUTE * _MINUTE


def _start_of_day(now: float) -> int:
    return int(now) // _DAY * _DAY


def start_of_month(now: float) -> int:
    """The first second of the month of `now`, in UTC."""
    day = datetime.datetime.fromtimestamp(now, datetime.UTC)
    return int(datetime.datetime(day.year, day.month, 1, tzinfo=datetime.UTC).timestamp())


def _end_of_month(month: int) -> int:
    return start_of_month(month + 32 * _DAY)


def _seconds_until(moment: float, now: float) -> float:
    """Seconds until `moment`, always more than 0, so that a retry does not hit the same period."""
    return max(0.001, moment - now)
