"""Hugging Face's beam search and token rules, compared with the library itself.

Both searches get the logits of the same random model of the library. The beam search under test is
the one in `model/evaluation/search.py`, with which `test_search_parity.py` compares the engine. The
rules under test are the engine's own.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from dragoman.client import Search
from model.evaluation.search import BeamOptions, ReferenceBeam, best_tokens
from service.decoding.candidates import Candidates
from service.decoding.constraints import Constraints
from service.domain.plan import StepOutput
from service.domain.requests import SearchOptions

BOS, EOS, PAD, VOCAB_SIZE = 2, 3, 40, 41
MAX_NEW_TOKENS = 25
EARLY_STOPPING = {False: "heuristic", True: "first", "never": "never"}


@pytest.fixture(scope="module")
def marian() -> Any:
    """A random model of one layer, with outputs that are no fluent sentences."""
    torch.manual_seed(0)
    config = transformers.MarianConfig(
        vocab_size=VOCAB_SIZE,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=64,
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=BOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
        init_std=1.0,
    )
    model: Any = transformers.MarianMTModel(config)
    model.eval()
    with torch.no_grad():
        model.lm_head.weight.mul_(0.5)
        model.final_logits_bias[0, EOS] += 2.0  # so that texts end
        model.final_logits_bias[0, PAD] = -1e9
    return model


def ours(model: Any, source: torch.Tensor, options: BeamOptions) -> list[list[int]]:
    encoded = model.get_encoder()(source)[0]
    beam = ReferenceBeam(options, MAX_NEW_TOKENS, EOS)
    sequences = [[BOS]]
    while not beam.done:
        rows = len(sequences)
        logits = model(
            encoder_outputs=(encoded.expand(rows, -1, -1),),
            attention_mask=torch.ones(rows, source.shape[1], dtype=torch.long),
            decoder_input_ids=torch.tensor(sequences),
        ).logits[:, -1]
        going = beam.advance(*best_tokens(logits, 2 * options.beam_size))
        sequences = [[*sequences[parent], token] for parent, token in going]
    return [list(hypothesis.token_ids) for hypothesis in beam.finished[: options.beam_size]]


@pytest.mark.parametrize("early_stopping", EARLY_STOPPING)
def test_hugging_face(marian: Any, early_stopping: bool | str) -> None:
    draw = torch.Generator().manual_seed(1)
    sources = [
        torch.cat([torch.randint(4, PAD, (1, length), generator=draw), torch.tensor([[EOS]])], 1)
        for length in range(1, 9)
    ]
    num_same = num_all = 0
    for beam_size, length_penalty in itertools.product((2, 4), (0.0, 0.6, 1.0)):
        search = Search.hugging_face(beam_size, length_penalty, EARLY_STOPPING[early_stopping])
        assert search.length_penalty_kind == "power"
        stopping: Any = search.early_stopping
        options = BeamOptions(beam_size, beam_size, length_penalty, "power", stopping)
        for source in sources:
            with torch.inference_mode():
                theirs = marian.generate(
                    source,
                    num_beams=beam_size,
                    num_return_sequences=beam_size,
                    max_new_tokens=MAX_NEW_TOKENS,
                    length_penalty=length_penalty,
                    early_stopping=early_stopping,
                    do_sample=False,
                )
                found = ours(marian, source, options)
            cut = [[t for t in row.tolist()[1:] if t not in (EOS, PAD)] for row in theirs]
            num_same += found == cut
            num_all += 1
    assert num_same >= 0.95 * num_all  # the rest is what rounding decides


@pytest.mark.parametrize(("penalty", "size"), [(1.3, 0), (1.0, 1), (1.0, 2), (2.5, 3)])
def test_rules_about_tokens(penalty: float, size: int) -> None:
    """Scores of the next token over the whole vocabulary, after any beginning."""
    options = SearchOptions(repetition_penalty=penalty, no_repeat_ngram_size=size)
    theirs = transformers.LogitsProcessorList()
    if penalty > 1.0:
        theirs.append(transformers.RepetitionPenaltyLogitsProcessor(penalty))
    if size:
        theirs.append(transformers.NoRepeatNGramLogitsProcessor(size))
    draw = np.random.default_rng(0)
    num_forbidden = 0
    for length in [*range(12)] * 8:
        generated = draw.integers(4, 8, length)  # few, so that they come again
        logits = draw.normal(size=VOCAB_SIZE)
        logits[BOS] = -np.inf  # for the library it is a token like any other
        given = torch.from_numpy(logits).log_softmax(0)
        expected = theirs(torch.tensor([[BOS, *generated]]), given[None].clone())[0].numpy()  # type: ignore[arg-type]

        ids = np.argsort(-given.numpy(), kind="stable")[None]
        output = StepOutput(ids, given.numpy()[ids], np.zeros(1, np.float32), 0.0, 0.0)
        candidates = Candidates.of(output)
        candidates.own()
        Constraints(options, EOS).apply(candidates, 0, generated)

        order = np.argsort(-expected, kind="stable")
        may_come = np.isfinite(expected[order])
        assert np.array_equal(may_come, np.isfinite(candidates.scores[0]))
        assert candidates.token_ids[0][may_come].tolist() == order[may_come].tolist()
        assert candidates.scores[0][may_come] == pytest.approx(expected[order][may_come])
        num_forbidden += VOCAB_SIZE - 1 - int(may_come.sum())
    assert (num_forbidden > 0) == (size > 0)
