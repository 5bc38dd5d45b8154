"""A recurrent unit in the place of the decoder's self-attention.

"From Research to Production and Back: Ludicrously Fast Neural Machine Translation" (Kim et al.,
2019), section 3.1. A layer keeps one vector for each translation, however long that is.

Shapes as in `model.network.transformer`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.bundle.config import ModelConfig


class RecurrentUnit(nn.Module):
    """The simpler simple recurrent unit, SSRU (Kim et al., 2019, section 3.1).

    f_t = sigmoid(W_f x_t + b_f), c_t = f_t c_(t-1) + (1 - f_t) W x_t, and the output relu(c_t).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.candidate = nn.Linear(config.d_model, config.d_model, bias=False)
        self.forget = nn.Linear(config.d_model, config.d_model)

    def forward(self, states: Tensor) -> Tensor:
        """All target positions at once, from a state of zeros: [B, T, D] -> [B, T, D].

        The composition of two steps is a step too: c -> f2 (f1 c + g1) + g2. So T steps are
        composed in log2(T) rounds, each of which doubles the positions that a sum reaches back.
        """
        # Products of many gates: in the bfloat16 of autocast, a gate near 1 would be 1.
        forget, new = (
            gate.to(torch.promote_types(gate.dtype, torch.float32)) for gate in self._gates(states)
        )
        reach = 1
        while reach < states.size(1):
            new = torch.cat(
                (new[:, :reach], torch.addcmul(new[:, reach:], forget[:, reach:], new[:, :-reach])),
                dim=1,
            )
            forget = torch.cat((forget[:, :reach], forget[:, reach:] * forget[:, :-reach]), dim=1)
            reach *= 2
        return F.relu(new).to(states.dtype)

    def step(self, states: Tensor, state: Tensor) -> Tensor:
        """The state [B, 1, D] after the newest position [B, 1, D], given the one before it."""
        forget, new = self._gates(states)
        return forget * state + new

    def _gates(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """f and (1 - f) W x."""
        forget = self.forget(states).sigmoid()
        return forget, (1.0 - forget) * self.candidate(states)
