"""Linear maps with 8-bit inputs, and with sums of two products in 16 bits."""

from __future__ import annotations

import torch

from export.arithmetic import FixedSteps
from export.rounding import rounded_inputs, saturated_sums
from tests.factories import random_model, tiny_config

NAME = "decoder.layers.0.feed_forward.inner"
STATES_STEP, WEIGHTS_STEP = 0.5, 0.25


def product(integers: list[int], weights: list[int], *, saturated: bool) -> float:
    """The first output of a map whose other outputs have weights of zero, in steps."""
    model = random_model(tiny_config())
    linear = model.get_submodule(NAME)
    assert isinstance(linear, torch.nn.Linear)
    steps = {NAME: FixedSteps((WEIGHTS_STEP,), STATES_STEP)}
    given = torch.zeros(1, 2, linear.in_features)
    with torch.no_grad():
        linear.weight.zero_()
        linear.bias.zero_()
        given[0, 1, : len(integers)] = STATES_STEP * torch.tensor(integers)
        linear.weight[0, : len(weights)] = WEIGHTS_STEP * torch.tensor(weights)
        with rounded_inputs(model, steps), saturated_sums(model, steps if saturated else {}):
            found = linear(given)[0, 1, 0].item()
    return float(found / (STATES_STEP * WEIGHTS_STEP))


def test_sums_of_small_products_are_exact() -> None:
    integers, weights = [3, -100, 127, -127, 5], [-7, 20, 1, 2, 90]
    exact = sum(a * b for a, b in zip(integers, weights, strict=True))
    for saturated in (False, True):
        assert product(integers, weights, saturated=saturated) == exact


def test_sums_of_two_products_that_do_not_fit_saturate() -> None:
    """Inputs are larger by 127, of which the products are taken away afterwards."""
    pair = (127 + 127) * 127 * 2
    assert pair > 2**15 - 1
    expected = 2**15 - 1 - 127 * (127 + 127)
    assert product([127, 127], [127, 127], saturated=True) == expected
    # In two pairs, nothing saturates.
    assert product([127, 0, 127], [127, 0, 127], saturated=True) == 2 * 127 * 127


def test_noise_decides_only_between_the_two_steps_that_an_input_lies_between() -> None:
    model = random_model(tiny_config())
    linear = model.get_submodule(NAME)
    assert isinstance(linear, torch.nn.Linear)
    given = torch.zeros(1, linear.in_features)
    given[0, :2] = STATES_STEP * torch.tensor([1.5, 1.2])
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad():
        linear.bias.zero_()
        linear.weight.zero_()
        linear.weight[0, 0] = linear.weight[1, 1] = 1.0
        with rounded_inputs(model, {NAME: FixedSteps((1.0,), STATES_STEP)}, noise):
            found = {tuple((linear(given)[0, :2] / STATES_STEP).tolist()) for _ in range(50)}
    assert found == {(1.0, 1.0), (2.0, 1.0)}
