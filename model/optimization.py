"""The objective and how it is followed downhill (Vaswani et al., 2017, sections 5.3 and 5.4)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.config import AlignmentHead
from model.recipe import Optimization
from model.transformer import AttentionWeights, Transformer

_LEAST_ATTENTION = 1e-6


def learning_rate(update: int, optimization: Optimization) -> float:
    """Section 5.3 with the peak named: linear warm-up, then the inverse square root.

    Over the last `cooldown_updates` it falls linearly to nearly zero as well (Hägele et al., 2024,
    "Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations", section 3).

    Args:
        update: from 1.
        optimization: gives the peak, and the lengths of warm-up and cooldown.
    """
    warmup, cooldown = optimization.warmup_updates, optimization.cooldown_updates
    rate = optimization.learning_rate * min(update / warmup, math.sqrt(warmup / update))
    left = optimization.max_updates + 1 - update
    return rate * min(1.0, left / cooldown) if cooldown else rate


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
    """The label-smoothed cross-entropy of a batch (section 5.4), summed over target tokens.

    With alignments it adds guided alignment (Garg et al., 2019, "Jointly Learning to Align and
    Translate with Transformer Models", section 4.2): for each aligned target token, minus the
    logarithm of the attention that one head gives to the tokens it comes from.

    Args:
        model: the network.
        label_smoothing: section 5.4.
        head: which learns to align.
        alignment_weight: factor on that part of the loss.
    """

    def __init__(
        self,
        model: Transformer,
        label_smoothing: float,
        head: AlignmentHead | None = None,
        alignment_weight: float = 0.0,
    ) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing
        self.head = head
        self.alignment_weight = alignment_weight

    def forward(
        self, source_ids: Tensor, target_ids: Tensor, links: Tensor | None = None
    ) -> Tensor:
        """A scalar for source ids [B, S], target ids [B, T], BOS first, and links [B, T-1, S]."""
        pad_id = self.model.config.pad_id
        source_mask = source_ids != pad_id
        memory = self.model.encode(source_ids, source_mask)
        record = None
        if links is not None and self.head is not None:
            record = AttentionWeights(only_cross=self.head.layer)
        hidden = self.model.decode_hidden(target_ids[:, :-1], memory, source_mask, record)
        labels = target_ids[:, 1:]
        valid = labels != pad_id
        # The vocabulary projection is the dearest product of a small model: none for padding.
        logits = self.model.project(hidden[valid])  # [tokens, V]
        loss = F.cross_entropy(
            logits.float(), labels[valid], reduction="sum", label_smoothing=self.label_smoothing
        )
        if record is not None and self.head is not None and links is not None:
            weights = record.decoder_cross[0][:, self.head.head]  # [B, T - 1, S]
            loss = loss + self.alignment_weight * alignment_loss(weights, links)
        return loss


def alignment_loss(weights: Tensor, links: Tensor) -> Tensor:
    """Minus the log of the attention on linked tokens, summed over target tokens with a link.

    Args:
        weights: [B, T, S] of one head, at the steps that predict the target tokens.
        links: [B, T, S] boolean, the source tokens that each target token comes from.
    """
    on_linked = (weights.float() * links).sum(-1)[links.any(-1)]
    return -on_linked.clamp(min=_LEAST_ATTENTION).log().sum()
