"""Looking up a checkpoint's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from export.errors import ExportError
from export.weights import Weights, sinusoidal_positions
from model.bundle.config import ModelConfig
from model.network.positions import sinusoidal_positions as torch_sinusoidal_positions
from tests.factories import random_model, tiny_config


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
