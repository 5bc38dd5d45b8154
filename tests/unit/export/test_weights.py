"""A checkpoint's arrays, and the effect of rounding only its matrices."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from export.errors import ExportError
from export.int8_arithmetic import quantize_rows
from export.rounding import rounding_differences
from export.torch_outputs import ForcedTranslation, torch_outputs
from export.weights import Weights, sinusoidal_positions
from model.bundle.config import ModelConfig
from model.network.positions import sinusoidal_positions as torch_sinusoidal_positions
from model.network.transformer import Transformer
from tests.factories import random_model, random_sources, tiny_config


def arrays(config: ModelConfig) -> dict[str, Any]:
    return {name: t.numpy() for name, t in random_model(config).state_dict().items()}


def test_sinusoids_are_the_models() -> None:
    expected = torch_sinusoidal_positions(64, 32).numpy()
    assert np.abs(sinusoidal_positions(64, 32) - expected).max() < 1e-6


@pytest.mark.parametrize("stored", ["source_embedding", "target_embedding", "output_projection"])
def test_a_matrix_tied_three_ways_is_found_under_any_name(stored: str) -> None:
    config = tiny_config(embedding_tying="all")
    state = arrays(config)
    table = state["target_embedding.weight"]
    for name in ("source_embedding", "target_embedding", "output_projection"):
        if name != stored:
            del state[f"{name}.weight"]
    weights = Weights(state, config)
    for matrix in (weights.embedding("source"), weights.embedding("target")):
        assert (matrix == table).all()
    assert (weights.output_projection() == table).all()


def test_untied_matrices_stay_apart() -> None:
    config = tiny_config(embedding_tying="none")
    state = arrays(config)
    weights = Weights(state, config)
    assert (weights.embedding("source") == state["source_embedding.weight"]).all()
    assert (weights.embedding("target") == state["target_embedding.weight"]).all()
    assert (weights.output_projection() == state["output_projection.weight"]).all()


def test_what_is_wrong_is_named() -> None:
    config = tiny_config()
    state = arrays(config)
    name = "encoder.layers.1.feed_forward.inner.weight"
    good = state.pop(name)
    with pytest.raises(ExportError, match=f"no weight '{name}'"):
        Weights(state, config).linear("encoder.layers.1.feed_forward.inner", 48, 32)
    with pytest.raises(ExportError, match=r"has shape \[32, 48\].* asks for \[48, 32\]"):
        Weights({**state, name: good.T}, config).get(name, 48, 32)
    bad = good.copy()
    bad[3, 4] = np.nan
    with pytest.raises(ExportError, match="infinite or undefined"):
        Weights({**state, name: bad}, config).get(name, 48, 32)


# --- rounding -------------------------------------------------------------------------------------

NUM_BEST = 4


def rounded_copy(model: Transformer) -> Transformer:
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for name, module in copied.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding) and "positions" not in name:
                module.weight.copy_(_rounded(module.weight.detach()))
    return copied


def _rounded(matrix: torch.Tensor) -> torch.Tensor:
    values, scales = quantize_rows(matrix.numpy())
    return torch.from_numpy(values * scales[:, None])


@pytest.mark.parametrize("tying", ["all", "none"])
def test_differences_are_those_of_a_rounded_copy_and_the_network_stays(tying: str) -> None:
    model = random_model(tiny_config(embedding_tying=tying))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    draw = np.random.default_rng(0)
    sources = random_sources(model.config, 6, seed=1)
    batch = [
        ForcedTranslation(index, source, draw.integers(4, 60, 9).tolist())
        for index, source in enumerate(sources)
    ]
    found = rounding_differences(model, [batch], NUM_BEST, {})
    differences = []
    for exact, rounded in zip(
        torch_outputs(model, batch, 0), torch_outputs(rounded_copy(model), batch, 0), strict=True
    ):
        best = np.argsort(-rounded.log_probabilities, axis=1, kind="stable")[:, :NUM_BEST]
        both = (np.take_along_axis(o.log_probabilities, best, axis=1) for o in (exact, rounded))
        differences.append(np.abs(np.subtract(*both)))
    every = np.concatenate(differences)
    assert found.mean == pytest.approx(every.mean())
    assert found.largest == every.max()
    assert found.mean > 0.0
    after = model.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
