"""Run by test_training.py in processes of their own: a training run, killed where it is told to.

python training_child.py RECIPE [kill_after_update|kill_before_state] [UPDATE]
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Literal

import torch
from torch import distributed

from model.config import AlignmentHead
from model.recipe import load_recipe
from model.training import Trainer


class KilledTrainer(Trainer):
    """Ends with SIGKILL: after an update that is not saved, or half-way through saving."""

    def _after_update(self) -> None:
        if sys.argv[2:] == ["interrupt", str(self.progress.update)]:
            signal.raise_signal(signal.SIGTERM)
        super()._after_update()
        self._die_at("kill_after_update")

    def _save_checkpoint(
        self, folder: Path, head: AlignmentHead | None, dtype: Literal["fp32", "fp16"] = "fp32"
    ) -> None:
        super()._save_checkpoint(folder, head, dtype)
        if folder.parent.name == "checkpoints":
            self._die_at("kill_before_state")

    def _die_at(self, where: str) -> None:
        if sys.argv[2:] == [where, str(self.progress.update)]:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "WORLD_SIZE" in os.environ:
        distributed.init_process_group("gloo")
    KilledTrainer(load_recipe(Path(sys.argv[1])), device="cpu").run()
    if distributed.is_initialized():
        distributed.destroy_process_group()
