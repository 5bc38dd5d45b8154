"""How many processes a model has, and how rows and threads are divided among them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from model.bundle.bundle import Bundle
from service.errors import StartupError
from service.settings import Settings, shipped_models
from service.worker.division import divided, num_processes
from service.worker.memory import MIB, memory_need, with_processes_that_fit
from tests.integration.servers import needs_two_cores

pytestmark = needs_two_cores


@pytest.mark.parametrize(
    ("threads", "models", "expected"),
    [
        (1, 1, 1),
        (2, 1, 1),
        (3, 1, 1),
        (4, 1, 2),
        (6, 1, 3),
        (8, 1, 4),
        (32, 1, 8),
        (8, 2, 2),
        (8, 9, 1),
    ],
)
def test_by_default_a_model_has_a_process_for_two_cores(
    threads: int, models: int, expected: int
) -> None:
    paths = tuple(Path(f"/models/{number}") for number in range(models))
    assert num_processes(Settings(model=paths, threads=threads)) == expected


@pytest.mark.parametrize(("rows", "expected"), [(1, 1), (63, 1), (64, 2), (96, 3), (128, 4)])
def test_by_default_a_beam_fits_into_a_process(rows: int, expected: int) -> None:
    assert num_processes(Settings(threads=8, max_rows=rows)) == expected


def test_by_default_processes_leave_memory_for_a_reload() -> None:
    bundle = Bundle.load(shipped_models()[0], verify=False)
    settings = Settings(threads=8)

    def chosen(settings: Settings, mib: int) -> int:
        return with_processes_that_fit([bundle], settings, usable=mib * MIB).model_processes

    assert [chosen(settings, mib) for mib in (8000, 1000, 800, 300)] == [4, 3, 2, 1]
    assert chosen(dataclasses.replace(settings, model_processes=4), 300) == 4


def test_rows_and_threads_are_divided() -> None:
    parts = divided(Settings(model_processes=3, threads=8, max_rows=64))
    assert [part.threads for part in parts] == [3, 3, 2]
    assert [part.max_rows for part in parts] == [22, 21, 21]


def test_each_process_has_a_thread_and_the_default_number_of_rows() -> None:
    parts = divided(Settings(model_processes=3, threads=2))
    assert [part.threads for part in parts] == [1, 1, 1]
    assert [part.max_rows for part in parts] == [0, 0, 0]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (Settings(model_processes=2, in_process=True), "in_process"),
        (Settings(model_processes=2, device="cuda"), "GPU"),
        (Settings(model_processes=3, max_rows=2), "only 2 rows"),
    ],
)
def test_processes_that_there_can_not_be_are_refused(settings: Settings, reason: str) -> None:
    with pytest.raises(StartupError, match=f"setting model_processes: .*{reason}"):
        divided(settings)


def test_weights_count_once_and_caches_in_each_process() -> None:
    bundle = Bundle.load(shipped_models()[0], verify=False)
    settings = Settings(threads=4)
    one, four = (
        memory_need(bundle, dataclasses.replace(settings, model_processes=n), own_process=True)
        for n in (1, 4)
    )
    assert four.weights == one.weights
    assert four.caches == 4 * one.caches
    assert four.rows == 4 * one.rows
    assert four.process == 4 * one.process
    assert 3 * one.most < four.most < 4 * one.most
