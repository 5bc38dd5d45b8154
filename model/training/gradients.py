"""The gradients of an update: of several batches, in mixed precision, over several processes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel

from model.data.corpus import Batch
from model.training.processes import Processes

_FUSED_ATTENTION = (
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.MATH,
)


class Gradients:
    """Adds up the gradients of batches in the parameters of a loss.

    Args:
        loss: computes the summed loss of a batch.

    Attributes:
        precision: "fp32" or "bf16", of the forward pass.
    """

    def __init__(self, loss: nn.Module, device: torch.device, processes: Processes) -> None:
        self._loss = loss if processes.count == 1 else DistributedDataParallel(loss)
        self._device = device
        self._processes = processes
        self.precision = "fp32"

    def add(self, batches: Sequence[Batch], num_tokens: float) -> float:
        """Add the gradients of the mean loss over `num_tokens`, those of all processes.

        Returns:
            The summed loss of this process's batches.
        """
        total = torch.zeros((), device=self._device)
        # DistributedDataParallel averages over processes; we want the sum over all tokens.
        scale = self._processes.count / num_tokens
        for index, batch in enumerate(batches):
            with self._exchanged(index == len(batches) - 1):
                total += self.add_batch(batch, scale)
        return float(total)

    def add_batch(self, batch: Batch, scale: float) -> Tensor:
        """Add the gradient of `scale` times the loss of `batch`; returns the loss, a scalar."""
        # On CPU the fused attention's backward pass is made for long sequences: with sentences
        # the plain products train a quarter faster.
        kernels = [SDPBackend.MATH] if self._device.type == "cpu" else list(_FUSED_ATTENTION)
        with sdpa_kernel(kernels):
            with self.autocast():
                links = None if batch.links is None else self._tensor(batch.links)
                ids = self._tensor(batch.source_ids), self._tensor(batch.target_ids)
                loss = self._loss(*ids, links)
            (loss * scale).backward()
        return cast(Tensor, loss.detach())

    def autocast(self) -> torch.autocast:
        """A context in which matrix products are computed in `precision`."""
        bf16 = self.precision == "bf16"
        return torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=bf16)

    def _exchanged(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """Several batches of one update exchange gradients once, with the last of them."""
        if last or not isinstance(self._loss, DistributedDataParallel):
            return contextlib.nullcontext()
        return cast(contextlib.AbstractContextManager[None], self._loss.no_sync())

    def _tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(array).to(self._device, non_blocking=True)
