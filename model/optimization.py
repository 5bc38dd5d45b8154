"""The objective and how it is followed downhill (Vaswani et al., 2017, sections 5.3 and 5.4)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.recipe import Optimization
from model.transformer import Transformer


def learning_rate(update: int, optimization: Optimization) -> float:
    """Section 5.3 with the peak named: linear warm-up, then the inverse square root.

    Args:
        update: from 1.
        optimization: gives the peak and the length of the warm-up.
    """
    warmup = optimization.warmup_updates
    return optimization.learning_rate * min(update / warmup, math.sqrt(warmup / update))


def make_optimizer(
    model: nn.Module, optimization: Optimization, device: torch.device
) -> torch.optim.Optimizer:
    """Adam with the recipe's values; weight decay, where there is any, is AdamW's."""
    return torch.optim.AdamW(
        model.parameters(),
        lr=optimization.learning_rate,
        betas=(optimization.adam_beta1, optimization.adam_beta2),
        eps=optimization.adam_epsilon,
        weight_decay=optimization.weight_decay,
        fused=device.type in ("cpu", "cuda"),
    )


class SmoothedLoss(nn.Module):
    """The label-smoothed cross-entropy of a batch (section 5.4), summed over target tokens."""

    def __init__(self, model: Transformer, label_smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing

    def forward(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """A scalar for source ids [B, S] and target ids [B, T], BOS first."""
        pad_id = self.model.config.pad_id
        source_mask = source_ids != pad_id
        memory = self.model.encode(source_ids, source_mask)
        hidden = self.model.decode_hidden(target_ids[:, :-1], memory, source_mask)
        labels = target_ids[:, 1:]
        valid = labels != pad_id
        # The vocabulary projection is the dearest product of a small model: none for padding.
        logits = self.model.project(hidden[valid])  # [tokens, V]
        return F.cross_entropy(
            logits.float(), labels[valid], reduction="sum", label_smoothing=self.label_smoothing
        )
