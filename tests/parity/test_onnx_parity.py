"""The exported graphs compute what PyTorch computes, for every option of the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from model.network.transformer import Transformer
from service.domain.plan import Adjustments, EncodeItem, StepPlan
from service.runtime.cpu.runner import OnnxRunner
from tests.factories import random_model, random_sources, tiny_bundle, tiny_config, with_limits
from tests.runner_loops import greedy_steps

# Every value of every option, and every pair of norm with the others.
OPTIONS: list[dict[str, Any]] = [
    {"norm": "post", "activation": "relu", "embedding_tying": "all"},
    {"norm": "post", "activation": "gelu", "positions": "sinusoidal", "embedding_tying": "none"},
    {"norm": "post", "activation": "silu", "positions": "none", "output_bias": True},
    {"norm": "post", "embedding_tying": "target", "scale_embeddings": False},
    {"norm": "pre", "activation": "relu", "positions": "sinusoidal", "output_bias": True},
    {"norm": "pre", "activation": "gelu", "embedding_tying": "target", "output_bias": True},
    {"norm": "pre", "activation": "silu", "embedding_tying": "none", "scale_embeddings": False},
    {"norm": "pre", "positions": "none", "embedding_tying": "all"},
    {"norm": "post", "embedding_norm": True, "activation": "gelu", "output_bias": True},
    {"norm": "pre", "embedding_norm": True, "scale_embeddings": False},
    {"num_encoder_layers": 1, "num_decoder_layers": 3, "num_heads": 4, "ffn_dim": 20},
    {"d_model": 48, "num_heads": 1, "vocab_size": 331, "layer_norm_eps": 1e-3},
    {"d_model": 24, "num_heads": 3, "vocab_size": 2048, "ffn_dim": 31},  # top-k in two stages
    {"decoder": "ssru", "embed_start": False, "positions": "marian", "output_bias": True},
    {"decoder": "ssru", "norm": "pre", "embedding_tying": "none", "d_model": 24, "num_heads": 3},
]


@torch.inference_mode()
def reference_log_probabilities(
    model: Transformer, source: tuple[int, ...], target: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """[T, V] after BOS and each but the last of the T target tokens."""
    source_ids = torch.tensor([source])
    mask = torch.ones_like(source_ids, dtype=torch.bool)
    fed = torch.tensor([[model.config.bos_id, *target[:-1].tolist()]])
    logits = model.decode(fed, model.encode(source_ids, mask), mask)[0]
    return np.asarray(logits.double().log_softmax(-1))


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(map(str, o.values())))
def test_fp32_equals_pytorch(tmp_path: Path, options: dict[str, Any]) -> None:
    model = random_model(tiny_config(**options))
    runner = OnnxRunner(tiny_bundle(tmp_path / "bundle", model=model), intra_op_threads=1)
    sources = random_sources(model.config, 9)
    outputs = greedy_steps(runner, sources, 14)
    chosen = np.stack([output.top_ids[:, 0] for output in outputs], axis=1)  # [rows, T]
    for row, source in enumerate(sources):
        expected = reference_log_probabilities(model, source, chosen[row])
        for step, output in enumerate(outputs):
            ids = output.top_ids[row]
            found = output.top_logits[row] - output.log_sum_exp[row]
            assert np.abs(found - expected[step, ids]).max() < 2e-3
            # The best k are the best k: none that was left out is better.
            left_out = np.delete(expected[step], ids)
            assert left_out.max() < expected[step, ids].min() + 2e-3
            assert (np.diff(output.top_logits[row]) <= 0).all()


@pytest.mark.parametrize(
    ("precision", "tolerance"), [("fp16", 0.05), ("int8", 0.3), ("int8 caches", 0.3)]
)
@pytest.mark.parametrize("options", OPTIONS[:10], ids=lambda o: "-".join(map(str, o.values())))
def test_other_precisions_are_near(
    tmp_path: Path, options: dict[str, Any], precision: str, tolerance: float
) -> None:
    torch.manual_seed(0)
    model = Transformer(tiny_config(**options)).eval()  # as training begins: well conditioned
    bundle = tiny_bundle(tmp_path / "bundle", model=model, precision=precision)
    runner = OnnxRunner(bundle, intra_op_threads=1)
    sources = random_sources(model.config, 5)
    outputs = greedy_steps(runner, sources, 8)
    chosen = np.stack([output.top_ids[:, 0] for output in outputs], axis=1)
    differences = []
    for row, source in enumerate(sources):
        expected = reference_log_probabilities(model, source, chosen[row])
        for step, output in enumerate(outputs):
            found = output.top_logits[row] - output.log_sum_exp[row]
            differences.append(np.abs(found - expected[step, output.top_ids[row]]))
    assert np.max(differences) < tolerance
    assert np.mean(differences) < tolerance / 5


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_layer_whose_hidden_units_are_all_off(tmp_path: Path, precision: str) -> None:
    """Rows of zeros: a scale of zero must not make anything undefined."""
    torch.manual_seed(0)
    model = Transformer(tiny_config()).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("inner.bias"):
                parameter.fill_(-100.0)
    bundle = tiny_bundle(tmp_path / "bundle", model=model, precision=precision)
    source = random_sources(model.config, 1)[0]
    outputs = greedy_steps(OnnxRunner(bundle, intra_op_threads=1), [source], 4)
    chosen = np.array([output.top_ids[0, 0] for output in outputs])
    expected = reference_log_probabilities(model, source, chosen)
    for step, output in enumerate(outputs):
        found = output.top_logits[0] - output.log_sum_exp[0]
        assert np.abs(found - expected[step, output.top_ids[0]]).max() < 0.2


@pytest.mark.parametrize("vocab_size", [331, 2048])
def test_adjusted_logits_choose_other_tokens(tmp_path: Path, vocab_size: int) -> None:
    """One row loses its best two tokens and gains a bad one; its neighbour keeps all."""
    model = random_model(tiny_config(vocab_size=vocab_size))
    bundle = tiny_bundle(tmp_path / "bundle", model=model, top_k=6)
    runner = OnnxRunner(bundle, intra_op_threads=1)
    first, second = random_sources(model.config, 2, seed=5)
    start = np.full(2, 2, np.int64), np.zeros(2, np.int32)
    encodes = [EncodeItem((0,), first), EncodeItem((1,), second)]
    plain = runner.execute(StepPlan((), encodes, *start))
    best, next_best, *rest = plain.top_ids[1].tolist()
    bad = next(i for i in range(vocab_size) if i not in plain.top_ids[1])
    adjustments = Adjustments(
        np.array([1, 1, 1], np.int64),
        np.array([best, next_best, bad], np.int64),
        np.array([-np.inf, -np.inf, 50.0], np.float32),
    )
    adjusted = runner.execute(StepPlan((), (), *start, adjustments))
    assert adjusted.top_ids[0].tolist() == plain.top_ids[0].tolist()
    assert adjusted.log_sum_exp[0] == plain.log_sum_exp[0]
    assert adjusted.top_ids[1, :5].tolist() == [bad, *rest]
    assert (adjusted.top_logits[1, 1:5] == plain.top_logits[1, 2:]).all()
    assert adjusted.log_sum_exp[1] == pytest.approx(adjusted.top_logits[1, 0], abs=1e-4)
    after = runner.execute(StepPlan((), (), *start))
    assert after.top_ids.tolist() == plain.top_ids.tolist()  # nothing of it stays


@pytest.mark.parametrize("vocab_size", [331, 2048])
@pytest.mark.parametrize("top_k", [1, 8, 16])
def test_equal_logits_come_in_the_order_of_their_tokens(
    tmp_path: Path, vocab_size: int, top_k: int
) -> None:
    model = random_model(tiny_config(vocab_size=vocab_size, embedding_tying="none"))
    with torch.no_grad():  # a vocabulary of twelve different tokens, each many times
        model.output_projection.weight.copy_(
            model.output_projection.weight[torch.arange(vocab_size) % 12]
        )
    bundle = tiny_bundle(tmp_path / "bundle", model=model, top_k=top_k)
    runner = OnnxRunner(bundle, intra_op_threads=1)
    for output in greedy_steps(runner, random_sources(model.config, 4), 4):
        for ids in output.top_ids.tolist():
            assert ids == list(range(ids[0], ids[0] + 12 * top_k, 12))
            assert ids[0] < 12


@pytest.mark.parametrize("vocab_size", [331, 2048])
def test_fewer_tokens_are_the_first_of_more(tmp_path: Path, vocab_size: int) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", vocab_size=vocab_size)
    sources = random_sources(bundle.config, 5)
    by_k = {
        k: greedy_steps(OnnxRunner(with_limits(bundle, top_k=k), intra_op_threads=1), sources, 3)
        for k in (1, 8, 50, 256, vocab_size)
    }
    for k, outputs in by_k.items():
        for output, everything in zip(outputs, by_k[vocab_size], strict=True):
            assert output.top_ids.shape == (5, k)
            assert (output.top_ids == everything.top_ids[:, :k]).all()
            assert (output.top_logits == everything.top_logits[:, :k]).all()
            assert (output.log_sum_exp == everything.log_sum_exp).all()


def test_log_sum_exp_is_over_the_whole_vocabulary(tmp_path: Path) -> None:
    model = random_model(tiny_config())
    bundle = tiny_bundle(tmp_path / "bundle", model=model, top_k=320)
    runner = OnnxRunner(bundle, intra_op_threads=1)
    for output in greedy_steps(runner, random_sources(model.config, 3), 3):
        exact = np.logaddexp.reduce(output.top_logits.astype(np.float64), axis=1)
        assert np.abs(output.log_sum_exp - exact).max() < 1e-5
