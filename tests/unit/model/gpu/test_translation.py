"""Translation of a corpus is the reference's greedy search of each sentence."""

from __future__ import annotations

import numpy as np
import pytest

from model.evaluation.search import greedy_search
from model.gpu.translation import translate
from model.network.transformer import Transformer
from tests.factories import VOCAB_SIZE, random_model, tiny_config
from tests.unit.model.gpu.small import PAD, random_sentences, side, store

PIECES = VOCAB_SIZE - 8
LIMIT = 40


@pytest.fixture(scope="module", params=["self_attention", "ssru"])
def model(request: pytest.FixtureRequest) -> Transformer:
    return random_model(tiny_config(decoder=request.param), seed=3)


@pytest.mark.parametrize(("batch_tokens", "most_rows"), [(10_000, 100), (60, 100), (10_000, 3)])
@pytest.mark.parametrize("prefix", [(), (VOCAB_SIZE - 1,)])
def test_translations_are_those_of_the_reference(
    model: Transformer, batch_tokens: int, most_rows: int, prefix: tuple[int, ...]
) -> None:
    tokens = store()
    lengths = [int(length) for length in np.random.default_rng(0).integers(1, 15, 40)]
    places = tokens.add(side(random_sentences(lengths, 1, PIECES)))
    limits = {"batch_tokens": batch_tokens, "most_rows": most_rows, "num_pieces": PIECES}
    found = translate(model, tokens, places, prefix, **limits)
    translated = tokens.tokens(found.side)
    ids = tokens.padded(places, np.tile(np.array(prefix, np.int64), (len(places), 1)))
    allowed = [[3, *range(4, PIECES)]] * len(ids)
    expected = greedy_search(model, ids, max_new_tokens=LIMIT, lists=allowed)
    assert 2 < found.ended.sum() < len(places)
    for row, hypothesis in enumerate(expected):
        if found.ended[row]:
            assert hypothesis.finished
            assert translated[row] == list(hypothesis.token_ids)
            log_probs = hypothesis.log_probs
        else:  # cut, maybe earlier than the reference
            cut = len(translated[row])
            assert cut >= 10
            assert translated[row] == list(hypothesis.token_ids[:cut])
            log_probs = hypothesis.log_probs[:cut]
        mean = sum(log_probs) / len(log_probs)
        assert found.confidences[row] == pytest.approx(mean, abs=1e-4)


def test_a_sentence_does_not_see_its_neighbours(model: Transformer) -> None:
    tokens = store()
    places = tokens.add(side(random_sentences([9] * 12, 5, PIECES)))
    together, alone = (
        translate(model, tokens, places, num_pieces=PIECES, batch_tokens=1000, most_rows=rows)
        for rows in (12, 1)
    )
    assert tokens.tokens(together.side) == tokens.tokens(alone.side)
    assert (together.ended == alone.ended).all()
    chosen = np.array([7, 2])
    part = together.at(chosen)
    assert tokens.tokens(part.side) == [tokens.tokens(together.side)[i] for i in chosen]
    assert (part.confidences == together.confidences[chosen]).all()


def test_no_translation_has_a_special_token_or_one_from_beyond_the_pieces(
    model: Transformer,
) -> None:
    tokens = store()
    places = tokens.add(side(random_sentences([4, 8, 12] * 4, 2, PIECES)))
    found = translate(model, tokens, places, num_pieces=40, batch_tokens=500, most_rows=8)
    ids = {token for sentence in tokens.tokens(found.side) for token in sentence}
    assert ids <= set(range(4, 40))
    assert PAD not in ids


def test_a_source_beyond_the_models_positions_is_refused(model: Transformer) -> None:
    tokens = store()
    places = tokens.add(side([[5] * 64]))
    with pytest.raises(ValueError, match="exceeds"):
        translate(model, tokens, places, num_pieces=PIECES, batch_tokens=500, most_rows=8)
