"""Quotas in virtual time: never exceeded, exact, and the same after a restart."""

from __future__ import annotations

import datetime
import sqlite3
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.access.principal import Limits, Principal
from service.access.usage import Charge, UsageLedger
from service.access.usage_store import UsageStore
from service.errors import QuotaError, QuotaKind, ResourceExhaustedError, StartupError
from service.observability.metrics import ServerMetrics

START = datetime.datetime(2027, 1, 31, 23, 58, 30, tzinfo=datetime.UTC).timestamp()
MONTH = START - 30 * 86_400


def utc(now: float, form: str) -> str:
    return datetime.datetime.fromtimestamp(now, datetime.UTC).strftime(form)


def principal(
    name: str = "me",
    requests: int | None = None,
    day: int | None = None,
    month: int | None = None,
) -> Principal:
    return Principal(name, limits=Limits(requests, day, month))


limits = st.one_of(st.none(), st.integers(0, 40))
steps = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.sampled_from([0.0, 0.3, 20.0, 59.0, 61.0, 40_000.0, 90_000.0, 3_000_000.0]),
        st.integers(0, 25),
        st.booleans(),  # whether it is given back
    ),
    max_size=60,
)


@given(limits, limits, limits, steps)
def test_no_sum_exceeds_its_limit_and_none_is_refused_that_fits(
    requests: int | None,
    day: int | None,
    month: int | None,
    moves: list[tuple[str, float, int, bool]],
) -> None:
    ledger, now = UsageLedger(), START
    used: defaultdict[tuple[str, str], int] = defaultdict(int)
    for name, pause, count, fails in moves:
        now += pause
        who = principal(name, requests, day, month)
        minute_key, day_key, month_key = (
            (name, utc(now, form)) for form in ("%Y-%m-%d %H:%M", "%Y-%m-%d", "%Y-%m")
        )
        if requests is not None and used[minute_key] >= requests:
            with pytest.raises(QuotaError) as caught:
                ledger.take_request(who, now)
            assert caught.value.kind is QuotaKind.REQUESTS
            assert 0 < caught.value.retry_after_seconds <= 60
            continue
        ledger.take_request(who, now)
        used[minute_key] += 1
        fits = all(
            limit is None or used[key] + count <= limit
            for limit, key in ((day, day_key), (month, month_key))
        )
        if not fits:
            with pytest.raises(QuotaError) as caught:
                ledger.take_characters(who, count, now)
            assert caught.value.kind is QuotaKind.CHARACTERS
            later = now + caught.value.retry_after_seconds
            assert utc(later, "%Y-%m-%d") > utc(now, "%Y-%m-%d")
            continue
        charge = ledger.take_characters(who, count, now)
        if fails:
            ledger.give_back(charge, count)
        else:
            used[day_key] += count
            used[month_key] += count
        figures = ledger.figures(who, now)
        assert figures.characters_in_day == used[day_key]
        assert figures.characters_in_month == used[month_key]


def test_a_period_ends_at_its_end_in_utc() -> None:
    ledger, who = UsageLedger(), principal(day=5, month=8)
    ledger.take_characters(who, 5, START)
    with pytest.raises(QuotaError) as caught:
        ledger.take_characters(who, 1, START)
    assert caught.value.retry_after_seconds == 90
    figures = ledger.figures(who, START)
    assert (figures.day_ends, figures.month_ends) == (START + 90, START + 90)
    ledger.take_characters(who, 5, START + 90)
    with pytest.raises(QuotaError) as caught:  # the month's 8, not the day's 5, is what counts
        ledger.take_characters(who, 5, START + 90 + 86_400)
    assert caught.value.retry_after_seconds == 27 * 86_400


def test_what_is_given_back_late_is_not_given_to_the_next_period() -> None:
    ledger, who = UsageLedger(), principal(day=10)
    charge = ledger.take_characters(who, 10, START)
    ledger.take_characters(who, 7, START + 100)
    ledger.give_back(charge, 10)
    assert ledger.figures(who, START + 100).characters_in_day == 7


def test_a_clock_that_is_set_back_a_little_gives_nothing_back() -> None:
    ledger, who = UsageLedger(), principal(day=10)
    ledger.take_characters(who, 4, START)
    ledger.take_characters(who, 10, START + 95)
    with pytest.raises(QuotaError):
        ledger.take_characters(who, 1, START + 85)
    with pytest.raises(QuotaError):
        ledger.take_characters(who, 1, START + 95)


@pytest.mark.parametrize("step", [61.0, 600.0, 3500.0, 86_400.0, 10**9])
def test_a_clock_that_is_set_back_far_keeps_nobody_out_for_longer_than_a_period(
    step: float,
) -> None:
    ledger, who = UsageLedger(), principal(requests=3, day=10, month=100)
    noon = START - 40_000.0
    for _ in range(3):
        ledger.take_request(who, noon + step)
    ledger.take_characters(who, 10, noon + step)
    with pytest.raises(QuotaError) as caught:  # what was used a moment ago counts on
        ledger.take_request(who, noon)
    assert caught.value.retry_after_seconds <= 120
    ledger.take_request(who, noon + 120)
    with pytest.raises(QuotaError) as caught:
        ledger.take_characters(who, 1, noon)
    assert caught.value.retry_after_seconds <= 86_400
    ledger.take_characters(who, 10, noon + 86_400)


@given(
    st.lists(
        st.sampled_from([0.0, 10.0, 50.0, -30.0, -90.0, -4000.0, -90_000.0, 90_000.0]),
        max_size=40,
    )
)
def test_a_clock_that_jumps_gives_no_quota_twice_and_blocks_none_for_long(
    steps: list[float],
) -> None:
    ledger, who, now = UsageLedger(), principal(requests=5, day=50), START
    refusals: list[QuotaError] = []
    for step in steps:
        now += step
        before = ledger.figures(who, now - step).characters_in_day
        after = ledger.figures(who, now)
        assert step > 0.0 or after.characters_in_day == before
        assert now < after.day_ends <= now + 86_400 + 60
        try:
            ledger.take_request(who, now)
            ledger.take_characters(who, 7, now)
        except QuotaError as error:
            refusals.append(error)
    for refusal in refusals:
        longest = 60 if refusal.kind is QuotaKind.REQUESTS else 86_400
        assert refusal.retry_after_seconds <= longest + 60


def test_principals_of_tokens_are_bounded_and_keys_have_room_all_the_same() -> None:
    ledger = UsageLedger(max_records=10)
    ledger.reserve(frozenset({"key"}))
    for number in range(10):
        ledger.take_request(principal(f"jwt:{number}"), MONTH)
    unlimited = principal("jwt:unlimited")
    ledger.take_request(unlimited, MONTH)
    for number in range(1000):
        with pytest.raises(ResourceExhaustedError):
            ledger.take_characters(principal(f"jwt:more-{number}", day=1), 1, MONTH)
    ledger.take_request(principal("key", requests=1), MONTH)
    with pytest.raises(QuotaError):
        ledger.take_request(principal("key", requests=1), MONTH)
    assert len(ledger._records) == 11
    # In the next month, those of the last one are forgotten.
    ledger.take_characters(principal("jwt:new", day=1), 1, MONTH + 40 * 86_400)


async def test_a_restart_goes_on_where_the_last_run_ended(tmp_path: Path) -> None:
    now = datetime.datetime.now(datetime.UTC).timestamp()
    path, total = tmp_path / "usage.db", 0
    who = principal(requests=100, day=1000, month=1000)
    for count in (300, 500, 200):
        store, ledger = await opened(path)
        ledger.take_request(who, now)
        ledger.take_characters(who, count, now)
        total += count
        await store.save_changes(ledger)
        await store.close()
        store, ledger = await opened(path)
        assert ledger.figures(who, now).characters_in_month == total
        await store.close()
    with pytest.raises(QuotaError):
        ledger.take_characters(who, 1, now)
    assert path.stat().st_mode & 0o777 == 0o600


async def test_many_records_are_saved_in_several_commits(tmp_path: Path) -> None:
    now = datetime.datetime.now(datetime.UTC).timestamp()
    store, ledger = await opened(tmp_path / "usage.db")
    for number in range(2500):
        ledger.take_characters(principal(str(number)), number, now)
    await store.save_changes(ledger)
    await store.close()
    store, ledger = await opened(tmp_path / "usage.db")
    assert all(
        ledger.figures(principal(str(number)), now).characters_in_day == number
        for number in range(2500)
    )
    await store.close()


async def opened(path: Path) -> tuple[UsageStore, UsageLedger]:
    store, ledger = UsageStore(path, ServerMetrics()), UsageLedger()
    ledger.restore(await store.load())
    return store, ledger


async def test_a_corrupt_database_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(StartupError, match="move the file away"):
        await UsageStore(path, ServerMetrics()).load()
    assert path.read_bytes() == b"no database" * 1000


async def test_records_that_this_program_has_not_written_stop_the_start(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    store, _ = await opened(path)
    await store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO usage VALUES ('me', 0, 'x', 0, 0, 9999999999, -1)")
    connection.close()
    with pytest.raises(StartupError, match="wrong record"):
        await UsageStore(path, ServerMetrics()).load()


async def test_two_servers_do_not_share_a_database(tmp_path: Path) -> None:
    store, _ = await opened(tmp_path / "usage.db")
    with pytest.raises(StartupError, match="locked"):
        await UsageStore(tmp_path / "usage.db", ServerMetrics()).load()
    await store.close()


async def test_a_folder_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="--usage"):
        await UsageStore(tmp_path / "none" / "usage.db", ServerMetrics()).load()


async def test_what_could_not_be_saved_is_saved_later(tmp_path: Path) -> None:
    now = datetime.datetime.now(datetime.UTC).timestamp()
    metrics = ServerMetrics()
    store, ledger = UsageStore(tmp_path / "usage.db", metrics), UsageLedger()
    await store.load()
    assert store._connection is not None
    await store._run(store._connection.execute, "PRAGMA query_only = 1")  # as a full disk would
    ledger.take_characters(principal(), 7, now)
    await store.save_changes(ledger)
    saved = "dragoman_usage_last_save_successful"
    assert metrics.registry.get_sample_value(saved) == 0
    ledger.take_characters(principal(), 1, now)  # calls go on
    await store._run(store._connection.execute, "PRAGMA query_only = 0")
    await store.save_changes(ledger)
    assert metrics.registry.get_sample_value(saved) == 1
    await store.close()
    _, restored = await opened(tmp_path / "usage.db")
    assert restored.figures(principal(), now).characters_in_day == 8


def test_giving_back_twice_is_not_possible() -> None:
    ledger, who = UsageLedger(), principal()
    charge = ledger.take_characters(who, 10, START)
    rest = ledger.give_back(charge, 4)
    assert rest == Charge("me", 6, charge.day, charge.month)
    with pytest.raises(AssertionError):
        ledger.give_back(rest, 7)
