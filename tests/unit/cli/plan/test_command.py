"""Options of `dragoman plan`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.load.errors import PlanError
from cli.main import app
from cli.plan.units import parse_price, parse_target
from tests.unit.cli.plan.replicas import USUAL

DEMAND = ("--rate", "100", "--p99", "500ms")


def run(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["plan", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    path = tmp_path / "replica.json"
    USUAL.write(path)
    return path


@pytest.mark.parametrize(
    ("text", "price"), [("0.05/core-hour", 0.05), ("2", 2.0), (".5 / core-hour", 0.5), ("0", 0.0)]
)
def test_prices(text: str, price: float) -> None:
    assert parse_price(text) == price


@pytest.mark.parametrize("text", ["", "free", "-1", "0.05/core", "1/replica-hour", "nan", "1e400"])
def test_what_is_no_price_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="--price"):
        parse_price(text)


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("2s", 2.0), ("1.5 m", 90.0)])
def test_targets(text: str, seconds: float) -> None:
    assert parse_target(text, "--p99") == seconds


@pytest.mark.parametrize("text", ["500", "0ms", "-1s", "ms", "soon", ""])
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="--p99"):
        parse_target(text, "--p99")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rate", "0", "--p99", "1s"], "--rate must be above 0, not 0"),
        (["--rate", "nan", "--p99", "1s"], "--rate must be above 0, not nan"),
        (["--rate", "inf", "--p99", "1s"], "--rate must be above 0, not inf"),
        (["--rate", "10"], "--p99 is needed"),
        (["--p99", "1s"], "--rate is needed"),
        (["--rate", "10", "--p99", "500"], "--p99: '500' needs a unit"),
        ([*DEMAND, "--price", "cheap"], "--price: 'cheap' is not a price"),
        ([*DEMAND, "--routing", "best"], "--routing must be one of least-request, "),
        ([*DEMAND, "--burstiness", "0"], "--burstiness must be above 0, not 0"),
        ([*DEMAND, "--surge", "0.5"], "--surge must be at least 1, not 0.5"),
        ([*DEMAND, "--scale-delay", "5"], "--scale-delay: '5' needs a unit"),
        ([*DEMAND, "--cores", "2"], "--cores: with --replica, nothing is measured"),
        ([*DEMAND, "--measure", "one:50051"], "--measure: with --replica"),
    ],
)
def test_wrong_values_are_named(replica: Path, arguments: list[str], message: str) -> None:
    status, _, errors = run(*arguments, "--replica", replica)
    assert status == 2
    assert message in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--texts FILE is needed"),
        (["--texts", "none.txt"], "source file none.txt: No such file"),
        (["--texts", "TEXTS", "--seconds", "0"], "--seconds must be at least 1, not 0"),
        (["--texts", "TEXTS", "--cores", "0"], "--cores must be at least 1, not 0"),
        (["--texts", "TEXTS", "--cores", "9999"], "--cores: this machine has "),
        (["--texts", "TEXTS", "--measure", "nothing"], "--measure: 'nothing' is neither "),
        (["--texts", "TEXTS", "--measure", "one:50051"], "--cores is needed"),
        (["--texts", "TEXTS", "--measure", "a:b", "--cores", "2"], "--measure: "),
    ],
)
def test_a_measurement_needs(tmp_path: Path, arguments: list[str], message: str) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("A dog runs.\n")
    status, _, errors = run(*(str(texts) if one == "TEXTS" else one for one in arguments))
    assert status == 2
    assert message in errors
    assert len(errors.splitlines()) == 1


def test_a_server_that_is_away_is_named(tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("A dog runs.\n")
    where = ("--measure", "127.0.0.1:1", "--metrics", "http://127.0.0.1:1/metrics")
    status, _, errors = run("--texts", texts, *where, "--cores", "1")
    assert status == 1
    assert "no metrics at http://127.0.0.1:1/metrics" in errors


def test_an_unreachable_target_is_one_sentence(replica: Path) -> None:
    status, output, errors = run("--rate", "10", "--p99", "5ms", "--replica", replica)
    assert status == 1
    assert not output
    assert "--p99: 5 ms can't be reached" in errors.splitlines()[-1]


def test_a_plan_of_a_stored_replica(replica: Path, tmp_path: Path) -> None:
    drawn = tmp_path / "plan.svg"
    status, output, errors = run(
        *DEMAND, "--replica", replica, "--json", "--price", "0.05/core-hour", "--picture", drawn
    )
    assert status == 0, errors
    found = json.loads(output)
    assert [one["scenario"] for one in found["scenarios"]] == [
        "steady",
        "rolling restart",
        "zone lost",
    ]
    assert all(one["p99"] <= 0.5 and one["per_hour"] > 0 for one in found["scenarios"])
    assert drawn.read_text().startswith("<svg")
