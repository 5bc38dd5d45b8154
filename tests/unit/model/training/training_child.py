"""Training runs in processes of their own, killed where a test says.

The processes are forks of one that has imported torch, and what torch itself imports at the first
optimizer (its compiler): the imports take seconds, and a run a fraction of one.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Literal

import torch
import torch._dynamo
from torch import distributed

from model.bundle.config import AlignmentHead
from model.data.recipe import load_recipe
from model.training.training import Trainer

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])


class KilledTrainer(Trainer):
    """Ends by a signal: before or after an update is saved, or half-way through saving.

    Args:
        recipe: the file of the run.
        where: "kill_after_update", "kill_before_state", "interrupt", or "" for an unbroken run.
        at: the update of that.
    """

    def __init__(self, recipe: Path, where: str, at: int) -> None:
        self._where = where
        self._at = at
        super().__init__(load_recipe(recipe), device="cpu")

    def _after_update(self) -> None:
        self._end_at("interrupt", lambda: signal.raise_signal(signal.SIGTERM))
        super()._after_update()
        self._end_at("kill_after_update", _die)

    def _save_checkpoint(
        self, folder: Path, head: AlignmentHead | None, dtype: Literal["fp32", "fp16"] = "fp32"
    ) -> None:
        super()._save_checkpoint(folder, head, dtype)
        if folder.parent.name == "checkpoints":
            self._end_at("kill_before_state", _die)

    def _end_at(self, where: str, end: Callable[[], None]) -> None:
        if (self._where, self._at) == (where, self.progress.update):
            end()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def start(recipe: Path, where: str = "", at: int = 0, **environment: str) -> BaseProcess:
    """Start a run in a process of its own; with WORLD_SIZE in `environment`, one of a group."""
    child = FORKS.Process(target=_train, args=(recipe, where, at, environment), daemon=True)
    child.start()
    return child


def status(child: BaseProcess) -> int:
    """The exit status of a run, once it has ended."""
    child.join()
    assert child.exitcode is not None
    return child.exitcode


def _train(recipe: Path, where: str, at: int, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    if "WORLD_SIZE" in environment:
        distributed.init_process_group("gloo")
    KilledTrainer(recipe, where, at).run()
    if distributed.is_initialized():
        distributed.destroy_process_group()
