"""How far a training run has come, and all that it needs to go on from there."""

from __future__ import annotations

import math
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from model.transformer import Transformer

STATE_FILE = "state.pt"
CHECKPOINTS = "checkpoints"


@dataclass
class Progress:
    """How far a run has come.

    Attributes:
        update: updates made.
        epoch: the current epoch, from 0.
        position: groups of batches of this epoch already used; a group makes one update.
        best_score, validations_without_best: for early stopping.
        precision: chosen at the start, kept from then on.
        train_seconds: time spent in updates, over all starts of the run.
        tokens: target tokens learnt from.
        history: one entry a validation.
    """

    update: int = 0
    epoch: int = 0
    position: int = 0
    best_score: float = -math.inf
    validations_without_best: int = 0
    precision: str = ""
    train_seconds: float = 0.0
    tokens: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)


def checkpoint_folder(output: Path, update: int) -> Path:
    """Where the checkpoint of an update stands; names sort by update."""
    return output / CHECKPOINTS / f"update-{update:07d}"


def recent_checkpoints(output: Path) -> list[Path]:
    """The kept checkpoints, oldest first."""
    return sorted((output / CHECKPOINTS).glob("update-*"))


def save_state(
    output: Path,
    progress: Progress,
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    *,
    keep: int,
) -> None:
    """Write the state whole or not at all, then forget all but the last `keep` checkpoints."""
    state = {
        "progress": asdict(progress),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),
        "random_cuda": torch.cuda.get_rng_state_all() if device.type == "cuda" else [],
    }
    temporary = output / (STATE_FILE + ".partial")
    torch.save(state, temporary)
    temporary.replace(output / STATE_FILE)
    for old in recent_checkpoints(output)[:-keep]:
        shutil.rmtree(old)


def restore_state(
    output: Path, model: Transformer, optimizer: torch.optim.Optimizer, device: torch.device
) -> Progress:
    """Go back to the state in `output`; a fresh Progress where there is none."""
    path = output / STATE_FILE
    if not path.exists():
        return Progress()
    state = torch.load(path, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"].cpu())
    if state["random_cuda"] and device.type == "cuda":
        torch.cuda.set_rng_state_all([s.cpu() for s in state["random_cuda"]])
    return Progress(**state["progress"])


def forget_checkpoints_after(output: Path, update: int) -> None:
    """Remove the checkpoints of updates that a restored state has not seen.

    A run killed between writing a checkpoint and its state leaves one; it will be made again.
    """
    newest = checkpoint_folder(output, update)
    for folder in recent_checkpoints(output):
        if folder.name > newest.name:
            shutil.rmtree(folder)
