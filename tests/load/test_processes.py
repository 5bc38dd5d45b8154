"""The generator in its own processes against servers on real ports."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bench.load.coordinator import Coordinator
from bench.load.errors import ServerError
from bench.load.plan import LoadPlan
from bench.load.results import read_results
from bench.load.session import RunProgress, Session
from tests.load.fake_server import FakeServer, fake_server

TEXTS = ["one two three", "four five", "six"]


def answer_at_once(server: FakeServer, number: int, context: Any) -> None:
    """Answer without a delay."""


def test_several_processes_send_each_request_once(tmp_path: Path) -> None:
    with fake_server(answer_at_once) as server:
        plan = LoadPlan(
            server.address, rate=50, duration=1.0, warmup=0.2, processes=2, texts_per_request=2
        )
        results = Session(TEXTS, about={"note": "mine"}).run(plan, tmp_path / "run")
    numbers = [sample.number for sample in results.run.samples]
    assert sorted(numbers) == list(range(len(numbers)))
    assert len(numbers) == server.num_calls
    assert results.run.num_scheduled == results.summary().num_requests
    assert all(len(texts) == 2 for texts in server.texts)
    stored = read_results(tmp_path / "run")
    assert stored.summary() == results.summary()
    assert stored.about["note"] == "mine"
    assert stored.about["models"][0]["name"] == "fake"


def test_ctrl_c_counts_although_the_run_is_stopped_at_that_moment() -> None:
    """Else a search for the capacity would go on with its next trial."""

    def stop(*_: Any) -> bool:
        signal.raise_signal(signal.SIGINT)
        return True

    with fake_server(answer_at_once) as server:
        plan = LoadPlan(server.address, concurrency=1, duration=30.0, warmup=0.0)
        outcome = Coordinator(plan, TEXTS, stop).run()
    assert outcome.broken_off == "interrupted"
    assert outcome.seconds < 30.0


def test_streams_are_timed_piece_by_piece() -> None:
    def pause(server: FakeServer, number: int, context: Any) -> None:
        time.sleep(0.05)

    with fake_server(pause) as server:
        plan = LoadPlan(server.address, concurrency=4, stream=True, duration=1.0, warmup=0.0)
        results = Session(["one two three"]).run(plan)
    summary = results.summary()
    assert summary.num_ok >= 4
    assert summary.first_token.count == summary.num_ok
    assert summary.token_gap.count == 2 * summary.num_ok
    assert summary.first_token.mean is not None
    assert summary.token_gap.mean is not None
    assert summary.latency.mean is not None
    assert summary.token_gap.mean > 0.02  # less than the pause, where a piece before was late
    assert summary.first_token.mean + 2 * summary.token_gap.mean <= summary.latency.mean + 1e-6


def test_a_server_that_dies_ends_the_run_and_what_was_measured_is_written(tmp_path: Path) -> None:
    answered = threading.Semaphore(0)

    def die_after_twenty(server: FakeServer, number: int, context: Any) -> None:
        if number < 20:
            context.add_callback(answered.release)
        elif number == 20:
            # A generator that was late sends many at once.
            for _ in range(20):
                answered.acquire()
            server.server.stop(None)

    with fake_server(die_after_twenty) as server:
        plan = LoadPlan(server.address, rate=20, arrivals="constant", duration=60.0, warmup=0.0)
        results = Session(TEXTS).run(plan, tmp_path / "run")
    assert "the server is gone" in results.run.broken_off
    assert results.run.seconds < plan.duration
    stored = read_results(tmp_path / "run").summary()
    assert stored.num_ok >= 15
    assert stored.errors["UNAVAILABLE"] > 0
    assert not stored.valid
    assert (tmp_path / "run" / "report.html").exists()


def test_an_observer_can_end_a_run() -> None:
    def enough(progress: RunProgress) -> bool:
        return len(progress.run.samples) >= 10

    with fake_server(answer_at_once) as server:
        plan = LoadPlan(server.address, rate=50, duration=60.0, warmup=0.0)
        results = Session(TEXTS).run(plan, observer=enough)
    assert results.run.broken_off == "stopped"
    assert 10 <= len(results.run.samples) < 500


def test_no_server_is_an_error_that_names_the_address() -> None:
    with fake_server(answer_at_once) as server:
        address = server.address
    with pytest.raises(ServerError, match=address):
        Session(TEXTS).run(LoadPlan(address, rate=1))
