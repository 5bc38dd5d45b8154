"""The search for the number of replicas, and what it prints and draws."""

from __future__ import annotations

import json
import math
from xml.etree import ElementTree

import pytest

from bench.load.units import format_seconds
from cli.plan.planner import RESTART, STEADY, SURGE, ZONE, Demand, FleetPlanner, UnreachableError
from cli.plan.report import as_json, cost_of, picture, table_rows
from tests.unit.cli.plan.replicas import USUAL, usual

DEMAND = Demand(rate=300.0, p99_seconds=0.3, surge=1.5, scale_seconds=5.0)


@pytest.fixture(scope="module")
def planner() -> FleetPlanner:
    planner = FleetPlanner(USUAL, DEMAND)
    planner.plan()
    return planner


def test_the_chosen_number_is_the_smallest(planner: FleetPlanner) -> None:
    for plan in planner.plan():
        assert plan.chosen.p99_most <= DEMAND.p99_seconds
        fewer = [one for one in plan.tried if one.replicas < plan.chosen.replicas]
        assert fewer
        assert all(one.p99_most > DEMAND.p99_seconds for one in fewer)


def test_events_need_more_replicas(planner: FleetPlanner) -> None:
    chosen = {plan.name: plan.chosen for plan in planner.plan()}
    assert list(chosen) == [STEADY, RESTART, ZONE, SURGE]
    assert chosen[STEADY].replicas < chosen[RESTART].replicas < chosen[ZONE].replicas
    assert chosen[SURGE].replicas > chosen[STEADY].replicas
    assert chosen[STEADY].load == pytest.approx(300 / chosen[STEADY].replicas / USUAL.capacity())
    assert chosen[STEADY].p50 < chosen[STEADY].p99 <= chosen[STEADY].p99_most


def test_a_slice_stands_for_a_large_fleet() -> None:
    small, *_ = FleetPlanner(USUAL, Demand(24 * 40.0, 0.5)).simulate(STEADY, 24, seed=0)
    large, *_ = FleetPlanner(USUAL, Demand(240 * 40.0, 0.5)).simulate(STEADY, 240, seed=0)
    assert (large.latencies == small.latencies).all()


def test_a_target_below_one_sentence_is_said_at_once() -> None:
    planner = FleetPlanner(USUAL, Demand(10.0, 0.04))
    fastest = max(USUAL.idle_seconds(*lengths) for lengths in USUAL.lengths)
    with pytest.raises(
        UnreachableError, match=rf"--p99: 40 ms .* idle one .* {format_seconds(fastest)}"
    ):
        planner.plan()


def test_costs() -> None:
    cost = cost_of(4, usual(cores=2), Demand(100.0, 1.0), 0.05)
    assert (cost.cores, cost.memory_bytes) == (8, 4 * USUAL.memory_bytes)
    assert cost.per_hour == pytest.approx(0.4)
    assert cost.per_month == pytest.approx(292.0)
    assert cost.per_million == pytest.approx(0.4 / 360_000 * 1e6)
    assert cost_of(4, USUAL, Demand(100.0, 1.0), None).per_million is None


def test_the_table_has_prices_only_if_there_is_one(planner: FleetPlanner) -> None:
    plans = planner.plan()
    assert {len(row) for row in table_rows(plans, USUAL, DEMAND, None)} == {7}
    assert {len(row) for row in table_rows(plans, USUAL, DEMAND, 0.05)} == {10}


def test_json_has_no_infinite_number(planner: FleetPlanner) -> None:
    found = as_json(planner.plan(), USUAL, DEMAND, 0.05)
    again = json.loads(json.dumps(found, allow_nan=False))
    assert again["replicas"] == max(one["replicas"] for one in again["scenarios"])
    tried = [one for scenario in again["scenarios"] for one in scenario["tried"]]
    assert any(one["p99"] is None for one in tried)


def test_the_picture_is_an_svg_file_that_names_the_scenarios(planner: FleetPlanner) -> None:
    drawn = ElementTree.fromstring(picture(planner.plan(), DEMAND))
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    words = " ".join(drawn.itertext())
    for plan in planner.plan():
        assert f"{plan.name}: {plan.chosen.replicas} replicas" in words
    assert "target 300 ms" in words
    assert not math.isnan(sum(map(float, drawn.attrib["viewBox"].split())))
