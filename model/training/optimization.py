"""The loss and the optimizers (Vaswani et al., 2017, sections 5.3 and 5.4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.bundle.config import AlignmentHead
from model.data.recipe_sections import Optimization
from model.network.layers import AttentionWeights
from model.network.transformer import Transformer
from model.training.muon import Muon

_LEAST_ATTENTION = 1e-6
# Positions whose logits are held at a time. Of the whole batch they would be the largest tensor by
# far, and memory traffic would cost as much time as the products: 2.4 s an update became 1.8 s
# (4,096 tokens, 16,000 pieces, bf16, two cores of an AMD EPYC). On a GPU, larger products pay.
_CHUNK = {"cpu": 512, "cuda": 8192}


def learning_rate(update: int, optimization: Optimization) -> float:
    """Section 5.3 with the peak named: linear warm-up, then the inverse square root.

    Over the last `cooldown_updates` it falls linearly to nearly zero as well (Hägele et al., 2024,
    "Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations", section 3).

    Args:
        update: number of the update, from 1.
    """
    warmup, cooldown = optimization.warmup_updates, optimization.cooldown_updates
    rate = optimization.learning_rate * min(update / warmup, math.sqrt(warmup / update))
    left = optimization.max_updates + 1 - update
    return rate * min(1.0, left / cooldown) if cooldown else rate


class Optimizers:
    """The optimizers of a run, each of a part of the weights, stepped together.

    Args:
        parts: each optimizer with a factor on the learning rate.
    """

    def __init__(self, parts: Sequence[tuple[torch.optim.Optimizer, float]]) -> None:
        self.parts = parts

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of the next step, before each part's factor."""
        for optimizer, factor in self.parts:
            for group in optimizer.param_groups:
                group["lr"] = factor * rate

    def step(self) -> None:
        """Update all weights by their gradients."""
        for optimizer, _ in self.parts:
            optimizer.step()

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for optimizer, _ in self.parts:
            optimizer.zero_grad()

    def state_dict(self) -> list[dict[str, Any]]:
        """The moments of every part."""
        return [optimizer.state_dict() for optimizer, _ in self.parts]

    def load_state_dict(self, state: Sequence[dict[str, Any]] | dict[str, Any]) -> None:
        """Restore a state of `state_dict`; a mapping is of AdamW alone, from older versions."""
        states = [state] if isinstance(state, dict) else state
        for (optimizer, _), saved in zip(self.parts, states, strict=True):
            optimizer.load_state_dict(saved)


def make_optimizer(
    model: Transformer, optimization: Optimization, device: torch.device
) -> Optimizers:
    """AdamW of all weights; or Muon of the layers' matrices, and AdamW of all others.

    The rows of embeddings and of the output projection are vectors of single tokens rather than a
    map of states, and stay with AdamW (Jordan et al., 2024).
    """
    matrices = layer_matrices(model) if optimization.optimizer == "muon" else []
    taken = {id(matrix) for matrix in matrices}
    adamw = torch.optim.AdamW(
        [weight for weight in model.parameters() if id(weight) not in taken],
        lr=optimization.learning_rate,
        betas=(optimization.adam_beta1, optimization.adam_beta2),
        eps=optimization.adam_epsilon,
        weight_decay=optimization.weight_decay,
        fused=device.type in ("cpu", "cuda"),
    )
    if not matrices:
        return Optimizers([(adamw, 1.0)])
    rate = optimization.muon_learning_rate or optimization.learning_rate
    muon = Muon(
        matrices,
        lr=rate,
        momentum=optimization.muon_momentum,
        weight_decay=optimization.weight_decay,
    )
    return Optimizers([(adamw, 1.0), (muon, rate / optimization.learning_rate)])


def layer_matrices(model: Transformer) -> list[nn.Parameter]:
    """The matrices of the encoder's and the decoder's layers, each a linear map of states."""
    stacks = (model.encoder, model.decoder)
    return [weight for stack in stacks for weight in stack.parameters() if weight.ndim == 2]


class SmoothedLoss(nn.Module):
    """The label-smoothed cross-entropy of a batch (section 5.4), summed over target tokens.

    With alignments it adds guided alignment (Garg et al., 2019, "Jointly Learning to Align and
    Translate with Transformer Models", section 4.2): for each aligned target token, minus the
    logarithm of the attention that one head gives to the tokens it comes from.

    Args:
        label_smoothing: section 5.4.
        head: head that learns to align.
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
        projection = self.model.output_projection
        loss = projected_cross_entropy(
            hidden[valid], projection.weight, projection.bias, labels[valid], self.label_smoothing
        )
        if record is not None and self.head is not None and links is not None:
            weights = record.decoder_cross[0][:, self.head.head]  # [B, T - 1, S]
            loss = loss + self.alignment_weight * alignment_loss(weights, links)
        return loss


def projected_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, label_smoothing: float
) -> Tensor:
    """The summed, label-smoothed cross-entropy of `hidden @ weight.T + bias`, a scalar in float32.

    The same as `F.cross_entropy` of the logits, which are never held all at once: each chunk's
    gradient is computed with its loss (as in Hsu et al., 2024, "Liger Kernel", section 3.2).

    Args:
        hidden: [tokens, D].
        weight: [V, D].
        bias: [V], or None.
        labels: [tokens] the right classes.
        label_smoothing: share of the probability that is spread over all V classes.
    """
    if not torch.is_grad_enabled():
        logits = F.linear(hidden, weight, bias).float()
        return F.cross_entropy(logits, labels, reduction="sum", label_smoothing=label_smoothing)
    apply = _ProjectedCrossEntropy.apply
    loss: Tensor = apply(hidden, weight, bias, labels, label_smoothing)  # type: ignore[no-untyped-call]
    return loss


class _ProjectedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        label_smoothing: float,
    ) -> Tensor:
        device = hidden.device.type
        dtype = hidden.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        num_classes = weight.size(0)
        used_weight = weight.to(dtype)
        used_bias = None if bias is None else bias.to(dtype)
        loss = torch.zeros((), dtype=torch.float32, device=hidden.device)
        hidden_grad = torch.empty_like(hidden)
        weight_grad = torch.zeros_like(weight, dtype=torch.float32)
        bias_grad = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        with torch.autocast(device, enabled=False):
            for start in range(0, len(hidden), _CHUNK.get(device, 512)):
                rows = slice(start, start + _CHUNK.get(device, 512))
                states, right = hidden[rows].to(dtype), labels[rows, None]
                log_probs = F.linear(states, used_weight, used_bias).log_softmax(
                    dim=-1, dtype=torch.float32
                )  # [rows, V]
                of_right, of_all = log_probs.gather(1, right), log_probs.sum() / num_classes
                loss -= (1.0 - label_smoothing) * of_right.sum() + label_smoothing * of_all
                # The gradient of the logits: their softmax minus the smoothed labels.
                gradient = log_probs.exp_().sub_(label_smoothing / num_classes)
                gradient.scatter_add_(1, right, torch.full_like(of_right, label_smoothing - 1.0))
                if bias_grad is not None:
                    bias_grad += gradient.sum(dim=0)
                narrow = gradient.to(dtype)
                hidden_grad[rows] = (narrow @ used_weight).to(hidden.dtype)
                weight_grad += narrow.T @ states
        ctx.save_for_backward(hidden_grad, weight_grad.to(weight.dtype), bias_grad)
        return loss

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        gradients = ctx.saved_tensors
        return (*(None if g is None else g * outer[0] for g in gradients), None, None)


def alignment_loss(weights: Tensor, links: Tensor) -> Tensor:
    """Minus the log of the attention on linked tokens, summed over target tokens with a link.

    Args:
        weights: [B, T, S] of one head, at the steps that predict the target tokens.
        links: [B, T, S] boolean, the source tokens that each target token comes from.
    """
    on_linked = (weights.float() * links).sum(-1)[links.any(-1)]
    return -on_linked.clamp(min=_LEAST_ATTENTION).log().sum()
