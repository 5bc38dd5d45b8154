"""The memory that models need, computed from bundles without opening them."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re

import pytest

from model.bundle.bundle import Bundle
from service.errors import StartupError
from service.settings import Settings, shipped_models
from service.worker.memory import (
    FRONT_BYTES,
    MIB,
    PROCESS_BYTES,
    SERVER_BYTES,
    MemoryBudget,
    check_memory,
    memory_need,
)


@pytest.fixture
def bundle() -> Bundle:
    """The shipped one."""
    return Bundle.load(shipped_models()[0], verify=False)


def test_the_bound_counts_every_row_at_its_longest(bundle: Bundle) -> None:
    few, many = (
        memory_need(bundle, Settings(max_rows=rows, threads=1), own_process=True)
        for rows in (8, 64)
    )
    assert few.caches * 8 == many.caches
    assert few.weights == many.weights
    assert few.typical < many.typical < many.most
    # 64 rows of the longest sources, in two layers' keys and values of width 256, in float32. The
    # states of a recurrent decoder are as long for any target.
    longest = bundle.manifest["limits"]["max_source_positions"]
    assert longest > 200
    assert many.most - many.typical > 64 * 2 * (longest - 128) * 2 * 256 * 4


def test_the_bound_counts_the_weights_of_attention(bundle: Bundle) -> None:
    manifest = {**bundle.manifest, "graphs": {**bundle.manifest["graphs"]}}
    del manifest["graphs"]["attention"]
    without = dataclasses.replace(bundle, manifest=manifest)
    needs = [memory_need(one, Settings(), own_process=True) for one in (without, bundle)]
    assert needs[0].typical == needs[1].typical
    # Beside the graph, scores and weights of 512 tokens by 512, of all heads, in float32.
    assert needs[1].most - needs[0].most > needs[1].weights // 2 + 2 * 4 * 512**2 * 4


def test_all_sessions_and_processes_hold_the_weights_once(bundle: Bundle) -> None:
    settings = Settings(threads=1), Settings(threads=2), Settings(threads=4, model_processes=2)
    needs = [memory_need(bundle, each, own_process=True).weights for each in settings]
    assert bundle.weights_path is not None
    assert needs == [needs[0]] * 3
    assert needs[0] > bundle.weights_path.stat().st_size


def test_a_process_is_counted_where_there_is_one(bundle: Bundle) -> None:
    own, shared = (
        memory_need(bundle, Settings(), own_process=own_process) for own_process in (True, False)
    )
    assert own.typical - shared.typical == own.process == PROCESS_BYTES


def test_what_does_not_fit_is_refused_with_the_sum(bundle: Bundle) -> None:
    other = dataclasses.replace(bundle, manifest={**bundle.manifest, "name": "other"})
    with pytest.raises(StartupError) as caught:
        check_memory([bundle, other], Settings(memory_budget=200), own_process=True)
    message = str(caught.value)
    assert "--memory-budget 200" in message
    need, *terms = _sum(message)
    assert abs(need - sum(terms)) <= len(terms)
    assert terms[0] == SERVER_BYTES // MIB


def test_front_processes_count(bundle: Bundle) -> None:
    usable = SERVER_BYTES + memory_need(bundle, Settings(), own_process=True).typical
    mib = (SERVER_BYTES + 2 * FRONT_BYTES) // MIB
    with pytest.raises(StartupError, match=f"server {mib}"):
        check_memory([bundle], Settings(front_processes=2), own_process=True, usable=usable)


def test_the_response_cache_counts(bundle: Bundle) -> None:
    need = memory_need(bundle, Settings(), own_process=True)
    usable = SERVER_BYTES + need.typical
    check_memory([bundle], Settings(), own_process=True, usable=usable)
    with pytest.raises(StartupError, match=f"server {SERVER_BYTES // MIB + 5}"):
        check_memory([bundle], Settings(cache_memory=5), own_process=True, usable=usable)
    with (
        pytest.raises(StartupError, match=f"server {SERVER_BYTES // MIB + 5}"),
        MemoryBudget(Settings(cache_memory=5), usable=usable).opening(bundle),
    ):
        raise AssertionError


def _sum(message: str) -> list[int]:
    """The memory of all, then of the server and of each model."""
    found = re.findall(r"about (\d+) MiB|server (\d+)|(?:en-de|other) (\d+) \(", message)
    return [int("".join(groups)) for groups in found]


def test_without_a_budget_the_machine_s_memory_is_the_limit(bundle: Bundle) -> None:
    with pytest.raises(StartupError, match="this machine or its control group has 100: "):
        check_memory([bundle], Settings(), own_process=True, usable=100 * MIB)
    # A budget is the operator's word.
    check_memory([bundle], Settings(memory_budget=4096), own_process=True, usable=100 * MIB)


def test_each_model_is_logged_and_a_bound_that_does_not_fit_is_a_warning(
    bundle: Bundle, caplog: pytest.LogCaptureFixture
) -> None:
    need = memory_need(bundle, Settings(), own_process=True)
    caplog.set_level(logging.INFO)
    budget = (SERVER_BYTES + (need.typical + need.most) // 2) // MIB
    check_memory([bundle], Settings(memory_budget=budget), own_process=True)
    line, warning = caplog.records
    assert (line.message, line.__dict__["model"], line.__dict__["rows"]) == ("memory", "en-de", 64)
    assert line.__dict__["typical_mib"] < line.__dict__["most_mib"]
    assert (warning.levelname, "--max-rows" in warning.message) == ("WARNING", True)
    caplog.clear()
    check_memory([bundle], Settings(memory_budget=2**20), own_process=True)
    assert [record.levelname for record in caplog.records] == ["INFO"]


# --- while a server runs -------------------------------------------------------------------------


def named(bundle: Bundle, name: str) -> Bundle:
    return dataclasses.replace(bundle, manifest={**bundle.manifest, "name": name})


def budget_for(bundle: Bundle, versions: int) -> MemoryBudget:
    """Room for so many versions of the bundle's size, and no more."""
    need = memory_need(bundle, Settings(), own_process=True)
    return MemoryBudget(Settings(), usable=SERVER_BYTES + versions * need.typical)


class Process:
    """Of a version."""

    def __init__(self, budget: MemoryBudget, bundle: Bundle) -> None:
        self.runs = True
        with budget.opening(bundle) as started:
            started(lambda: self.runs)


def test_a_second_version_needs_room_beside_the_first_and_all_other_models(bundle: Bundle) -> None:
    other = named(bundle, "other")
    budget = budget_for(bundle, versions=2)
    first = Process(budget, bundle)
    Process(budget, other)
    with pytest.raises(StartupError) as caught:
        Process(budget, bundle)
    message = str(caught.value)
    assert "this machine or its control group has" in message
    assert (message.count("which runs"), message.count("the new en-de")) == (2, 1)
    need, *terms = _sum(message)
    assert len(terms) == 4
    assert abs(need - sum(terms)) <= len(terms)
    first.runs = False
    Process(budget, bundle)


def test_a_sleeping_model_keeps_its_room(bundle: Bundle) -> None:
    other = named(bundle, "other")
    budget = budget_for(bundle, versions=2)
    Process(budget, bundle)
    Process(budget, other).runs = False
    with pytest.raises(StartupError, match="which sleeps"):
        Process(budget, bundle)
    Process(budget, other)  # it wakes


def test_a_version_counts_while_it_is_opened_and_no_longer_if_that_fails(bundle: Bundle) -> None:
    budget = budget_for(bundle, versions=1)
    with contextlib.suppress(ValueError), budget.opening(bundle):
        with pytest.raises(StartupError, match="which runs"):
            Process(budget, bundle)
        raise ValueError
    Process(budget, bundle)


def test_versions_that_have_ended_are_forgotten(bundle: Bundle) -> None:
    budget = budget_for(bundle, versions=2)
    versions = [Process(budget, bundle)]
    for _ in range(5):
        versions.append(Process(budget, bundle))
        with pytest.raises(StartupError):
            Process(budget, bundle)
        versions[-2].runs = False
