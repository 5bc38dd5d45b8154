"""With the included model and real sentences, the engine finds the same as the reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.search_parity import (
    BEAM_SIZES,
    SearchComparison,
    SearchParity,
    Tokens,
    gap_between,
    measure,
    render,
    search_with_reference,
)
from model.bundle.bundle import Bundle
from model.evaluation.search import ReferenceHypothesis
from model.network.checkpoint import Checkpoint

SENTENCES = (Path(__file__).parent / "sentences.en").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def sources(shipped_checkpoint: Checkpoint) -> list[Tokens]:
    tokenizer = shipped_checkpoint.tokenizer
    return [(*tokenizer.encode(text), tokenizer.eos_id) for text in SENTENCES]


@pytest.fixture(scope="module")
def references(
    shipped_checkpoint: Checkpoint, sources: list[Tokens]
) -> dict[int, list[ReferenceHypothesis]]:
    model = shipped_checkpoint.model
    return {size: search_with_reference(model, sources, size) for size in BEAM_SIZES}


# `python -m bench.search_parity` does it with a thousand.
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_the_engine_finds_what_the_reference_finds(
    shipped_checkpoint: Checkpoint,
    shipped_bundles: dict[str, Bundle],
    sources: list[Tokens],
    references: dict[int, list[ReferenceHypothesis]],
    precision: str,
) -> None:
    assert len(SENTENCES) == 50
    bundle = shipped_bundles[precision]
    assert bundle.precision == precision
    comparisons, same_bits = measure(shipped_checkpoint.model, bundle, sources, references)
    assert same_bits
    assert [(c.beam_size, c.rows) for c in comparisons] == [(1, 1), (1, 64), (4, 4), (4, 64)]
    for comparison in comparisons:
        if precision == "fp32":
            assert all((gap or 0.0) < 1e-4 for _, gap in comparison.differences)
            assert comparison.share_identical >= 0.98  # one near-tie among so few
        else:
            assert comparison.share_identical >= 0.8


def test_a_gap_is_that_of_the_tokens_that_differ(shipped_checkpoint: Checkpoint) -> None:
    """For greedy search, the gap of the first such token; for a beam, the gap of the scores."""
    model = shipped_checkpoint.model
    source = (100, 200, 3)
    found, expected = (50, 60, 70, 3), (50, 61, 3)
    same_beginning = gap_between(model, source, (50, 60, 3), (50, 61, 3), 1)
    assert gap_between(model, source, found, expected, 1) == pytest.approx(same_beginning, abs=1e-5)
    assert gap_between(model, source, found, expected, 4) != same_beginning
    assert gap_between(model, source, found, found, 4) == 0.0


def test_a_difference_that_is_no_near_tie_breaks_the_promise() -> None:
    near, far = (7, 5e-5), (8, 5e-4)

    def compared(*differences: tuple[int, float]) -> SearchComparison:
        return SearchComparison("fp32", 1, 64, 1000, differences)

    def report(comparison: SearchComparison, same_bits: bool = True) -> str:
        return render(SearchParity("", "", same_bits, [comparison]))

    assert compared(near, near).holds
    assert not compared(near, near, near).holds  # 99.7 %
    assert not compared(far).holds
    assert "BROKEN" in report(compared(far))
    assert "kept" in report(compared(near))
    assert "NOT THE SAME" in report(compared(), same_bits=False)
