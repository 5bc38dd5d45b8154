"""Text on a device: places, padding, prefixes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.gpu.text import MOST_PIECES, StoredCorpus, StoredSide
from tests.unit.model.gpu.small import EOS, PAD, side, store

SENTENCES = st.lists(st.lists(st.integers(4, 300), max_size=9), min_size=1, max_size=12)


@given(sentences=SENTENCES, data=st.data())
@settings(max_examples=50, deadline=None)
def test_padded_rows_are_a_prefix_the_sentence_its_end_and_padding(
    sentences: list[list[int]], data: st.DataObject
) -> None:
    tokens = store()
    tokens.add(side([[9, 9]]))
    places = tokens.add(side(sentences))
    tokens.add(side([[8, 8, 8]]))
    rows = st.lists(st.integers(0, len(sentences) - 1), min_size=1, max_size=6)
    chosen = np.array(data.draw(rows))
    width = data.draw(st.integers(0, 2))
    prefixes = np.arange(400, 400 + len(chosen) * width).reshape(len(chosen), width)
    found = tokens.padded(places.at(chosen), prefixes).tolist()
    whole = [[*prefixes[k], *sentences[i], EOS] for k, i in enumerate(chosen)]
    longest = max(map(len, whole))
    assert found == [row + [PAD] * (longest - len(row)) for row in whole]
    assert tokens.tokens(places.at(chosen)) == [sentences[i] for i in chosen]


def test_joined_sides_keep_their_order() -> None:
    tokens = store()
    one, other = tokens.add(side([[5], [6, 7]])), tokens.add(side([[8]]))
    assert tokens.tokens(StoredSide.joined([other, one])) == [[8], [5], [6, 7]]


def test_an_id_that_does_not_fit_is_refused() -> None:
    tokens = store()
    tokens.add(side([[MOST_PIECES - 1]]))
    with pytest.raises(ValueError, match="not below 32768"):
        tokens.add(side([[MOST_PIECES]]))


def test_a_limit_counts_prefix_and_end_and_drops_empty_sides() -> None:
    tokens = store()
    sources = tokens.add(side([[5, 5, 5], [5, 5], [5], [], [5]]))
    targets = tokens.add(side([[6], [6, 6, 6, 6], [6, 6, 6], [6], []]))
    corpus = StoredCorpus("some", sources, targets)
    kept = corpus.not_longer_than(4)
    assert tokens.tokens(kept.sources) == [[5, 5, 5], [5]]
    kept = corpus.with_prefix(400).not_longer_than(4)
    assert tokens.tokens(kept.sources) == [[5]]
    back = corpus.with_prefix(400).reversed()
    assert tokens.tokens(back.targets) == tokens.tokens(sources)
    assert back.prefix == ()
