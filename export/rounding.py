"""Measures the error of rounding a network's weights and caches to 8 bits, to judge int8 graphs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from export.arithmetic import FixedSteps
from export.cache_steps import CacheSteps
from export.int8_arithmetic import quantize_rows
from export.parity_check import Tolerance
from export.torch_outputs import ForcedTranslation, TorchOutputs, torch_outputs
from model.network.transformer import Transformer

# An int8 bundle differs by 1.2 to 2.5 times as much on average: it rounds activations, too. So do
# random models of five architectures, whose differences span 0.03 to 0.5, and the included model:
# its version 4 has 2.5, the most, and loses nothing in BLEU (its MODEL_CARD.md).
_FACTOR = 2.75
# Beyond this mean difference, of rounding the weights alone, int8 is no precision for a network:
# twelve times that of the included model.
_MOST = 0.2
_NOISE = 1e-4  # of a step, of which an input has up to 127: a float32 has 7 digits


@dataclass(frozen=True)
class RoundingDifferences:
    """Differences between the network with rounded weights and the exact one, as in `Tolerance`.

    Attributes:
        mean, largest: differences between log-probabilities, in nats, over the best tokens of the
            rounded network.
        gap: largest loss in nats, by the exact network's log-probabilities, of the rounded
            network's best token against the exact network's.
        identical: share of sentences in which both networks prefer the same tokens everywhere.
    """

    mean: float
    largest: float
    gap: float
    identical: float

    @property
    def is_bearable(self) -> bool:
        """Whether 8 bits are enough for the network at all."""
        return self.mean <= _MOST

    def widened(self, tolerance: Tolerance) -> Tolerance:
        """The tolerance for a network that rounding changes more than usual."""
        return dataclasses.replace(
            tolerance,
            mean=max(tolerance.mean, _FACTOR * self.mean),
            largest=max(tolerance.largest, _FACTOR * self.largest),
            tie=max(tolerance.tie, _FACTOR * self.gap),
            identical=min(tolerance.identical, self.identical / 2),
        )


def rounding_differences(
    model: Transformer,
    batches: Sequence[Sequence[ForcedTranslation]],
    num_best: int,
    cache_steps: CacheSteps,
) -> RoundingDifferences:
    """Force translations through the network and through one with rounded matrices and caches.

    Args:
        model: the network, in evaluation mode.
        num_best: tokens of each position to compare.
        cache_steps: steps of keys and values, by attention blocks; others are not rounded.
    """
    differences, gaps = [], []
    for batch in batches:
        with _rounded_matrices(model), _rounded_caches(model, cache_steps):
            found = [_best(one, num_best) for one in torch_outputs(model, batch, 0)]
        for exact, (best, theirs) in zip(torch_outputs(model, batch, 0), found, strict=True):
            ours = np.take_along_axis(exact.log_probabilities, best, axis=1)
            differences.append(np.abs(theirs - ours).ravel())
            gaps.append(float((exact.log_probabilities.max(axis=1) - ours[:, 0]).max()))
    every = np.concatenate(differences)
    same = sum(gap == 0.0 for gap in gaps) / len(gaps)
    return RoundingDifferences(float(every.mean()), float(every.max()), max(gaps), same)


def _best(
    outputs: TorchOutputs, count: int
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]:
    """The best tokens of each position [T, count], and their log-probabilities."""
    log_probabilities = outputs.log_probabilities
    best = np.argsort(-log_probabilities, axis=1, kind="stable")[:, :count]
    return best, np.take_along_axis(log_probabilities, best, axis=1)


@contextlib.contextmanager
def rounded_inputs(
    model: Transformer, steps: Mapping[str, FixedSteps], noise: torch.Generator | None = None
) -> Iterator[None]:
    """Round the inputs of linear maps to 8 bits by prescribed steps, as int8 graphs do.

    Args:
        steps: prescribed steps by names of maps; other maps stay as they are.
        noise: moves each input by up to `_NOISE` steps first, as sums in another order do.
    """
    handles = []
    for name, module in model.named_modules():
        if name in steps and (step := steps[name].states) is not None:

            def rounded(
                _: nn.Module, given: tuple[Tensor, ...], step: float = step
            ) -> tuple[Tensor, ...]:
                inputs = given[0] / step
                if noise is not None:
                    inputs += _NOISE * (2 * torch.rand(inputs.shape, generator=noise) - 1)
                return (inputs.round().clamp(-127, 127) * step,)

            handles.append(module.register_forward_pre_hook(rounded))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def saturated_sums(model: Transformer, steps: Mapping[str, FixedSteps]) -> Iterator[None]:
    """Add the products of two neighbouring inputs in 16 bits, as x86 does with `vpmaddubsw`.

    Inputs are unsigned there, larger by 127, so that two products may not fit. Slow: it holds all
    products of an input.

    Args:
        steps: by the names of the linear maps, whose inputs are rounded by `rounded_inputs`.
    """
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and name in steps and steps[name].states is not None:
            hook = functools.partial(_saturated, steps[name])
            handles.append(module.register_forward_hook(hook))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _saturated(
    steps: FixedSteps, linear: nn.Linear, given: tuple[Tensor, ...], _: Tensor
) -> Tensor:
    assert steps.states is not None
    parts = torch.tensor(steps.weights)
    scales = parts.repeat_interleave(linear.out_features // len(parts))
    weights = (linear.weight / scales[:, None]).round().int()  # [out, in]
    bias = dict(linear.named_parameters()).get("bias", torch.zeros(()))
    shift = 127  # makes inputs unsigned
    surplus = shift * weights.sum(-1)
    rows = []
    for row in (given[0] / steps.states).round().int().flatten(end_dim=-2):
        pairs = ((row + shift) * weights).reshape(len(weights), -1, 2).sum(-1)
        sums = pairs.clamp(-(2**15), 2**15 - 1).sum(-1) - surplus
        rows.append(sums * scales * steps.states + bias)
    return torch.stack(rows).reshape(*given[0].shape[:-1], -1)


@contextlib.contextmanager
def _rounded_caches(model: Transformer, cache_steps: CacheSteps) -> Iterator[None]:
    """Round the decoder's keys and values to integer multiples of their steps."""

    def rounded(step: Tensor, module: nn.Module, given: object, output: Tensor) -> Tensor:
        return (output / step).round().clamp(-128, 127) * step

    handles = []
    for block, steps in cache_steps.items():
        for kind, step in zip(("key", "value"), steps, strict=True):
            hook = functools.partial(rounded, torch.from_numpy(step))
            handles.append(model.get_submodule(f"{block}.{kind}").register_forward_hook(hook))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def _rounded_matrices(model: Transformer) -> Iterator[None]:
    """Round every matrix while its module computes; a rounded copy of all would be another model.

    Tables of positions, which no module multiplies by, stay as they are.
    """
    exact: dict[nn.Module, Tensor] = {}

    def round_matrix(module: nn.Module, arguments: object) -> None:
        parameter = module.weight
        assert isinstance(parameter, Tensor)
        exact[module] = parameter.data
        values, scales = quantize_rows(parameter.detach().numpy())
        with torch.inference_mode(mode=False):  # of the kind that parameters are
            parameter.data = torch.from_numpy(values * scales[:, None])

    def restore(module: nn.Module, arguments: object, output: object) -> None:
        module.weight.data = exact.pop(module)

    handles = []
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            handles.append(module.register_forward_pre_hook(round_matrix))
            handles.append(module.register_forward_hook(restore, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
