"""A model in two processes: the answers of one process, the same weights, and one end."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from bench.processes import cpu_seconds, mapped_bytes
from dragoman.client import AsyncClient, Sampling, Search, TranslationError
from model.bundle.bundle import Bundle
from service.settings import shipped_models
from tests.factories import SENTENCES
from tests.integration.replacing import model_processes
from tests.integration.servers import (
    NO_HURRY,
    ServerProcess,
    needs_two_cores,
    running_bundle,
    server_process,
    streamed,
)

TWO = ("--threads", "2", "--model-processes", "2", *NO_HURRY)
PAIRS = list(itertools.permutations(SENTENCES, 2))[:8]

pytestmark = needs_two_cores


async def translated(client: AsyncClient, *texts: str, **options: Any) -> object:
    return (await client.translate(texts, **options)).translations


async def stream_of(client: AsyncClient, text: str) -> object:
    found, end = await streamed(client, text)
    return found, end.num_target_tokens


async def scored(client: AsyncClient, pair: tuple[str, str]) -> object:
    return (await client.score([pair], return_tokens=True, return_alignments="soft")).scores


async def attended(client: AsyncClient, text: str) -> object:
    return (await client.attention(text)).maps


def mixed_calls(client: AsyncClient) -> list[Coroutine[Any, Any, object]]:
    """Searches, beams, samples, streams, scores and attention weights, always the same."""
    beam, sample = Search(beam_size=4), Search(sampling=Sampling(seed=7))
    return [
        *(translated(client, text, return_alignments="soft") for text in SENTENCES),
        *(translated(client, text, search=beam, num_hypotheses=3) for text in SENTENCES),
        *(translated(client, text, search=sample, return_tokens=True) for text in SENTENCES),
        *(stream_of(client, text) for text in SENTENCES),
        *(scored(client, pair) for pair in PAIRS),
        *(attended(client, text) for text in SENTENCES[:2]),
        translated(client, *SENTENCES * 30),
    ]


async def answers(client: AsyncClient, seed: int) -> list[str]:
    """The answers to all calls, made at once in a random order, in the order of `mixed_calls`."""
    calls = list(enumerate(mixed_calls(client)))
    random.Random(seed).shuffle(calls)
    found = await asyncio.gather(*(call for _, call in calls))
    by_number = {number: repr(one) for (number, _), one in zip(calls, found, strict=True)}
    return [by_number[number] for number in sorted(by_number)]


async def pids_of(server: ServerProcess, count: int) -> list[int]:
    pids = model_processes(server.process.pid)
    assert len(pids) == count
    return pids


async def test_two_processes_give_the_answers_of_one_bit_by_bit(bundle_path: Path) -> None:
    async with (
        server_process("--model", bundle_path, *NO_HURRY) as one,
        server_process("--model", bundle_path, *TWO) as two,
        AsyncClient(one.address, timeout=250) as client,
        AsyncClient(two.address, timeout=250) as other,
    ):
        (loaded,) = (entry for entry in two.log if entry["message"] == "loaded")
        assert (loaded["processes"], loaded["rows"]) == (2, 128)
        await pids_of(one, 1)
        pids = await pids_of(two, 2)
        expected = await answers(client, seed=1)
        for seed in (2, 3):
            assert await answers(other, seed) == expected
        assert all(cpu_seconds(pid) > 0 for pid in pids)
        for gauge in ("dragoman_rows_used", "dragoman_waiting_sentences"):
            while await two.metric(gauge):
                pass
        assert await two.metric("dragoman_model_process_resident_memory_bytes") > 2**24
        two.terminate()
        assert await two.end() == 0
    assert {entry["level"] for entry in two.log} == {"info"}
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


async def test_if_one_of_a_model_s_processes_is_killed_all_are_replaced(bundle_path: Path) -> None:
    async with (
        server_process("--model", bundle_path, *TWO) as server,
        AsyncClient(server.address, timeout=100) as client,
    ):
        first = await pids_of(server, 2)
        text = await one_text(client)
        stream = client.stream("A dog is running across the green field. " * 2000)
        await anext(stream)
        os.kill(first[0], signal.SIGKILL)
        with pytest.raises(TranslationError, match="UNAVAILABLE"):
            async for _ in stream:
                pass
        assert await one_text(client) == text
        assert not set(await pids_of(server, 2)) & set(first)


async def test_all_processes_are_replaced_put_to_sleep_and_woken(bundle_path: Path) -> None:
    async with running_bundle(bundle_path, threads=2, model_processes=2) as server:
        model = server.registry.lifecycles["tiny"]
        text = await one_text(server.client)
        first = set(model_processes(os.getpid()))
        await model.replace(None, 30.0)
        await model.wait_until_drained()
        second = set(model_processes(os.getpid()))
        assert (len(first), len(second), first & second) == (2, 2, set())
        assert await one_text(server.client) == text
        while not await model.sleep():
            await asyncio.sleep(0)
        assert not model_processes(os.getpid())
        assert await one_text(server.client) == text
        assert len(model_processes(os.getpid())) == 2
    assert not model_processes(os.getpid())


async def one_text(client: AsyncClient) -> str:
    return (await client.translate([SENTENCES[0]])).translations[0].text


async def test_processes_have_one_copy_of_the_weights() -> None:
    """In the shipped model, which has more weights than the tiny one."""
    bundle = Bundle.load(shipped_models()[0], verify=False)
    assert bundle.weights_path is not None
    size = bundle.weights_path.stat().st_size
    async with server_process(*TWO) as server:
        pids = await pids_of(server, 2)
        packed = [mapped_bytes(pid, ".weights") for pid in pids]
        original = sum(mapped_bytes(pid, bundle.weights_path.name)[1] for pid in pids)
    for resident, proportional in packed:
        assert resident > size
        assert proportional < 0.6 * resident
    assert original < size / 4
