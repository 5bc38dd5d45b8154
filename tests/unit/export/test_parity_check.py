"""The parity check: a weak model is no defect of the bundle, and few sentences prove little."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from export.errors import ExportError
from export.onnx_outputs import OnnxGraphs, OnnxOutputs
from export.parity_check import (
    TOLERANCES,
    ParityCheck,
    ParityReport,
    SentenceDifferences,
    share_bounds,
)
from export.rounding import RoundingDifferences
from export.torch_outputs import TorchOutputs, in_batches, torch_outputs, translate
from tests.factories import random_model, random_sources, tiny_bundle, tiny_config


def compared(
    *, gap: float = 0.0, margin: float = 1.0, difference: float = 0.01, positions: int = 10
) -> SentenceDifferences:
    """A sentence whose third token differs by `gap`, where the checkpoint's margin is `margin`."""
    gaps, margins = np.zeros(positions), np.ones(positions)
    gaps[2], margins[2] = gap, margin
    return SentenceDifferences(np.full((positions, 8), difference), gaps, margins, 0.0, 0.0)


def checked(*parts: tuple[int, SentenceDifferences], precision: str = "int8") -> ParityReport:
    check = ParityCheck(TOLERANCES[precision], precision, sum(count for count, _ in parts))
    for count, comparison in parts:
        for _ in range(count):
            check.add("A text.", comparison)
    return check.report()


@given(st.integers(1, 2000), st.data())
def test_bounds_hold_the_share_and_mirror_each_other(total: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, total))
    lower, upper = share_bounds(count, total)
    assert 0.0 <= lower <= count / total <= upper <= 1.0
    assert share_bounds(total - count, total) == pytest.approx((1 - upper, 1 - lower))
    narrower = share_bounds(10 * count, 10 * total)
    assert narrower[1] - narrower[0] < upper - lower


def test_bounds_are_wilsons() -> None:
    # Of 40 tosses 24 heads: (0.6 + 0.0338 -+ 0.1277) / 1.0676, computed by hand.
    assert share_bounds(24, 40) == pytest.approx((0.4696, 0.7177), abs=2e-3)


WEAK = compared(gap=0.05, margin=0.05)
SURE = compared(gap=0.15, margin=0.15)  # a tie, but not by rounding alone


def test_a_checkpoint_that_is_unsure_is_told_to_train_longer() -> None:
    with pytest.raises(
        ExportError, match=r"only 80 of 200 .* required are 100.* 115 of the 120"
    ) as e:
        checked((80, compared()), (115, WEAK), (5, SURE))
    assert "no defect of the bundle. Train longer" in str(e.value)
    assert "--sentences" not in str(e.value)


def test_a_bundle_that_differs_where_the_checkpoint_is_sure_is_a_defect() -> None:
    with pytest.raises(
        ExportError, match=r"100 of the 120 others begin .* surer than by 0\.1 nats: use"
    ) as e:
        checked((80, compared()), (20, WEAK), (100, SURE))
    assert "Train longer" not in str(e.value)


def test_a_few_sentences_are_said_to_be_too_few() -> None:
    with pytest.raises(
        ExportError, match=r"30 sentences are too few .* Give more with --sentences"
    ):
        checked((14, compared()), (16, WEAK))


def test_a_report_counts_the_differences_that_begin_at_a_tie() -> None:
    report = checked((150, compared()), (40, WEAK), (10, SURE))
    assert (report.num_identical, report.num_ties, report.num_disagreeing) == (150, 40, 0)
    assert (report.num_tokens, report.num_unsure) == (2000, 40)
    assert report.mean_difference == pytest.approx(0.01)


@pytest.mark.parametrize("off", [compared(gap=0.25), compared(difference=0.55)])
def test_one_sentence_that_is_a_little_off_is_too_many_of_twelve_not_of_hundreds(
    off: SentenceDifferences,
) -> None:
    with pytest.raises(ExportError, match=r"'A text\.' .*int8 bundle"):
        checked((11, compared()), (1, off))
    assert checked((299, compared()), (1, off)).num_disagreeing == 1
    with pytest.raises(ExportError, match=r"after [4-9] others that disagreed"):
        checked((270, compared()), (30, off))


@pytest.mark.parametrize(
    "off", [compared(gap=0.5), compared(difference=1.1), compared(difference=float("nan"))]
)
def test_one_sentence_that_is_far_off_is_too_many_of_any(off: SentenceDifferences) -> None:
    with pytest.raises(ExportError, match="int8 bundle"):
        checked((2999, compared()), (1, off))


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_without_quantization_no_sentence_may_be_off(precision: str) -> None:
    tolerance = TOLERANCES[precision]
    right = compared(difference=0.0)
    with pytest.raises(ExportError, match=f"{precision} bundle"):
        checked((2999, right), (1, compared(gap=1.1 * tolerance.tie)), precision=precision)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_batch_is_compared_as_its_sentences_are_alone(tmp_path: Path, precision: str) -> None:
    model = random_model(tiny_config())
    bundle = tiny_bundle(tmp_path / "bundle", model=model, precision=precision)
    forced = translate(model, random_sources(model.config, 40), lambda count: None)
    graphs, layer = OnnxGraphs(bundle, threads=1), bundle.alignment_layer
    assert layer is not None
    model.double()  # in which what padding does to rounding can be told from an error
    batches = list(in_batches(forced))
    assert max(map(len, batches)) > 5
    assert sorted(one.index for batch in batches for one in batch) == list(range(40))
    singles = graphs.run([[one] for batch in batches for one in batch], lambda count: None)
    for batch, outputs in zip(batches, graphs.run(batches, lambda count: None), strict=True):
        both = zip(batch, torch_outputs(model, batch, layer), outputs, strict=True)
        for one, expected, found in both:
            (alone,), (wanted,) = next(singles), torch_outputs(model, [one], layer)
            for field in dataclasses.fields(OnnxOutputs):
                together, single = (getattr(which, field.name) for which in (found, alone))
                assert together.tobytes() == single.tobytes(), field.name
            for field in dataclasses.fields(TorchOutputs):
                together, single = (getattr(which, field.name) for which in (expected, wanted))
                assert np.allclose(together, single, rtol=0.0, atol=1e-9), field.name
            # The forced tokens are the checkpoint's own translation: its best token everywhere.
            best = wanted.log_probabilities.max(axis=1)
            own = wanted.log_probabilities[range(len(one.target_ids)), list(one.target_ids)]
            assert np.allclose(best, own, rtol=0.0, atol=5e-3)


def test_a_tolerance_only_widens_with_what_rounding_changes() -> None:
    usual = TOLERANCES["int8"]
    trained = RoundingDifferences(mean=0.014, largest=0.14, gap=0.005, identical=1.0)
    assert trained.widened(usual) == usual
    large = RoundingDifferences(mean=0.17, largest=1.7, gap=1.6, identical=0.5)
    widened = large.widened(usual)
    assert large.is_bearable
    assert 0.17 < widened.mean < 0.5
    assert (widened.largest > usual.largest, widened.tie > usual.tie) == (True, True)
    assert widened.identical < usual.identical
    assert not RoundingDifferences(0.3, 1.7, 1.6, 0.5).is_bearable
