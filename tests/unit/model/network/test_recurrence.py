"""The recurrent decoder is the paper's formula, one position at a time or all at once."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from model.bundle.config import ConfigError
from model.network.positions import marian_positions
from model.network.recurrence import RecurrentUnit
from tests.factories import random_model, tiny_config

WIDTH = 32


def unit() -> RecurrentUnit:
    torch.manual_seed(0)
    return RecurrentUnit(tiny_config(decoder="ssru", d_model=WIDTH)).eval()


def formula(recurrent: RecurrentUnit, states: Tensor) -> Tensor:
    """Kim et al. (2019), section 3.1, in double precision."""
    w, w_f = recurrent.candidate.weight.double(), recurrent.forget.weight.double()
    c, outputs = torch.zeros(states.size(0), WIDTH, dtype=torch.float64), []
    for x in states.double().unbind(dim=1):
        f = torch.sigmoid(x @ w_f.T + recurrent.forget.bias.double())
        c = f * c + (1 - f) * (x @ w.T)
        outputs.append(torch.relu(c))
    return torch.stack(outputs, dim=1)


@pytest.mark.parametrize("length", [1, 2, 3, 8, 13, 64, 500])
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])  # of gates: half open, or shut and wide open
@torch.inference_mode()
def test_all_positions_at_once_are_the_formula(length: int, scale: float) -> None:
    recurrent, states = unit(), scale * torch.randn(3, length, WIDTH)
    expected = formula(recurrent, states)
    found = recurrent(states).double()
    assert (found - expected).abs().max() <= 1e-6 * max(1.0, expected.abs().max().item())


@torch.inference_mode()
def test_steps_are_the_formula() -> None:
    recurrent, states = unit(), torch.randn(3, 40, WIDTH)
    state, outputs = torch.zeros(3, 1, WIDTH), []
    for position in range(40):
        state = recurrent.step(states[:, position : position + 1], state)
        outputs.append(state.relu())
    found = torch.cat(outputs, 1).double()
    torch.testing.assert_close(found, formula(recurrent, states), rtol=1e-4, atol=1e-6)


def test_gradients_are_those_of_the_formula() -> None:
    recurrent, states = unit(), torch.randn(2, 50, WIDTH)
    weights = torch.randn(2, 50, WIDTH)
    gradients = []
    for forward in (recurrent, lambda x: formula(recurrent, x)):
        recurrent.zero_grad()
        (forward(states) * weights).sum().backward()
        gradients.append([p.grad.clone() for p in recurrent.parameters() if p.grad is not None])
    assert len(gradients[0]) == 3
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_without_an_embedding_the_decoder_starts_from_zeros() -> None:
    model = random_model(tiny_config(decoder="ssru", embed_start=False, positions="none"))
    seen: list[Tensor] = []
    model.decoder.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(torch.tensor([[2, 5, 3]]), torch.tensor([[2, 5]]))
    assert (seen[0][0, 0] == 0).all()
    torch.testing.assert_close(
        seen[0][0, 1], model.target_embedding.weight[5] * math.sqrt(WIDTH), rtol=1e-6, atol=1e-6
    )


def test_marian_s_positions_are_its_formula() -> None:
    table = marian_positions(300, 16).numpy()
    for position in (0, 1, 17, 299):
        for i in range(8):
            angle = position * math.exp(i * -(math.log(10_000) / (16 / 2 - 1)))
            np.testing.assert_allclose(table[position, i], math.sin(angle), atol=1e-6)
            np.testing.assert_allclose(table[position, 8 + i], math.cos(angle), atol=1e-6)


def test_there_is_no_other_decoder() -> None:
    with pytest.raises(ConfigError, match="decoder must be one of self_attention, ssru, not 'rnn'"):
        tiny_config(decoder="rnn")
