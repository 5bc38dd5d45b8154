"""Self-attention, a recurrent and a convolutional layer, and the reach of a signal in each.

Section 4 of "Attention Is All You Need" (Vaswani et al., 2017), table 1, compares them by cost, by
the operations that have to follow each other, and by how many of these lie between two positions.
All map [n, d] to [n, d] here, without embeddings, norms or feed-forward.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model.bundle.config import ModelConfig
from model.network.attention.multi_head import MultiHeadAttention

KERNEL = 3  # of the convolution, positions
_HEAD_DIM = 64
_SMALL_WIDTH = 8  # of layers of which only dependencies are looked at


@dataclass(frozen=True)
class LayerUnderTest:
    """One kind of layer with random weights.

    Attributes:
        forward: [n, d] -> [n, d], the whole layer.
        operations: function from an input [n, d] to the states after one, two, ... sequential
            operations: layers, or steps of a recurrence.
    """

    forward: Callable[[Tensor], Tensor]
    operations: Callable[[Tensor], Iterator[Tensor]]


def make_layer(kind: str, d_model: int, dtype: torch.dtype = torch.float32) -> LayerUnderTest:
    """A layer, always with the same weights: one of `bench.studies.layers.run.KINDS`.

    Raises:
        ValueError: there is no such kind.
    """
    torch.manual_seed(0)
    if kind == "self-attention":
        heads = max(1, d_model // _HEAD_DIM)
        attention = MultiHeadAttention(ModelConfig(8, d_model, 1, 1, heads, d_model)).to(dtype)
        return _stacked(lambda x: torch.as_tensor(attention(x, attention.keys_values(x))))
    if kind == "convolutional":
        convolution = nn.Conv1d(d_model, d_model, KERNEL, padding=KERNEL // 2, dtype=dtype)
        return _stacked(lambda x: torch.as_tensor(convolution(x.transpose(1, 2))).transpose(1, 2))
    if kind == "recurrent":
        return _recurrent(nn.GRU(d_model, d_model, dtype=dtype))  # Cho et al., 2014
    raise ValueError(f"there is no kind of layer {kind!r}")


def _stacked(layer: Callable[[Tensor], Tensor]) -> LayerUnderTest:
    """A layer [1, n, d] -> [1, n, d] that computes all positions at once: one operation."""

    def forward(states: Tensor) -> Tensor:
        return layer(states.unsqueeze(0)).squeeze(0)

    def operations(states: Tensor) -> Iterator[Tensor]:
        while True:
            states = forward(states)
            yield states

    return LayerUnderTest(forward, operations)


def _recurrent(module: nn.GRU) -> LayerUnderTest:
    def operations(states: Tensor) -> Iterator[Tensor]:
        known, carried = torch.zeros_like(states), None
        for position in range(len(states)):
            output, carried = module(states[position : position + 1], carried)
            known = torch.cat((known[:position], output, known[position + 1 :]))
            yield known

    return LayerUnderTest(lambda states: torch.as_tensor(module(states)[0]), operations)


def inputs_seen(kind: str, length: int, position: int) -> list[int]:
    """The positions whose input changes the output at `position` after one layer."""
    states = _random_states(length)
    output = make_layer(kind, _SMALL_WIDTH, torch.float64).forward(states)[position]
    return [i for i, changed in enumerate(_depends(output, states)) if changed]


def path_length(kind: str, length: int) -> int:
    """Operations until the last of n positions depends on the input of the first (table 1)."""
    states = _random_states(length)
    known = make_layer(kind, _SMALL_WIDTH, torch.float64).operations(states)
    return next(n for n in itertools.count(1) if _depends(next(known)[-1], states)[0])


def _random_states(length: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(
        length, _SMALL_WIDTH, dtype=torch.float64, generator=generator, requires_grad=True
    )


def _depends(output: Tensor, states: Tensor) -> list[bool]:
    """Whether output [d] has a derivative other than zero at each position of states [n, d]."""
    weights = torch.linspace(1.0, 2.0, output.numel(), dtype=output.dtype)
    total = (output * weights).sum()
    if not total.requires_grad:
        return [False] * len(states)
    (gradient,) = torch.autograd.grad(total, states, retain_graph=True, materialize_grads=True)
    changed: list[bool] = (gradient != 0).any(dim=-1).tolist()
    return changed
