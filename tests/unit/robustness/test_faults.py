"""Faults under load: what counts as a find, and that a round which must fail does."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from tests.load.fake_server import fake_server
from tests.robustness.faults import load, run
from tests.robustness.faults.account import RETRIED, CallAccount
from tests.robustness.faults.gauges import Held, family, growth_finds, held_by, is_running
from tests.robustness.faults.load import CallRefused, account_for
from tests.robustness.faults.report import render
from tests.robustness.faults.round import RoundResult, Scenario, conclude
from tests.robustness.faults.run import SCENARIOS

EXPECTED = {"A dog.": "Ein Hund.", "A cat.": "Eine Katze."}


def made() -> CallAccount:
    return CallAccount(EXPECTED)


def test_the_right_answer_is_the_recorded_one_and_no_other() -> None:
    account = made()
    account.answered("unary", "A dog.", "Ein Hund.")
    assert (account.right, account.finds) == (1, [])
    for wrong in ("Ein hund.", "", "Eine Katze."):
        account.answered("unary", "A dog.", wrong)
    assert (account.right, len(account.finds)) == (1, 3)
    assert account.total == 4


@pytest.mark.parametrize("code", sorted(RETRIED))
def test_a_code_that_says_whether_to_retry_is_no_find(code: str) -> None:
    account = made()
    account.failed("unary", code, "")
    assert (account.refused[code], account.finds) == (1, [])


@pytest.mark.parametrize("code", ["INTERNAL", "UNKNOWN", "CANCELLED", "UNAUTHENTICATED", "500"])
def test_another_code_is_a_find(code: str) -> None:
    account = made()
    account.failed("unary", code, "why")
    [find] = account.finds
    assert code in find
    assert "why" in find


def test_a_stream_that_failed_must_have_begun_right() -> None:
    account = made()
    account.failed("stream", "UNAVAILABLE", "", text="A dog.", got="Ein H")
    assert account.finds == []
    account.failed("stream", "UNAVAILABLE", "", text="A dog.", got="Eine")
    assert len(account.finds) == 1


async def test_a_call_without_an_end_is_a_find(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "DEADLINE_SECONDS", 0.0)
    monkeypatch.setattr(load, "GRACE_SECONDS", 0.01)
    account = made()

    async def hang(text: str) -> str:
        await asyncio.Event().wait()
        return text

    assert not await account_for(account, "unary", "A dog.", hang)
    [find] = account.finds
    assert "hung" in find


async def test_a_server_that_is_slow_to_accept_loses_no_call() -> None:
    with fake_server(lambda server, number, context: None) as server:

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(2**16):
                writer.write(data)
                await writer.drain()
            writer.close()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(0.3)
            theirs, ours = await asyncio.open_connection("127.0.0.1", server.port)
            await asyncio.gather(relay(reader, ours), relay(theirs, writer))

        async with await asyncio.start_server(accept, "127.0.0.1", 0) as slow:
            host, port = slow.sockets[0].getsockname()
            async with load.Place(f"{host}:{port}").channel() as channel:
                stub: Any = TranslationServiceStub(channel)
                assert await load.unary(stub, "A dog.") == "A dog."


async def test_what_a_call_came_to_is_entered() -> None:
    account = made()

    async def refuse(text: str) -> str:
        raise CallRefused("UNAVAILABLE", "draining")

    async def answer(text: str) -> str:
        return EXPECTED[text]

    assert await account_for(account, "unary", "A cat.", answer)
    assert not await account_for(account, "unary", "A cat.", refuse)
    assert (account.right, dict(account.refused)) == (1, {"UNAVAILABLE": 1})


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Held)])
def test_growth_beyond_the_bound_is_a_find(name: str) -> None:
    before, most = Held(100, 10, 5, 2), Held(20, 3, 2, 1)
    at_most = Held(120, 13, 7, 3)
    assert growth_finds(before, at_most, most) == []
    beyond = dataclasses.replace(at_most, **{name: getattr(at_most, name) + 1})
    [find] = growth_finds(before, beyond, most)
    assert find.startswith(name)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    """A process that has a child of its own, and two open files more than that."""
    code = (
        "import subprocess, sys; a = open('/dev/null'); b = open('/dev/null')\n"
        "c = subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()'],"
        " stdin=subprocess.PIPE)\n"
        "print(c.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        with contextlib.suppress(BrokenPipeError):
            process.communicate("")


def test_a_server_holds_what_its_descendants_hold(child: subprocess.Popen[str]) -> None:
    assert child.stdout is not None
    grandchild = int(child.stdout.readline())
    assert set(family(child.pid)) == {child.pid, grandchild}
    held = held_by(child.pid)
    assert (held.processes, held.threads) == (2, 2)
    assert held.descriptors >= 3 + 2 + 1 + 3  # standard streams, files, a pipe, standard streams
    assert held.memory > 2**20
    assert is_running(grandchild)
    os.kill(grandchild, signal.SIGKILL)
    while is_running(grandchild):
        pass
    assert held_by(child.pid).memory < held.memory


def result(**changed: object) -> RoundResult:
    good = RoundResult("model-killed", 3, right=10, refused={"UNAVAILABLE": 2})
    return dataclasses.replace(good, **changed)  # type: ignore[arg-type]


def summary(*rounds: RoundResult) -> dict[str, object]:
    return {
        "about": {"Command": "x"},
        "scenarios": {each.name: each.what for each in SCENARIOS.values()},
        "rounds": [each.to_dict() for each in rounds],
    }


def test_the_report_adds_up_rounds_of_a_scenario_and_names_finds() -> None:
    text = render(summary(result(), result(recovery_seconds=4.0), result(finds=["a", "a"])))
    [row] = [line for line in text.splitlines() if line.startswith("| model-killed")]
    assert "| 3 | 30 | 6 UNAVAILABLE | 0.0 s, 4.0 s |" in row
    assert row.endswith("| 2 |")
    assert "3 rounds, 38 calls: 30 answered" in text
    assert "- model-killed, seed 3: a (2 times)" in text
    assert "## Finds" not in render(summary(result()))


@pytest.mark.parametrize("finds", [[], ["wrong"]])
def test_a_find_fails_the_run_and_is_printed_with_its_command(
    finds: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def play(scenario: Scenario, seed: int, *_: object) -> RoundResult:
        return result(scenario=scenario.name, seed=seed, finds=finds)

    async def recorded(*_: object) -> dict[str, str]:
        return EXPECTED

    monkeypatch.setattr(run, "play", play)
    monkeypatch.setattr(run, "recorded", recorded)
    played = asyncio.run(run.play_all([SCENARIOS["slow-reader"]], 2, 5, Path("bundle")))
    printed = capsys.readouterr().out
    assert [each.seed for each in played] == [5, 6]
    assert ("FIND wrong" in printed) == bool(finds)
    assert ("--only slow-reader --seed 6 --rounds 1" in printed) == bool(finds)


@pytest.mark.parametrize("name", ["slow-reader", "model-killed"])
def test_a_refusal_is_a_find_where_nothing_may_be_lost(name: str) -> None:
    account, concluded = made(), result()
    account.failed("unary", "UNAVAILABLE", "")
    conclude(SCENARIOS[name], account, concluded)
    assert concluded.refused == {"UNAVAILABLE": 1}
    assert bool(concluded.finds) != SCENARIOS[name].lost
