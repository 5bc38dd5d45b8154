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

from bench.peers.conversion import ConversionError, convert
from dragoman.client import Search
from model.bundle.bundle import Bundle
from model.network.transformer import Transformer
from service.batching.scheduler import Scheduler
from service.domain.requests import GenerationRequest, Hypothesis, SearchOptions
from service.runtime.cpu.runner import OnnxRunner
from tests.factories import random_model, random_sources, tiny_bundle, tiny_config
from tests.searches import run_all, submitted

MAX_NEW_TOKENS = 30
NUM_SOURCES = 30
NEAR_TIE = 2e-3  # of scores over a penalty; these models' weights make much of little

NETWORKS: list[dict[str, Any]] = [
    {},
    {"norm": "pre", "activation": "gelu", "scale_embeddings": False},
    {"positions": "sinusoidal", "activation": "silu"},
    {"embedding_tying": "none", "output_bias": True, "layer_norm_eps": 1e-3},
    {"embedding_tying": "target", "num_encoder_layers": 3, "num_decoder_layers": 1},
    {"pad_id": 5, "unk_id": 4, "bos_id": 0, "eos_id": 1},
]
SEARCHES = [
    (beam_size, length_penalty)
    for beam_size, length_penalty in itertools.product((1, 2, 3, 4, 6), (0.0, 0.6, 1.0, 1.4))
]


@dataclasses.dataclass(frozen=True)
class Case:
    model: Transformer
    bundle: Bundle
    directory: Path

    @property
    def sources(self) -> list[tuple[int, ...]]:
        """With tokens other than EOS: CTranslate2 answers an empty source itself."""
        sources = random_sources(self.model.config, 2 * NUM_SOURCES, seed=1)
        return [source for source in sources if len(source) > 1][:NUM_SOURCES]


@pytest.fixture(scope="module", params=range(len(NETWORKS)))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    directory = tmp_path_factory.mktemp("presets")
    model = random_model(tiny_config(**NETWORKS[request.param]), seed=request.param)
    return Case(model, tiny_bundle(directory / "bundle", model=model), directory)


def options_of(search: Search) -> SearchOptions:
    """The server's options for a preset, with all hypotheses."""
    given: dict[str, Any] = {
        field.name: value
        for field in dataclasses.fields(search)
        if (value := getattr(search, field.name)) not in (None, ())
    }
    return SearchOptions(num_hypotheses=search.beam_size or 1, **given)


def found(case: Case, options: SearchOptions) -> list[list[Hypothesis]]:
    """The engine's hypotheses for every source."""
    runner, config = OnnxRunner(case.bundle, max_rows=48, intra_op_threads=1), case.model.config
    scheduler = Scheduler(
        [runner.limits], bos_id=config.bos_id, eos_id=config.eos_id, encode_token_budget=512
    )
    jobs = [submitted(GenerationRequest(s, options), MAX_NEW_TOKENS) for s in case.sources]
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
    weights = {name: tensor.numpy() for name, tensor in case.model.state_dict().items()}
    convert(case.model.config, weights, case.directory / "ctranslate2")
    translator = ctranslate2.Translator(
        str(case.directory / "ctranslate2"), compute_type="float32", intra_threads=1
    )
    batch = [[str(token) for token in source] for source in case.sources]
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
        for ours, answer in zip(found(case, options_of(search)), answers, strict=True):
            theirs = [[int(token) for token in tokens] for tokens in answer.hypotheses]
            identical = [hypothesis.token_ids for hypothesis in ours] == theirs
            num_identical += identical
            if beam_size == 1:
                assert identical
            else:
                assert identical or not differs(ours, theirs, answer.scores)
    assert num_identical >= 0.99 * len(SEARCHES) * NUM_SOURCES


def test_a_model_that_ctranslate2_does_not_have_is_refused(tmp_path: Path) -> None:
    config = tiny_config(positions="none")
    weights = {name: t.numpy() for name, t in random_model(config).state_dict().items()}
    with pytest.raises(ConversionError, match="positions"):
        convert(config, weights, tmp_path / "converted")
