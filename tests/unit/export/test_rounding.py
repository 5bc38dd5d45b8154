"""The effect of rounding only a network's matrices."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from export.int8_arithmetic import quantize_rows
from export.rounding import rounding_differences
from export.torch_outputs import ForcedTranslation, torch_outputs
from model.network.transformer import Transformer
from tests.factories import random_model, random_sources, tiny_config

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
    found = rounding_differences(model, [batch], NUM_BEST)
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
