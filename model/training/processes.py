"""The processes of one training run: a single one, or those that torchrun started."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import distributed

T = TypeVar("T")


class Processes:
    """This process among those that train together. With one, every method does nothing."""

    def __init__(self) -> None:
        initialized = distributed.is_initialized()
        self.rank = distributed.get_rank() if initialized else 0
        self.count = distributed.get_world_size() if initialized else 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that validates, saves and logs."""
        return self.rank == 0

    def wait_for_all(self) -> None:
        """Wait until every process has called this."""
        if self.count > 1:
            distributed.barrier()

    def first_alone(self, work: Callable[[], T]) -> T:
        """The result of `work`, which the first process does before the others."""
        if not self.is_first:
            self.wait_for_all()
        result = work()
        if self.is_first:
            self.wait_for_all()
        return result

    def sum(self, value: float, device: torch.device) -> float:
        """The sum of every process's `value`."""
        if self.count == 1:
            return value
        tensor = torch.tensor(float(value), dtype=torch.float64, device=device)
        distributed.all_reduce(tensor)
        return float(tensor)

    def gather(self, value: Any) -> list[Any]:
        """Every process's `value` by rank; empty for all but the first."""
        if self.count == 1:
            return [value]
        gathered: list[Any] | None = [None] * self.count if self.is_first else None
        distributed.gather_object(value, gathered, dst=0)
        return gathered or []

    def from_first(self, values: list[Any]) -> list[Any]:
        """The first process's `values`, for everyone."""
        if self.count > 1:
            distributed.broadcast_object_list(values, src=0)
        return values
