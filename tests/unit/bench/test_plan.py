from pathlib import Path
from typing import Any

import pytest

from bench.load.errors import PlanError, SourceError
from bench.load.plan import LoadPlan
from bench.load.source import TextOrder, read_texts
from bench.load.units import format_seconds, min_samples, parse_duration, parse_slo
from bench.load.worker import Share


@pytest.mark.parametrize(
    ("fields", "argument"),
    [
        ({}, "--rate"),
        ({"rate": 1, "concurrency": 1}, "--concurrency"),
        ({"rate": 0}, "--rate"),
        ({"rate": float("nan")}, "--rate"),
        ({"rate": float("inf")}, "--rate"),
        ({"concurrency": 0}, "--concurrency"),
        ({"rate": 1, "duration": 0}, "--duration"),
        ({"rate": 1, "warmup": -1}, "--warmup"),
        ({"rate": 1, "timeout": 0}, "--timeout"),
        ({"rate": 1, "arrivals": "monthly"}, "--arrivals"),
        ({"rate": 1, "burstiness": 2}, "--burstiness"),
        ({"rate": 1, "arrivals": "gamma", "burstiness": 0}, "--burstiness"),
        ({"rate": 1, "texts_per_request": 0}, "--texts-per-request"),
        ({"rate": 1, "texts_per_request": 2, "stream": True}, "--texts-per-request"),
        ({"concurrency": 2, "processes": 3}, "--processes"),
        ({"rate": 1, "max_new_tokens": 0}, "--max-new-tokens"),
        ({"rate": 1, "beam_size": 0}, "--beam-size"),
        ({"rate": 1, "beam_size": 2, "stream": True}, "--beam-size"),
        ({"rate": 1, "early_stopping": "first"}, "--early-stopping"),
        ({"rate": 1, "beam_size": 2, "early_stopping": "soon"}, "--early-stopping"),
        ({"rate": 1, "seed": -1}, "--seed"),
        ({"rate": 1e9, "duration": 1e6}, "--rate"),
    ],
)
def test_wrong_plans_are_refused_by_name(fields: dict[str, Any], argument: str) -> None:
    with pytest.raises(PlanError, match=argument):
        LoadPlan("localhost:1", **fields)


def test_a_plan_survives_json() -> None:
    plan = LoadPlan("localhost:1", rate=2.5, arrivals="gamma", burstiness=3.0, stream=True)
    assert LoadPlan.from_dict(plan.to_dict()) == plan


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("60s", 60), ("1.5m", 90), ("2", 2), ("10us", 1e-5)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text, "--duration") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "-1s", "1 day", "nan", "1e3"])
def test_wrong_durations(text: str) -> None:
    with pytest.raises(PlanError, match="--duration"):
        parse_duration(text, "--duration")


def test_promises() -> None:
    slo = parse_slo("p99.9=1.5s")
    assert (slo.percentile, slo.seconds, slo.min_samples) == (99.9, 1.5, 10_000)
    assert str(parse_slo("p99=500ms")) == "p99=500 ms"


@pytest.mark.parametrize("text", ["", "99=1s", "p100=1s", "p0=1s", "p99", "p99=fast", "p99=0s"])
def test_wrong_promises(text: str) -> None:
    with pytest.raises(PlanError, match="--slo"):
        parse_slo(text)


def test_samples_that_a_percentile_needs() -> None:
    assert [min_samples(p) for p in (50, 90, 95, 99, 99.9)] == [20, 100, 200, 1000, 10_000]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (1.23456, "1.23 s"), (0.5, "500 ms"), (0.0123, "12.3 ms"), (4.2e-5, "42 us"),
     (-0.25, "-250 ms"), (1234.5, "1,234 s")],
)  # fmt: skip
def test_seconds_are_shown_with_three_digits(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_texts_are_the_lines_that_say_something(tmp_path: Path) -> None:
    file = tmp_path / "texts"
    file.write_text("one\n\n  \ntwo\n", encoding="utf-8")
    assert read_texts(file) == ["one", "two"]


@pytest.mark.parametrize("content", [b"", b"\n \n", b"good\n\xff\n", None])
def test_source_files_without_texts_are_refused_by_name(
    tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "texts"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SourceError, match=str(file)):
        read_texts(file)


def test_every_text_is_sent_once_before_any_is_sent_again() -> None:
    order = TextOrder(10, 3, seed=5)
    sent = [index for number in range(20) for index in order.of_request(number)]
    rounds = [sent[start : start + 10] for start in range(0, 60, 10)]
    assert all(sorted(one) == list(range(10)) for one in rounds)
    assert rounds[0] != rounds[1]
    assert TextOrder(10, 3, seed=5).of_request(7) == order.of_request(7)


def test_processes_share_one_schedule_and_all_users() -> None:
    plan = LoadPlan("", rate=30, duration=5, warmup=1, processes=3, seed=6)
    alone = Share(plan, ["x"], 0, 1).schedule()
    shared = [Share(plan, ["x"], index, 3).schedule() for index in range(3)]
    assert sorted(item for part in shared for item in part) == alone
    closed = LoadPlan("", concurrency=8, processes=3)
    assert [Share(closed, ["x"], index, 3).num_users for index in range(3)] == [3, 3, 2]
