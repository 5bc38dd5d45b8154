"""Many clients at once: the same answers, in shared steps."""

import asyncio
import random
import threading
from pathlib import Path

import pytest

from dragoman.client import AsyncClient, Translation
from service.domain.plan import StepOutput, StepPlan
from service.engine.engine import Engine
from service.runtime.cpu.runner import OnnxRunner
from tests.factories import SENTENCES
from tests.integration.servers import running_bundle

NUM_CLIENTS = 200


def mixed_texts(count: int) -> list[list[str]]:
    """A request for each client, of one to three texts, from one word to several sentences."""
    chance = random.Random(7)
    words = " ".join(SENTENCES).split()

    def text() -> str:
        kind = chance.random()
        if kind < 0.3:
            return " ".join(chance.choices(words, k=chance.randint(1, 4)))
        return " ".join(chance.choices(SENTENCES, k=chance.choice((1, 1, 1, 2, 4))))

    return [[text() for _ in range(chance.choice((1, 1, 1, 2, 3)))] for _ in range(count)]


async def test_200_concurrent_clients_get_what_each_would_get_alone(
    bundle_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = mixed_texts(NUM_CLIENTS)
    async with running_bundle(bundle_path) as alone:
        expected = [(await alone.client.translate(texts)).translations for texts in requests]
        steps = alone.metric("dragoman_step_rows_count", model="tiny")
        rows_alone = alone.metric("dragoman_step_rows_sum", model="tiny") / steps

    # No step ends before all have come: how many share one does not depend on the machine.
    all_inside, execute = threading.Event(), OnnxRunner.execute

    def held(runner: OnnxRunner, plan: StepPlan) -> StepOutput:
        all_inside.wait()
        return execute(runner, plan)

    monkeypatch.setattr(OnnxRunner, "execute", held)
    all_inside.set()  # for the trial at the start
    async with running_bundle(bundle_path, in_process=True) as together:
        all_inside.clear()
        start = asyncio.Event()

        async def client(texts: list[str]) -> list[Translation]:
            async with AsyncClient(together.address, timeout=100) as own:
                await own.list_models()  # the connection is made before the start
                await start.wait()
                return (await own.translate(texts)).translations

        clients = [asyncio.ensure_future(client(texts)) for texts in requests]
        while together.metric("dragoman_requests_total", method="ListModels", code="OK") < 200:
            await asyncio.sleep(0)
        start.set()
        engine = together.registry.get("tiny").engine
        assert isinstance(engine, Engine)
        while len(engine._generations) < NUM_CLIENTS:  # one of each call, at least
            await asyncio.sleep(0)
        all_inside.set()
        answers = await asyncio.gather(*clients)
        steps = together.metric("dragoman_step_rows_count", model="tiny")
        rows_together = together.metric("dragoman_step_rows_sum", model="tiny") / steps
        assert together.metric("dragoman_requests_total", method="Translate", code="OK") == 200

    assert answers == expected
    assert len({item.text for items in answers for item in items}) > 100, "too alike to tell"
    assert rows_alone < 3
    assert rows_together > 8
