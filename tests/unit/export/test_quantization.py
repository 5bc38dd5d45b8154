"""Rows of 8-bit integers, and normalised states with static scales."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest

from export.arithmetic import FixedSteps, Linear, Norm
from export.graph_builder import GraphBuilder
from export.int8_arithmetic import Int8Arithmetic, quantize_rows, static_scale_of
from model.bundle.processor import multiplies_int8_exactly
from tests.factories import tiny_bundle

Float32 = npt.NDArray[np.float32]


def test_every_number_is_within_half_a_step() -> None:
    matrix = np.random.default_rng(0).standard_normal((40, 70)).astype(np.float32)
    matrix *= np.logspace(-6, 6, 40, dtype=np.float32)[:, None]  # rows of very different size
    values, scales = quantize_rows(matrix)
    error = np.abs(values * scales[:, None].astype(np.float64) - matrix)
    assert values.dtype == np.int8
    assert scales.dtype == np.float32
    assert (error <= 0.5001 * scales[:, None]).all()


def test_the_range_is_used_and_symmetric() -> None:
    matrix = np.random.default_rng(1).standard_normal((40, 70)).astype(np.float32)
    values, scales = quantize_rows(matrix)
    negated, same = quantize_rows(-matrix)
    assert (np.abs(values.astype(int)).max(axis=1) == 127).all()
    assert (negated == -values).all()
    assert (same == scales).all()


def test_a_row_of_zeros_stays_zero() -> None:
    values, scales = quantize_rows(np.zeros((2, 3), np.float32))
    assert not values.any()
    assert np.isfinite(scales).all()


def test_prescribed_steps_give_back_the_integers_of_a_file() -> None:
    chance = np.random.default_rng(2)
    integers = chance.integers(-90, 91, (6, 40)).astype(np.int8)
    steps = FixedSteps((0.01, 0.02))  # of three rows each
    matrix = integers * np.repeat(np.array(steps.weights, np.float32), 3)[:, None]
    values, scales = quantize_rows(matrix, steps)
    assert (values == integers).all()
    assert scales.tolist() == [np.float32(0.01)] * 3 + [np.float32(0.02)] * 3


@pytest.mark.parametrize("non_negative", [False, True])
def test_prescribed_steps_of_inputs_round_and_clip_them(non_negative: bool) -> None:
    chance = np.random.default_rng(4)
    states = chance.normal(0.0, 1.0, (9, 64)).astype(np.float32)
    weight = (chance.integers(-30, 31, (48, 64)) / np.float32(16)).astype(np.float32)
    bias = chance.standard_normal(48).astype(np.float32)
    graph = GraphBuilder("test")
    ids = graph.input("ids", "int64", ["rows"])
    arithmetic = Int8Arithmetic(graph, ids)
    given = graph.input("states", "float32", ["rows", 64])
    residual = graph.input("residual", "float32", ["rows", 48])
    steps = FixedSteps((1 / 16,), 1 / 64)  # to two standard deviations
    linear = Linear(given, weight, bias, non_negative, steps)
    total, _ = arithmetic.add_and_normalize(residual, linear, norm_of(48))
    for name, found in (("product", arithmetic.linear(linear)), ("total", total)):
        graph.op("Identity", found, output=name)
        graph.output(name, "float32", ["rows", 48])
    session = ort.InferenceSession(graph.build().SerializeToString())
    more = chance.standard_normal((9, 48)).astype(np.float32)
    feeds = {"ids": np.zeros(9, np.int64), "states": states, "residual": more}
    found, sums = session.run(["product", "total"], feeds)
    rounded = np.clip(np.rint(states * 64), 0 if non_negative else -128, 127) / 64
    assert np.abs(found - (rounded @ weight.T + bias)).max() < 1e-4
    assert np.abs(sums - (found + more)).max() < 1e-5


def norm_of(width: int, seed: int = 3) -> Norm:
    chance = np.random.default_rng(seed)
    gain, bias = chance.uniform(0.5, 1.5, width), chance.uniform(-0.3, 0.3, width)
    return Norm(gain.astype(np.float32), bias.astype(np.float32), 1e-5)


def normalized(states: Float32, norm: Norm) -> Float32:
    deviation = np.sqrt(states.var(axis=1, keepdims=True) + norm.epsilon)
    exact = (states - states.mean(axis=1, keepdims=True)) / deviation * norm.gain + norm.bias
    return np.asarray(exact, np.float32)


def product(
    states: Float32,
    norm: Norm,
    weight: Float32,
    bias: Float32 | None,
    *,
    static_scales: bool = True,
    non_negative: bool = False,
    vocabulary: bool = False,
) -> Float32:
    """Normalised states times the transposed weight, in 8 bits; without bias a vocabulary's."""
    graph = GraphBuilder("test")
    ids = graph.input("ids", "int64", ["rows"])
    arithmetic = Int8Arithmetic(graph, ids, static_scales=static_scales)
    given = graph.input("states", "float32", ["rows", weight.shape[1]])
    read = arithmetic.normalize(given, norm)
    if bias is None or vocabulary:
        found = arithmetic.project_to_vocabulary(read, weight, bias)
    else:
        found = arithmetic.linear(Linear(read, weight, bias, non_negative))
    graph.op("Identity", found, output="product")
    graph.output("product", "float32", ["rows", len(weight)])
    session = ort.InferenceSession(graph.build().SerializeToString())
    feeds = {"ids": np.zeros(len(states), np.int64), "states": states}
    return np.asarray(session.run(["product"], feeds)[0], np.float32)


# A session of a test multiplies unsigned by signed numbers. Without VNNI, a server gives weights
# another form.
exact = pytest.mark.skipif(
    not multiplies_int8_exactly(), reason="the products of this processor can saturate"
)
PRODUCTS = ["linear", "vocabulary", "vocabulary with bias"]


def test_a_vocabulary_s_bias_is_the_same_with_a_scale_for_each_row() -> None:
    chance = np.random.default_rng(8)
    states = chance.standard_normal((9, 64)).astype(np.float32)
    weight = chance.normal(0.0, 0.125, (48, 64)).astype(np.float32)
    bias = chance.standard_normal(48).astype(np.float32)
    norm = norm_of(64)
    for static_scales in (False, True):
        plain, biased = (
            product(states, norm, weight, b, static_scales=static_scales, vocabulary=True)
            for b in (None, bias)
        )
        assert np.abs(biased - (plain + bias)).max() < 1e-6


@pytest.mark.parametrize("reads", PRODUCTS)
@exact
def test_a_product_of_normalized_states_is_near_the_exact_one(reads: str) -> None:
    chance = np.random.default_rng(2)
    states = chance.standard_normal((30, 64)).astype(np.float32)
    states[1] *= 1e3  # the size of a row is gone with the normalisation
    weight = chance.normal(0.0, 0.125, (48, 64)).astype(np.float32)
    bias = None if reads == "vocabulary" else chance.standard_normal(48).astype(np.float32)
    norm = norm_of(64)
    found = product(states, norm, weight, bias, vocabulary=reads != "linear")
    exact = normalized(states, norm) @ weight.T + (0.0 if bias is None else bias)
    assert np.abs(found - exact).mean() < 0.02
    assert np.abs(found - exact).max() < 0.1


@pytest.mark.parametrize("reads", PRODUCTS)
def test_a_row_of_normalized_states_has_the_same_bits_alone(reads: str) -> None:
    chance = np.random.default_rng(4)
    states = chance.standard_normal((33, 64)).astype(np.float32)
    weight = chance.standard_normal((48, 64)).astype(np.float32)
    bias = None if reads == "vocabulary" else chance.standard_normal(48).astype(np.float32)
    of_tokens = reads != "linear"
    together = product(states, norm_of(64), weight, bias, vocabulary=of_tokens)
    for row in range(33):
        alone = product(states[row : row + 1], norm_of(64), weight, bias, vocabulary=of_tokens)
        assert alone.tobytes() == together[row : row + 1].tobytes()


def test_a_state_beyond_the_reach_is_cut_off_and_its_row_stays_as_fine() -> None:
    states = np.random.default_rng(5).standard_normal((4, 256)).astype(np.float32)
    states[2, 7] = 1e3  # sqrt(255) deviations: nothing is further
    norm = norm_of(256)
    found = product(states, norm, np.eye(256, dtype=np.float32), None)
    step = static_scale_of(norm)
    exact = np.clip(normalized(states, norm), -128 * step, 127 * step)
    assert np.abs(exact[2, 7]) < np.abs(normalized(states, norm)[2, 7]) - 50 * step  # it was
    assert np.abs(found - exact).max() < 0.51 * step


@pytest.mark.parametrize("width", [2, 8, 16])
def test_of_a_narrow_row_nothing_is_cut_off(width: int) -> None:
    """No state is further than sqrt(width - 1) deviations from the mean."""
    states = np.eye(width, dtype=np.float32) * 1e6
    for norm in (
        norm_of(width),
        Norm(np.ones(width, np.float32), np.zeros(width, np.float32), 1e-5),
    ):
        found = product(states, norm, np.eye(width, dtype=np.float32), None)
        assert np.abs(found - normalized(states, norm)).max() < 0.51 * static_scale_of(norm)


def test_a_norm_that_is_switched_off_leaves_the_bias() -> None:
    """Gains and biases of zero: a step of zero must not make anything undefined."""
    nothing = Norm(np.zeros(8, np.float32), np.zeros(8, np.float32), 1e-5)
    states = np.random.default_rng(6).standard_normal((3, 8)).astype(np.float32)
    bias = np.arange(5, dtype=np.float32)
    found = product(states, nothing, np.ones((5, 8), np.float32), bias)
    assert (found == bias).all()


@exact
def test_what_stands_for_zero_below_zero_does_so_after_a_norm_too() -> None:
    chance = np.random.default_rng(7)
    states = chance.standard_normal((9, 64)).astype(np.float32)
    weight = chance.normal(0.0, 0.125, (48, 64)).astype(np.float32)
    bias, norm = np.zeros(48, np.float32), norm_of(64)
    found = product(states, norm, weight, bias, non_negative=True)
    exact = np.maximum(normalized(states, norm), 0.0) @ weight.T
    assert np.abs(found - exact).max() < 0.1
    by_row = product(states, norm, weight, bias, non_negative=True, static_scales=False)
    assert found.tobytes() == by_row.tobytes()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_only_the_decoder_has_static_scales(tmp_path: Path, norm: str) -> None:
    """The last product of each sublayer reads what nobody normalised: a scale for each row."""
    bundle = tiny_bundle(tmp_path / "bundle", precision="int8", norm=norm)
    assert bundle.scoring_path is not None
    by_rows = {}
    for path in (bundle.encoder_path, bundle.decoder_step_path, bundle.scoring_path):
        nodes = onnx.load(path, load_external_data=False).graph.node
        scales = [node.input[1] for node in nodes if node.op_type == "QuantizeLinear"]
        fixed = Counter(scale.startswith("constant") for scale in scales)
        by_rows[path.stem] = (fixed[False], fixed[True])
    # Of each of two layers what attentions mix and what is in the middle of the feed-forward
    # network; with post-norm what the first layer reads: embeddings.
    expected = (6, 7) if norm == "pre" else (7, 6)
    assert by_rows["encoder"][1] == 0
    assert by_rows["decoder_step"] == by_rows["scoring"] == expected
