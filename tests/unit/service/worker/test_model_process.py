"""An engine whose model runs in a process of its own: a real process, with a scripted model."""

from __future__ import annotations

import asyncio
import functools
import os
import pickle
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.submission import submit, submit_many
from service import errors
from service.batching.events import Events
from service.domain.plan import ScoreItem
from service.domain.requests import (
    FinishReason,
    GenerationRequest,
    ScoringRequest,
    SearchOptions,
)
from service.engine.engine import EngineConfig
from service.engine.metrics import ModelMetrics
from service.errors import (
    DeadlineExceededError,
    DragomanError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    RequestCancelledError,
    ResourceExhaustedError,
    UnavailableError,
)
from service.observability.metrics import ServerMetrics
from service.worker.main import Channel, ModelHost
from service.worker.messages import (
    Add,
    Ended,
    Frames,
    Open,
    Opened,
    Start,
    Stop,
    framed,
)
from service.worker.opening import OpenModel
from tests import process_models
from tests.fake_scorer import FakeScorer
from tests.process_models import FAILING, LIMITS
from tests.searches import entries_of, submitted
from tests.unit.service.worker.serving import EOS, predicted, request, serving


@pytest.mark.parametrize("open_model", [process_models.touchy, process_models.laned])
async def test_each_gets_the_answer_it_gets_in_this_process(
    open_model: Callable[[], OpenModel],
) -> None:
    requests = [request(*range(10, 10 + i % 20)) for i in range(100)]

    async def streamed(asked: GenerationRequest) -> list[int]:
        return [token async for tokens in submit(engine, asked) for token in tokens]

    async with serving(open_model) as (engine, _):
        at_once = submit_many(engine, requests)
        streams = await asyncio.gather(*map(streamed, requests))
        for asked, tokens, generation in zip(requests, streams, at_once, strict=True):
            result = await generation.result()
            assert (result.token_ids, result.finish_reason) == predicted(asked)
            assert tokens == result.token_ids
            assert result.was_admitted
            assert result.first_token_seconds is None or result.first_token_seconds >= 0.0
        assert engine._admission.num_taken == 0


async def test_what_the_process_can_hold_is_known_here() -> None:
    async with serving(process_models.laned) as (engine, process):
        assert engine.limits.max_rows == 2 * LIMITS.max_rows
        assert (process.num_lanes, process.cache_bytes) == (2, 1)
        assert not engine.can_score
        with pytest.raises(FailedPreconditionError):
            await engine.prepare_scoring()
        with pytest.raises(InvalidArgumentError, match="beam_size"):
            submit(engine, GenerationRequest((10, EOS), SearchOptions(beam_size=5)))


async def test_a_step_that_fails_costs_its_own_requests_and_tells_no_secrets() -> None:
    async with serving() as (engine, _):
        result = await submit(engine, request(FAILING)).result()
        assert isinstance(result.error, InternalError)
        assert "secret" not in str(result.error)
        after = request(10, 11)
        assert (await submit(engine, after).result()).token_ids == predicted(after)[0]


async def test_tokens_come_while_the_rest_is_still_to_be_written(pipe: Path) -> None:
    async with serving(functools.partial(process_models.gated, pipe)) as (engine, _):
        stream = aiter(submit(engine, request(10)))
        first = [*await anext(stream)]
        while len(first) < 2:
            first += await anext(stream)
        assert first == [10, 11]  # nobody can know more before the pipe is written to
        await asyncio.to_thread(pipe.write_bytes, b"go")
        rest = [token async for tokens in stream for token in tokens]
        assert first + rest == list(range(10, 30))


async def test_who_is_cancelled_or_late_leaves_before_the_next_step(pipe: Path) -> None:
    async with serving(functools.partial(process_models.gated, pipe)) as (engine, _):
        with pytest.raises(DeadlineExceededError):
            submit(engine, request(10, deadline=engine.now() - 1.0))
        staying, cancelled = submit_many(engine, [request(10), request(11)])
        stream, tokens = aiter(cancelled), list[int]()
        while len(tokens) < 2:
            tokens += await anext(stream)
        cancelled.cancel(RequestCancelledError("nobody is left"))
        await engine.prepare_scoring()  # the process answers once it has the order before this one
        await asyncio.to_thread(pipe.write_bytes, b"go")
        result = await cancelled.result()
        assert result.finish_reason is FinishReason.CANCELLED
        assert isinstance(result.error, RequestCancelledError)
        assert str(result.error) == "nobody is left"
        assert len(result.token_ids) < 20
        assert (await staying.result()).token_ids == list(range(10, 30))
        staying.cancel()  # who has ended is not there any more: nothing happens
        assert engine._admission.num_taken == 0


def test_the_process_keeps_no_requests() -> None:
    ours, theirs = socket.socketpair()
    host = ModelHost(Channel(theirs))
    serving = threading.Thread(target=host.serve)
    serving.start()
    frames = Frames()

    def received() -> Iterator[object]:
        while True:
            yield from frames.feed(ours.recv(65536))

    messages = received()
    ours.sendall(framed(Open(process_models.touchy)))
    assert isinstance(next(messages), Opened)
    ours.sendall(framed(Start(EngineConfig())))
    ours.sendall(framed(Add([submitted(request(10 + n), 40) for n in range(9)])))
    num_finished = 0
    while num_finished < 9:
        events = next(messages)
        assert isinstance(events, Events)
        num_finished += len(events.finished)
    ours.sendall(framed(Stop()))
    ended = next(message for message in messages if isinstance(message, Ended))
    assert not ended.failed
    assert host._steps is not None
    assert not entries_of(host._steps._scheduler)
    ours.close()
    serving.join()


# --- scoring -------------------------------------------------------------------------------------


async def test_scores_and_attention_come_back_as_they_were() -> None:
    asked = ScoringRequest((10, 11, EOS), target_ids=(12, 13, EOS), alignment="soft")
    async with serving() as (engine, _):
        assert engine.can_score
        await asyncio.gather(*(engine.prepare_scoring() for _ in range(3)))
        (hypothesis,) = (await submit(engine, asked).result()).hypotheses
    scorer = FakeScorer()
    expected = scorer.predict(ScoreItem(asked.source_ids, asked.target_ids))
    assert hypothesis.token_log_probabilities == expected.log_probabilities.tolist()
    assert hypothesis.attention is not None
    np.testing.assert_array_equal(hypothesis.attention, expected.attention)


@pytest.mark.parametrize(
    ("open_model", "kind"),
    [
        (process_models.without_memory_to_score, ResourceExhaustedError),
        (process_models.without_scoring_graph, UnavailableError),
    ],
)
async def test_a_scoring_graph_that_can_t_be_loaded_is_told_without_secrets(
    open_model: Callable[[], OpenModel], kind: type[DragomanError]
) -> None:
    async with serving(open_model) as (engine, _):
        with pytest.raises(kind) as caught:
            await engine.prepare_scoring()
        assert "secret" not in str(caught.value)
        asked = request(10)
        assert (await submit(engine, asked).result()).token_ids == predicted(asked)[0]


@pytest.mark.parametrize("end", ["killed", "stopped"])
async def test_who_waits_for_scoring_hears_that_the_process_has_ended(end: str) -> None:
    async with serving(exit_status=-signal.SIGKILL) as (engine, process):
        os.kill(process.pid, signal.SIGSTOP)
        waiting = asyncio.create_task(engine.prepare_scoring())
        await asyncio.sleep(0)
        if end == "killed":
            os.kill(process.pid, signal.SIGKILL)
        else:
            await engine.stop(timeout_seconds=0.1)  # as if a step hung
        with pytest.raises(UnavailableError, match="has ended"):
            await waiting


def test_a_server_that_is_busy_keeps_nobody_waiting() -> None:
    ours, theirs = socket.socketpair()
    messages = [b"%d" % n * 100_000 for n in range(30)]  # more than a socket holds
    channel = Channel(theirs)
    for message in messages:
        channel.send(message)
    frames, found = Frames(), list[object]()
    while len(found) < len(messages):
        found += frames.feed(ours.recv(65536))
    assert found == messages
    ours.close()
    channel.send(b"to nobody")
    assert list(channel.messages()) == []


# --- on the wire ---------------------------------------------------------------------------------


@given(
    st.lists(st.recursive(st.integers() | st.text(), st.lists, max_leaves=20)),
    st.lists(st.integers(min_value=1, max_value=40), min_size=1),
)
def test_messages_are_found_in_pieces_of_any_size(
    messages: Sequence[object], sizes: Sequence[int]
) -> None:
    wire, frames, found = b"".join(map(framed, messages)), Frames(), []
    while wire:
        for size in sizes:
            found += list(frames.feed(wire[:size]))
            wire = wire[size:]
    assert found == list(messages)


@given(st.text(), st.text(), st.floats(0.0, 60.0))
def test_every_error_crosses_as_it_was(first: str, second: str, seconds: float) -> None:
    for kind in DragomanError.__subclasses__():
        arguments: dict[type[DragomanError], tuple[object, ...]] = {
            InvalidArgumentError: (first, second),
            ResourceExhaustedError: (first, seconds),
        }
        error = kind(*arguments.get(kind, (first,)))
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind
        assert (str(copy), vars(copy)) == (str(error), vars(error))
    assert {kind.__module__ for kind in DragomanError.__subclasses__()} == {errors.__name__}


# --- what it takes -------------------------------------------------------------------------------


def test_metrics_show_what_the_process_takes() -> None:
    metrics = ServerMetrics()
    ModelMetrics(metrics, "a").set_processes(os.getpid())
    ModelMetrics(metrics, "gone").set_processes(2**22 + 1)  # more than there can be
    memory, cpu = (
        f"dragoman_model_process_{name}" for name in ("resident_memory_bytes", "cpu_seconds_total")
    )
    assert metrics.registry.get_sample_value(memory, {"model": "gone"}) is None
    taken = metrics.registry.get_sample_value(memory, {"model": "a"})
    own = metrics.registry.get_sample_value("process_resident_memory_bytes")
    assert taken is not None
    assert own is not None
    assert 0.5 * own < taken < 2.0 * own
    assert (metrics.registry.get_sample_value(cpu, {"model": "a"}) or 0.0) > 0.0
