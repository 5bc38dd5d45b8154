"""Presets search like the libraries that they are named after, on the same random weights.

The libraries round differently, so two hypotheses with nearly equal scores may come in either
order, and each library may keep a different one of them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dragoman.client import Search
from model.bundle.bundle import Bundle
from model.network.transformer import Transformer
from service.batching.scheduler import Scheduler
from service.domain.requests import Hypothesis, SearchOptions
from service.runtime.cpu.runner import OnnxRunner
from tests.factories import random_model, random_sources, tiny_bundle, tiny_config
from tests.searches import run_all, search

MAX_NEW_TOKENS = 30
NUM_MODELS, NUM_SOURCES = 4, 30
NEAR_TIE = 2e-3  # of scores over a penalty; these models' weights make much of little

# Of every source as many tokens as EOS and one more: CTranslate2 answers an empty source itself.
SOURCES = [
    source for source in random_sources(tiny_config(), 2 * NUM_SOURCES, seed=1) if len(source) > 1
][:NUM_SOURCES]
SEARCHES = [
    (beam_size, length_penalty)
    for beam_size, length_penalty in itertools.product((1, 2, 3, 4, 6), (0.0, 0.6, 1.0, 1.4))
]


@dataclasses.dataclass(frozen=True)
class Case:
    model: Transformer
    bundle: Bundle
    directory: Path


@pytest.fixture(scope="module", params=range(NUM_MODELS))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    directory = tmp_path_factory.mktemp("presets")
    model = random_model(tiny_config(), seed=request.param)
    return Case(model, tiny_bundle(directory / "bundle", model=model), directory)


def options_of(search: Search) -> SearchOptions:
    """The server's options for a preset, with all hypotheses."""
    given: dict[str, Any] = {
        field.name: value
        for field in dataclasses.fields(search)
        if (value := getattr(search, field.name)) not in (None, ())
    }
    return SearchOptions(num_hypotheses=search.beam_size or 1, **given)


def found(bundle: Bundle, options: SearchOptions) -> list[list[Hypothesis]]:
    """The engine's hypotheses for every source."""
    runner = OnnxRunner(bundle, max_rows=48, intra_op_threads=1)
    scheduler = Scheduler([runner.limits], bos_id=2, eos_id=3, encode_token_budget=512)
    jobs = [search(source[:-1], options, MAX_NEW_TOKENS) for source in SOURCES]
    scheduler.add(jobs)
    results = run_all(scheduler, runner)
    return [results[job.id].hypotheses for job in jobs]


def differs(
    ours: Sequence[Hypothesis], theirs: Sequence[Sequence[int]], scores: Sequence[float]
) -> bool:
    """Whether two n-best lists differ by more than the order of near-ties."""
    assert len(ours) == len(theirs) == len(scores)
    for hypothesis, token_ids, score in zip(ours, theirs, scores, strict=True):
        if hypothesis.token_ids != list(token_ids) and abs(hypothesis.score - score) > NEAR_TIE:
            return True
    return False


def test_ctranslate2(case: Case) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    from bench.peers.conversion import convert

    weights = {name: tensor.numpy() for name, tensor in case.model.state_dict().items()}
    convert(case.model.config, weights, case.directory / "ctranslate2")
    translator = ctranslate2.Translator(
        str(case.directory / "ctranslate2"), compute_type="float32", intra_threads=1
    )
    batch = [[str(token) for token in source] for source in SOURCES]
    num_identical = 0
    for beam_size, length_penalty in SEARCHES:
        search = Search.ctranslate2(beam_size, length_penalty)
        answers = translator.translate_batch(
            batch,
            beam_size=beam_size,
            num_hypotheses=beam_size,
            length_penalty=length_penalty,
            max_decoding_length=MAX_NEW_TOKENS,
            min_decoding_length=0,
            return_scores=True,
        )
        for ours, answer in zip(found(case.bundle, options_of(search)), answers, strict=True):
            theirs = [[int(token) for token in tokens] for tokens in answer.hypotheses]
            identical = [hypothesis.token_ids for hypothesis in ours] == theirs
            num_identical += identical
            if beam_size == 1:
                assert identical
            else:
                assert identical or not differs(ours, theirs, answer.scores)
    assert num_identical >= 0.99 * len(SEARCHES) * len(SOURCES)
