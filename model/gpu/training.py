"""Training in bfloat16 with large batches, for a number of seconds.

The network computes in bfloat16; the optimizers keep its weights in float32 (Micikevicius et al.,
2018, "Mixed Precision Training", section 3.1).
"""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.attention import sdpa_kernel

from model.bundle.config import AlignmentHead
from model.data.recipe_sections import Optimization
from model.gpu.translation import ATTENTION
from model.network.layers import AttentionWeights
from model.network.transformer import Transformer
from model.training.optimization import SmoothedLoss, make_optimizer

logger = logging.getLogger(__name__)

Links = Callable[[Tensor, Tensor], Tensor]
"""The links [B, T - 1, S] of source ids [B, S] and target ids [B, T] with BOS."""

_UPDATES_BETWEEN_LINES = 100
_CLIP_NORM = 1.0


@dataclass(frozen=True)
class TimedSchedule:
    """The learning rates of a training that ends after some seconds.

    Attributes:
        seconds: length of the training.
        rate: peak for embeddings, norms and biases, by AdamW.
        matrix_rate: peak for the layers' matrices, by Muon.
        cooldown: share of the seconds in which the rates fall to zero, at the end (Hägele et al.,
            2024, "Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations",
            section 3).
        warmup: updates in which the rates rise.
    """

    seconds: float
    rate: float
    matrix_rate: float
    cooldown: float
    warmup: int = 300

    def factor(self, update: int, elapsed: float) -> float:
        """The rates of update number `update` (from 1), as a share of their peaks.

        Args:
            elapsed: seconds since the training began.
        """
        left = max(0.0, 1.0 - elapsed / self.seconds)
        return min(1.0, update / self.warmup, left / self.cooldown if self.cooldown else 1.0)


@dataclass(frozen=True)
class Guidance:
    """Guided alignment (Garg et al., 2019, section 4.2) in the later part of a training.

    Attributes:
        head: the head that learns to align.
        weight: factor on that part of the loss.
        links_of: the links that it learns.
        after: share of the seconds after which it does.
    """

    head: AlignmentHead
    weight: float
    links_of: Links
    after: float


class Trained(NamedTuple):
    """The network in bfloat16 and evaluation mode, and the number of updates and target tokens."""

    worker: Transformer
    updates: int
    target_tokens: int


class _Record:
    """The loss since the last line of the log, and the target tokens since the beginning."""

    def __init__(self, device: torch.device) -> None:
        self.began = self._last = time.monotonic()
        self.target_tokens = 0
        self._loss, self._seen = torch.zeros(2, device=device, dtype=torch.float64)

    def elapsed(self) -> float:
        """Seconds since the training began."""
        return time.monotonic() - self.began

    def add(self, loss: Tensor, count: Tensor) -> None:
        self._loss += loss.detach()
        self._seen += count

    def close(self, update: int, rows: int, width: int) -> None:
        """Write a line about the updates since the last one, if there are any, and begin anew."""
        now, read = time.monotonic(), int(self._seen)
        if read == 0:
            return
        mean = float(self._loss) / read
        self.target_tokens += read
        logger.info(
            "update %d, %.1f s, loss %.3f, %.0f tokens/s, batch %d x %d",
            update,
            now - self.began,
            mean,
            read / max(1e-9, now - self._last),
            rows,
            width,
        )
        if not math.isfinite(mean):
            raise FloatingPointError(f"the loss is {mean} at update {update}")
        self._loss.zero_()
        self._seen.zero_()
        self._last = now


def train(
    model: Transformer,
    batches: Iterable[tuple[Tensor, Tensor]],
    schedule: TimedSchedule,
    *,
    label_smoothing: float = 0.1,
    guidance: Guidance | None = None,
    max_updates: int | None = None,
) -> Trained:
    """Train a model in float32 in place.

    Args:
        batches: source ids [B, S], and target ids [B, T] without BOS.
        guidance: guided alignment, if there is any.
        max_updates: limit, for a rehearsal.

    Raises:
        FloatingPointError: the loss is no longer finite.
    """
    device = next(model.parameters()).device
    worker = copy.deepcopy(model).bfloat16().train()
    loss_of = SmoothedLoss(worker, label_smoothing)
    if guidance is not None:
        loss_of = SmoothedLoss(worker, label_smoothing, guidance.head, guidance.weight)
    options = Optimization(
        optimizer="muon",
        max_updates=1,
        learning_rate=schedule.rate,
        muon_learning_rate=schedule.matrix_rate,
    )
    optimizer = make_optimizer(model, options, device)
    weights: list[Tensor] = [*model.parameters()]
    copies: list[Tensor] = [*worker.parameters()]
    gradients = [torch.zeros_like(parameter) for parameter in weights]
    for parameter, gradient in zip(weights, gradients, strict=True):
        parameter.grad = gradient
    record = _Record(device)
    update, shape = 0, (0, 0)
    for sources, targets in batches:
        elapsed = record.elapsed()
        if elapsed >= schedule.seconds or update == max_updates:
            break
        update, shape = update + 1, (targets.shape[0], targets.shape[1])
        optimizer.set_learning_rate(schedule.rate * schedule.factor(update, elapsed))
        starts = targets.new_full((len(targets), 1), model.config.bos_id)
        with_start = torch.cat((starts, targets), dim=1)
        links = None
        if guidance is not None and elapsed >= guidance.after * schedule.seconds:
            links = guidance.links_of(sources, with_start)
        count = (targets != model.config.pad_id).sum()
        with sdpa_kernel(ATTENTION):
            loss = loss_of(sources, with_start, links)
        (loss / count).backward()
        narrow = [cast(Tensor, parameter.grad) for parameter in copies]
        torch._foreach_copy_(gradients, narrow)
        nn.utils.clip_grad_norm_(weights, _CLIP_NORM, foreach=True)
        with torch.autocast(device.type, dtype=torch.bfloat16):  # for Muon's products
            optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(copies, weights)
        worker.zero_grad()
        record.add(loss, count)
        # The numbers of a line wait for the device.
        if update % _UPDATES_BETWEEN_LINES == 0 or update in (1, 10):
            record.close(update, *shape)
    record.close(update, *shape)
    return Trained(worker.eval(), update, record.target_tokens)


def links_by(model: Transformer, head: AlignmentHead) -> Links:
    """Links of a batch as another model's head sees them: where it has most of its attention.

    Args:
        model: a network of the same vocabulary whose `head` has learnt to align.
    """

    @torch.no_grad()
    def links(sources: Tensor, targets: Tensor) -> Tensor:
        mask = sources != model.config.pad_id
        record = AttentionWeights(only_cross=head.layer)
        memory = model.encode(sources, mask)
        model.decode_hidden(targets[:, :-1], memory, mask, record)
        seen = record.decoder_cross[0][:, head.head]  # [B, T - 1, S]
        real = (targets[:, 1:] != model.config.pad_id)[:, :, None]
        return (seen > 0.5) & real

    return links


def reversed_links(links_of: Links, bos_id: int) -> Links:
    """Links for the other direction: `links_of` reads the targets and predicts the sources."""

    def links(sources: Tensor, targets: Tensor) -> Tensor:
        starts = sources.new_full((len(sources), 1), bos_id)
        found = links_of(targets[:, 1:], torch.cat((starts, sources), dim=1))
        return found.transpose(1, 2)

    return links
