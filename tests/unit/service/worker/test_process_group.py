"""Several processes of a model: opened together or not at all."""

from __future__ import annotations

import functools

import pytest

from service.engine.engine import Engine
from service.errors import StartupError
from service.worker.process import ModelProcess
from service.worker.process_group import ProcessGroup
from tests import process_models
from tests.process_models import LIMITS
from tests.unit.service.worker.serving import is_alive


async def test_a_group_has_the_rows_of_all_and_the_widest_beam_of_one() -> None:
    openings = [
        functools.partial(ModelProcess, "a-model", one)
        for one in (process_models.touchy, process_models.laned)
    ]
    group = ProcessGroup.open(openings)
    engine = Engine(group)
    await engine.start()
    assert len(set(group.pids)) == 2
    running = [group.is_running]
    assert engine.limits.max_rows == LIMITS.max_rows + 2 * LIMITS.max_rows
    assert engine.widest.max_rows == LIMITS.max_rows
    assert (group.num_lanes, group.cache_bytes) == (3, 4712)
    assert not engine.can_score  # since one of them can't
    await engine.stop()
    running.append(group.is_running)
    assert running == [True, False]
    assert not any(map(is_alive, group.pids))


def test_if_one_process_can_not_be_opened_the_others_end() -> None:
    opened: list[ModelProcess] = []

    def first() -> ModelProcess:
        opened.append(ModelProcess("a-model", process_models.touchy))
        return opened[0]

    with pytest.raises(StartupError, match="export it again"):
        ProcessGroup.open([first, lambda: ModelProcess("a-model", process_models.unusable)])
    assert not opened[0].is_running
