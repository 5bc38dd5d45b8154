"""The fuzzer finds what it looks for: targets and servers that misbehave in each way it judges."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from service.ports.http.front_routes import all_fronts
from tests.robustness.fuzz import report
from tests.robustness.fuzz.grpc_calls import DOCUMENTED, judge_status
from tests.robustness.fuzz.http_requests import FRONTS, HttpInput, judge_answer
from tests.robustness.fuzz.isolated import InputLimits, Shard, run_shards, shards_of
from tests.robustness.fuzz.run import counts_of, main
from tests.robustness.fuzz.served import check_afterwards, run_inputs
from tests.robustness.fuzz.server import DESCRIPTORS_BOUND, MEMORY_BOUND_BYTES, Footprint, ServerLog
from tests.robustness.fuzz.target import Finding, Tally, random_of
from tests.robustness.fuzz.targets import PARSERS, SERVED
from tests.unit.robustness.fuzz_targets import (
    WARM_UP,
    FakeFuzzedServer,
    MisbehavingCalls,
    MisbehavingParser,
)

ROOT = Path(__file__).parents[3]
MODULE = "tests.unit.robustness.fuzz_targets"
LIMITS = InputLimits(cpu_seconds=0.3, hang_seconds=6.0, memory_bytes=64 * 2**20)


def run(factory: str, count: int) -> Tally:
    tally = Tally()
    shards = shards_of([(f"{MODULE}:{factory}", count)], 0)
    run_shards(shards, LIMITS, 1, lambda shard, found: tally.add(found))
    return tally


def test_all_that_a_parser_can_do_wrong_is_found() -> None:
    tally = run("MisbehavingParser", WARM_UP + 7)
    numbers = {defect.what: defect.number - WARM_UP for defect in tally.defects.values()}
    assert numbers == {
        "KeyError in tests/unit/robustness/fuzz_targets.py, run": 0,
        "BaseException in tests/unit/robustness/fuzz_targets.py, run": 1,
        "a property": 2,
        "more than 0.3 s": 3,
        "more than 64 MiB": 4,
        "(MemoryError)": 5,
        "no end within 6 s": 6,
    }
    assert tally.num_inputs == WARM_UP + 7


def test_a_process_that_dies_is_found_and_replaced() -> None:
    tally = run("DyingParser", 3)
    [defect] = tally.defects.values()
    assert (defect.what, defect.count) == ("the process ended with status 3", 3)


def test_an_error_of_the_fuzzer_is_no_defect_of_a_target() -> None:
    with pytest.raises(AttributeError):
        run("NoSuchTarget", 1)


@pytest.mark.parametrize("name", [*PARSERS, *SERVED])
def test_the_same_seed_makes_the_same_input(name: str) -> None:
    makes: Any = {**PARSERS, **SERVED}[name]
    first, second = makes(), makes()
    given = [first.generate(random_of(name, 0, number)) for number in range(30)]
    assert list(map(repr, given)) == [
        repr(second.generate(random_of(name, 0, number))) for number in range(30)
    ]
    others = [first.generate(random_of(name, 1, number)) for number in range(30)]
    assert list(map(repr, given)) != list(map(repr, others))


async def test_all_that_a_call_can_do_wrong_is_found() -> None:
    tally = Tally()
    await run_inputs(MisbehavingCalls(), FakeFuzzedServer(), 0, range(6), tally, 0.1)
    assert {defect.what: defect.number for defect in tally.defects.values()} == {
        "a status": 1,
        "ValueError in tests/unit/robustness/fuzz_targets.py, run": 2,
        "no end within 0.1 s": 3,
    }
    assert tally.outcomes["fine"] == 3


async def test_a_canary_that_fails_is_found() -> None:
    tally = Tally()
    wrong = FakeFuzzedServer("the canary's translation changed: x instead of y")
    await check_afterwards(wrong, Footprint(0, 0), tally)
    assert list(tally.defects) == ["the canary's translation changed"]


async def test_a_server_that_ends_is_found() -> None:
    tally = Tally()
    gone = FakeFuzzedServer(is_alive=False)
    await run_inputs(MisbehavingCalls(), gone, 0, range(6), tally)
    await check_afterwards(gone, Footprint(0, 0), tally)
    assert "the server's process ended" in tally.defects


@pytest.mark.parametrize(
    ("after", "what"),
    [
        (Footprint(1 + MEMORY_BOUND_BYTES, 0), "memory is more than"),
        (Footprint(0, 1 + DESCRIPTORS_BOUND), "descriptors above the base"),
        (Footprint(0, 0, {"dragoman_rows_used": 1.0}), "dragoman_rows_used is not zero"),
    ],
)
async def test_what_a_server_keeps_is_found(after: Footprint, what: str) -> None:
    tally = Tally()
    await check_afterwards(FakeFuzzedServer(footprint=after), Footprint(0, 0), tally)
    [found] = tally.defects
    assert what in found
    assert Footprint(MEMORY_BOUND_BYTES, DESCRIPTORS_BOUND).problems(Footprint(0, 0)) == []


def test_a_log_with_errors_is_found() -> None:
    log = ServerLog()
    for line in ('{"level": "info", "message": "serving"}', '{"level": "error", "message": "a"}'):
        log.read(line)
    log.read(json.dumps({"level": "warning", "message": "b", "exception": "Traceback\nValueError"}))
    log.read("Fatal Python error")
    assert log.errors == Counter(
        {
            "logged: a": 1,
            "logged: b ValueError": 1,
            "logged: no JSON: Fatal Python error": 1,
        }
    )


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("INTERNAL", ""),
        ("UNKNOWN", ""),
        ("UNAVAILABLE", ""),
        ("CANCELLED", ""),
        ("INVALID_ARGUMENT", 'Traceback (most recent call last): File "/x.py"'),
    ],
)
def test_statuses_that_no_document_has_are_found(code: str, message: str) -> None:
    with pytest.raises(Finding):
        judge_status(code, message, is_cancelled=False)


def test_documented_statuses_are_fine() -> None:
    for code in DOCUMENTED:
        assert judge_status(code, "a field", is_cancelled=False) == code
    assert judge_status("CANCELLED", "", is_cancelled=True) == "CANCELLED"


def answer(status: int, body: Any, kind: str = "application/json") -> bytes:
    text = body if isinstance(body, str) else json.dumps(body)
    return f"HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\n\r\n{text}".encode()


@pytest.mark.parametrize(
    ("front", "given"),
    [
        ("contract", b""),
        ("contract", b"SSH-2.0"),
        ("contract", answer(500, {"code": 13, "message": "x"})),
        ("contract", answer(502, {"code": 13, "message": "x"})),
        ("contract", answer(400, {"error": "x"})),
        ("contract", answer(400, "no JSON")),
        ("contract", answer(400, {"code": 3, "message": "x"}, "text/html")),
        ("contract", answer(400, {"code": 3, "message": "Traceback (most recent call last)"})),
        ("libretranslate", answer(400, {"message": "q: is missing"})),
        ("libretranslate", answer(405, {"code": 5, "message": "/translate takes POST only"})),
        ("deepl", answer(400, {"error": "text: is missing"})),
        ("google-v2", answer(400, {"error": "q: is missing"})),
        ("google-v3", answer(400, {"code": 3, "message": "contents: is missing"})),
    ],
)
def test_answers_that_no_front_gives_are_found(front: str, given: bytes) -> None:
    with pytest.raises(Finding):
        judge_answer(HttpInput(front, b"POST /", True), given)


@pytest.mark.parametrize(
    ("front", "given", "outcome"),
    [
        ("contract", answer(200, {}), "200"),
        ("contract", answer(503, {"code": 14, "message": "starting"}), "503"),
        ("libretranslate", answer(400, {"error": "q: is missing"}), "400"),
        ("libretranslate", answer(404, {"error": "there is no path /suggest"}), "404"),
        ("deepl", answer(403, {"message": "no key"}), "403"),
        ("google-v2", answer(400, {"error": {"code": 400, "message": "x"}}), "400"),
        ("google-v3", answer(403, {"code": 7, "message": "host: not this server"}), "403"),
    ],
)
def test_answers_of_the_fronts_are_fine(front: str, given: bytes, outcome: str) -> None:
    assert judge_answer(HttpInput(front, b"POST /", True), given) == outcome
    assert judge_answer(HttpInput(front, b"garbage", False), b"") == "closed"


def test_requests_go_to_every_front() -> None:
    fronts = all_fronts(needs_keys=False, max_file_bytes=1)
    assert sorted(FRONTS) == sorted(front.name for front in fronts)


def test_every_input_is_given_to_a_target() -> None:
    counts = counts_of(1_000_000, [*SERVED, *PARSERS])
    assert abs(sum(counts.values()) - 1_000_000) <= len(counts)
    assert min(counts["grpc"], counts["http"]) >= 20_000
    assert counts_of(100, ["grpc"]) == {"grpc": 100}
    assert sum(counts_of(100, ["html", "xml"]).values()) == 100


def test_a_find_ends_with_status_1_and_says_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(PARSERS, "misbehaving", MisbehavingParser)
    app = typer.Typer()
    app.command()(main)
    arguments = ["--target", "misbehaving", "--inputs", str(WARM_UP + 1)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1, result.output
    assert f"--target misbehaving --seed 0 --only {WARM_UP}" in result.stdout
    assert CliRunner().invoke(app, ["--target", "languages", "--inputs", "20"]).exit_code == 0
    alone = CliRunner().invoke(app, ["--target", "languages", "--only", "7"])
    assert (alone.exit_code, "FOUND" in alone.stdout) == (0, False)


def test_what_was_mended_has_a_test() -> None:
    rows = report.read_mended()
    assert rows
    assert [row["test"] for row in rows if not (ROOT / row["test"]).is_file()] == []


def test_a_shard_goes_on_after_its_defect() -> None:
    tally = Tally()
    shards = [
        Shard(f"{MODULE}:DyingParser", 0, range(0)),
        Shard(f"{MODULE}:DyingParser", 0, range(1)),
    ]
    run_shards(shards, LIMITS, 1, lambda shard, found: tally.add(found))
    assert tally.num_inputs == 1
