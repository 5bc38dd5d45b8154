"""The caches have the size that was computed in advance, for any requests."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import pytest

from model.bundle.bundle import Bundle
from service.batching.scheduler import Scheduler
from service.domain.plan import RunnerLimits
from service.domain.requests import FinishReason, SearchOptions
from service.runtime.cpu.kv_cache import cache_shape
from service.runtime.cpu.runner import OnnxRunner
from tests.factories import tiny_bundle
from tests.searches import run_all, search

Array = npt.NDArray[Any]

MAX_ROWS = 6
LONGEST = 64  # positions of the tiny model


@pytest.fixture(
    scope="module",
    params=[("fp32", "self_attention"), ("fp32", "ssru"), ("int8 caches", "self_attention")],
    ids=lambda kind: "-".join(kind),
)
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    precision, decoder = request.param
    directory = tmp_path_factory.mktemp("memory") / "bundle"
    return tiny_bundle(directory, precision=precision, decoder=decoder)


def arrays_of(runner: OnnxRunner) -> list[Array]:
    cache = runner.cache
    return [
        *cache.past.values(),
        *cache.cross_attention,
        *cache.cross_last,
        cache.source_lengths,
    ]


def places(runner: OnnxRunner) -> list[tuple[int, int]]:
    return [(array.ctypes.data, array.nbytes) for array in arrays_of(runner)]


def test_the_longest_texts_and_widest_beams_wait_and_take_no_more(bundle: Bundle) -> None:
    vocab_size = bundle.config.vocab_size
    limits = RunnerLimits(MAX_ROWS, LONGEST, LONGEST, bundle.top_k, vocab_size, MAX_ROWS)
    computed = cache_shape(bundle, limits).num_bytes
    runner = OnnxRunner(bundle, max_rows=MAX_ROWS, intra_op_threads=1)
    before = places(runner)
    assert runner.cache_bytes == computed == sum(num_bytes for _, num_bytes in before)
    scheduler = Scheduler([runner.limits], bos_id=2, eos_id=3, encode_token_budget=512)
    source = [10 + i for i in range(LONGEST - 1)]
    widths = [MAX_ROWS, 1, MAX_ROWS, 4, 2, MAX_ROWS, *[1] * 8]
    jobs = [
        search(source, SearchOptions(beam_size=width, min_new_tokens=LONGEST), LONGEST)
        for width in widths
    ]
    scheduler.add(jobs)
    results = run_all(scheduler, runner, max_steps=2000)
    assert all(results[job.id].finish_reason is FinishReason.LENGTH for job in jobs)
    assert all(len(results[job.id].token_ids) == LONGEST for job in jobs)
    # The same arrays in the same places: nothing was allocated anew.
    assert places(runner) == before
    assert runner.cache_bytes == computed
