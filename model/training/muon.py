"""Muon: momentum with orthogonal updates (Jordan et al., 2024).

PyTorch's `torch.optim.Muon` always computes in bfloat16: on a CPU without instructions for it, a
step takes 25 times as long as here. This one computes in the precision of the autocast around it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

# Of the published implementation: they raise small singular values fastest, and leave all of them
# between 0.7 and 1.2 after five iterations.
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_ADAMW_RMS = 0.2  # of AdamW's update before the learning rate, as observed by Liu et al., 2025


class Muon(torch.optim.Optimizer):
    """Replaces the averaged gradient of a matrix by the nearest semi-orthogonal matrix.

    An update has the root mean square of AdamW's (Liu et al., 2025, "Muon is Scalable for LLM
    Training", section 2.2), so that one learning rate and weight decay suit both.

    Args:
        matrices: the weights, all of two dimensions.
        momentum: share of the average in the new average of gradients.
        weight_decay: decoupled, as in AdamW.
    """

    def __init__(
        self, matrices: Iterable[nn.Parameter], *, lr: float, momentum: float, weight_decay: float
    ) -> None:
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient; `closure` is not used."""
        with torch.no_grad():
            for group in self.param_groups:
                # Together: on a GPU, many small operations cost more time than their products.
                alike = defaultdict(list)
                for weight in group["params"]:
                    if weight.grad is not None:
                        alike[tuple(sorted(weight.shape))].append(weight)
                for weights in alike.values():
                    self._update(weights, group)

    def _update(self, weights: Sequence[nn.Parameter], group: dict[str, Any]) -> None:
        """Update matrices that have the same shape or its transpose."""
        gradients: list[Tensor] = []
        averages: list[Tensor] = []
        for weight in weights:
            gradient, state = cast(Tensor, weight.grad), self.state[weight]
            if "average" not in state:
                state["average"] = torch.zeros_like(gradient)
            gradients.append(gradient)
            averages.append(state["average"])
        matrices: list[Tensor] = list(weights)
        torch._foreach_lerp_(averages, gradients, 1.0 - group["momentum"])
        nesterov = torch._foreach_lerp(gradients, averages, group["momentum"])
        directions = orthogonalized(torch.stack([_wide(matrix) for matrix in nesterov]))
        directions = directions.to(matrices[0].dtype)
        updates: list[Tensor] = [
            direction if _is_wide(weight) else direction.mT
            for weight, direction in zip(weights, directions.unbind(), strict=True)
        ]
        if group["weight_decay"]:
            torch._foreach_mul_(matrices, 1.0 - group["lr"] * group["weight_decay"])
        size = _ADAMW_RMS * math.sqrt(max(weights[0].shape))
        torch._foreach_add_(matrices, updates, alpha=-size * group["lr"])


def orthogonalized(matrices: Tensor) -> Tensor:
    """About U V^T of each singular value decomposition U S V^T, by Newton-Schulz iterations.

    Args:
        matrices: [N, R, C], best with R <= C.

    Returns:
        [N, R, C], in the precision of the autocast around it.
    """
    a, b, c = _COEFFICIENTS
    # No singular value is larger than the norm.
    found: Tensor = matrices / matrices.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    device = matrices.device.type
    if torch.is_autocast_enabled(device):
        found = found.to(torch.get_autocast_dtype(device))
    for _ in range(_ITERATIONS):
        gram = found @ found.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        found = torch.baddbmm(found, polynomial, found, beta=a)
    return found


def _is_wide(matrix: Tensor) -> bool:
    return matrix.size(0) <= matrix.size(1)


def _wide(matrix: Tensor) -> Tensor:
    return matrix if _is_wide(matrix) else matrix.mT
