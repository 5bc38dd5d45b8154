"""Encoders with attention for long sources, and low-rank memories, in PyTorch and in runners."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
import torch

from export.encoder_graph import build_encoder
from export.weights import Weights
from model.bundle.padding import pad_right
from model.bundle.sessions import SessionSettings
from model.network.transformer import Transformer
from service.domain.plan import ScoreItem
from service.runtime.cpu.kv_cache import cache_shape
from service.runtime.cpu.runner import OnnxRunner
from service.runtime.scoring import OnnxScorer
from tests.factories import random_model, random_sources, tiny_bundle, tiny_config
from tests.parity.device_runners import device_runner
from tests.runner_loops import greedy_steps, same_row, same_steps

# Blocks, chunks and ranks that divide neither the lengths nor each other.
KINDS: list[dict[str, Any]] = [
    {"encoder_attention": "full"},
    {"encoder_attention": "local", "attention_window": 7},
    {"encoder_attention": "strided", "attention_window": 7, "num_heads": 3, "d_model": 24},
    {"encoder_attention": "lsh", "attention_window": 8, "attention_buckets": 6},
    {"encoder_attention": "lsh", "attention_window": 5, "attention_rounds": 1},
    {"encoder_attention": "linformer", "attention_rank": 6},
    {"cross_attention": "linformer", "attention_rank": 6},
]
LENGTHS = (1, 2, 6, 7, 8, 14, 15, 40, 63, 127, 128, 129, 200, 255)
MAX_POSITIONS = 256
Array = npt.NDArray[Any]


def ids(fields: dict[str, Any]) -> str:
    return "-".join(str(value) for value in fields.values())


def network(fields: dict[str, Any]) -> Transformer:
    return random_model(tiny_config(max_source_positions=MAX_POSITIONS, **fields))


def encoder(
    model: Transformer, precision: str = "fp32", *, resident: bool = False, threads: int = 1
) -> ort.InferenceSession:
    arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    weights = Weights(arrays, model.config)
    graph = build_encoder(model.config, weights, precision, resident=resident)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return ort.InferenceSession(graph.SerializeToString(), options, ["CPUExecutionProvider"])


def sources() -> list[list[int]]:
    generator = np.random.default_rng(0)
    return [[*generator.integers(4, 320, length - 1).tolist(), 3] for length in LENGTHS]


def encode(session: ort.InferenceSession, batch: list[list[int]], padding: int = 0) -> list[Array]:
    padded = pad_right([*batch, [0] * (max(map(len, batch)) + padding)], 0)[:-1]
    lengths = np.array([len(source) for source in batch], np.int32)
    return list(session.run(None, {"source_ids": padded, "source_lengths": lengths}))


def kept(model: Transformer, length: int) -> int:
    """Number of source positions that the decoder sees."""
    config = model.config
    return config.attention_rank if config.cross_attention == "linformer" else length


@torch.no_grad()
@pytest.mark.parametrize("resident", [False, True], ids=["cpu", "resident"])
@pytest.mark.parametrize("fields", KINDS, ids=ids)
def test_fp32_equals_pytorch(fields: dict[str, Any], resident: bool) -> None:
    model = network(fields)
    batch = sources()
    found = encode(encoder(model, resident=resident), batch)
    source_ids = torch.from_numpy(pad_right(batch, 0))
    mask = torch.arange(source_ids.size(1)) < torch.tensor(LENGTHS).unsqueeze(1)
    cache = model.start_cache(model.encode(source_ids, mask), mask)
    expected = [array for layer in cache.layers for array in (layer.cross_key, layer.cross_value)]
    for ours, theirs in zip(found, expected, strict=True):
        for row, length in enumerate(LENGTHS):
            last = kept(model, length)
            difference = np.abs(ours[row, :, :last] - theirs[row, :, :last].numpy())
            assert difference.max() < 2e-3


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("fields", KINDS, ids=ids)
def test_same_bits_alone_in_a_batch_and_padded(fields: dict[str, Any], precision: str) -> None:
    model = network(fields)
    batch = sources()
    together = encode(encoder(model, precision, threads=2), batch)
    session = encoder(model, precision)
    for row, source in enumerate(batch):
        last = kept(model, len(source))
        for padding in (0, 1, 150 if len(source) < 100 else 0):
            for array, one in zip(together, encode(session, [source], padding), strict=True):
                assert np.array_equal(array[row, :, :last], one[0, :, :last])


@pytest.mark.parametrize("fields", KINDS[1:6], ids=ids)
def test_no_tensor_grows_with_the_square_of_the_length(fields: dict[str, Any]) -> None:
    model = random_model(tiny_config(max_source_positions=4096, **fields))
    arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    graph = build_encoder(model.config, Weights(arrays, model.config), "fp32")
    del graph.graph.output[:]
    for node in graph.graph.node:
        graph.graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output if name)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(graph.SerializeToString(), options, ["CPUExecutionProvider"])

    def num_elements(length: int) -> int:
        feeds = {
            "source_ids": np.full((1, length), 5),
            "source_lengths": np.array([length], np.int32),
        }
        return sum(int(np.size(array)) for array in session.run(None, feeds))

    assert num_elements(2048) < 2.1 * num_elements(1024)


@torch.no_grad()
def test_concatenated_positions_fold_into_two_tables() -> None:
    """E' [token] + P' [position] is W [x; p] + b, for either side."""
    config = tiny_config(positions="concatenated", embedding_tying="none", max_source_positions=50)
    model = random_model(config)
    weights = Weights({n: t.numpy() for n, t in model.state_dict().items()}, config)
    seen: list[torch.Tensor] = []
    for stack in (model.encoder, model.decoder):
        stack.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    source, target = torch.randint(4, 320, (1, 50)), torch.randint(4, 320, (1, 64))
    model(source, target)
    for side, ids, states in zip(("source", "target"), (source, target), seen, strict=True):
        table, positions = weights.embedding(side), weights.positions(side)
        assert positions is not None
        assert positions.shape == (ids.size(1), config.d_model)
        folded = config.d_model**0.5 * table[ids[0]] + positions
        np.testing.assert_allclose(folded, states[0], rtol=0, atol=2e-5)


def test_a_bundle_of_each_kind_is_written_and_read(tmp_path: Path) -> None:
    for number, fields in enumerate(KINDS):
        bundle = tiny_bundle(tmp_path / str(number), max_source_positions=MAX_POSITIONS, **fields)
        assert bundle.config.encoder_attention == fields.get("encoder_attention", "full")
        assert (bundle.max_source_positions, bundle.max_target_positions) == (MAX_POSITIONS, 64)


# --- low-rank memories in the runners -------------------------------------------------------------

FIELDS: dict[str, Any] = {
    "encoder_attention": "linformer",
    "cross_attention": "linformer",
    "attention_rank": 10,
    "max_source_positions": 200,
    "max_target_positions": 30,
}
CPU = SessionSettings(intra_op_threads=1)


def test_a_row_has_the_same_bits_alone_and_among_many(tmp_path: Path) -> None:
    for precision in ("fp32", "int8"):
        bundle = tiny_bundle(tmp_path / precision, precision=precision, **FIELDS)
        runner = OnnxRunner(bundle, max_rows=16, intra_op_threads=2)
        sources = random_sources(bundle.config, 16, max_length=200)
        together = greedy_steps(runner, sources, 6)
        for row in (0, 5, 15):
            alone = greedy_steps(runner, [sources[row]], 6)
            assert same_row(together, row, alone, 0)


def test_the_cache_holds_k_rows_of_a_source(tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", **FIELDS)
    runner = OnnxRunner(bundle, max_rows=4)
    assert (runner.limits.max_source_positions, runner.limits.max_target_positions) == (200, 30)
    assert runner.cache.cross_attention[0].shape[2] == 10
    assert runner.cache.self_attention[0].shape[2] == 30
    assert cache_shape(bundle, runner.limits).max_source == 10


@pytest.mark.parametrize("cross_attention", ["full", "linformer"])
def test_the_runner_for_gpus_gives_the_same_bits(tmp_path: Path, cross_attention: str) -> None:
    fields = {**FIELDS, "cross_attention": cross_attention}
    bundle = tiny_bundle(tmp_path / "bundle", resident=True, **fields)
    device = device_runner(bundle, max_rows=8)
    sources = random_sources(bundle.config, 8, max_length=200)
    expected = greedy_steps(OnnxRunner(bundle, max_rows=8, intra_op_threads=1), sources, 8)
    assert same_steps(greedy_steps(device, sources, 8), expected)
    device.close()


@torch.inference_mode()
def test_scores_are_those_of_pytorch(tmp_path: Path) -> None:
    model = random_model(tiny_config(**FIELDS))
    bundle = tiny_bundle(tmp_path / "bundle", model=model)
    scorer = OnnxScorer(bundle, CPU, None)
    scorer.prepare()
    sources = random_sources(bundle.config, 5, max_length=200)
    targets = random_sources(bundle.config, 5, seed=1, max_length=30)
    items = [ScoreItem(*pair) for pair in zip(sources, targets, strict=True)]
    for item, score in zip(items, scorer.score(items), strict=True):
        fed = torch.tensor([[model.config.bos_id, *item.target_ids[:-1]]])
        everything = model(torch.tensor([item.source_ids]), fed)[0].double().log_softmax(-1)
        expected = everything[range(len(item.target_ids)), list(item.target_ids)]
        assert np.abs(score.log_probabilities - expected.numpy()).max() < 2e-3
        assert score.attention.shape == (len(item.target_ids), 10)
