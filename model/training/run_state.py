"""The progress of a training run, and the state from which it resumes."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model.data.differences import first_difference
from model.data.recipe import STATE_FILE
from model.network.checkpoint import CheckpointError, load_checkpoint
from model.network.transformer import Transformer
from model.training.optimization import Optimizers

CHECKPOINTS = "checkpoints"


@dataclass
class Progress:
    """The progress of a run.

    Attributes:
        update: updates made.
        epoch: the current epoch, from 0.
        position: groups of batches of this epoch already used; a group makes one update.
        best_score, validations_without_best: values for early stopping.
        precision: precision that was chosen at the first start.
        train_seconds: time spent in updates, over all starts of the run.
        cpu_seconds: CPU time of the first process in them, which other load affects less.
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
    cpu_seconds: float = 0.0
    tokens: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)


def checkpoint_folder(output: Path, update: int) -> Path:
    """The folder of the checkpoint of an update; names sort by update."""
    return output / CHECKPOINTS / f"update-{update:07d}"


def recent_checkpoints(output: Path) -> list[Path]:
    """The kept checkpoints, oldest first."""
    return sorted((output / CHECKPOINTS).glob("update-*"))


class TrainingError(RuntimeError):
    """Training cannot start or resume. The message says what to do."""


class StateError(TrainingError):
    """A saved state does not fit the run that should resume from it. Names the field."""


def random_state(device: torch.device) -> list[Tensor]:
    """The states of this process's random generators: on the CPU and, if used, the GPU."""
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return states


def set_random_state(states: Sequence[Tensor], device: torch.device) -> None:
    """Restore this process's random generators from the result of `random_state`."""
    torch.set_rng_state(states[0].cpu())
    if device.type == "cuda" and len(states) > 1:
        torch.cuda.set_rng_state(states[1].cpu(), device)


def save_state(
    output: Path,
    progress: Progress,
    model: Transformer,
    optimizer: Optimizers,
    *,
    random_states: Sequence[Sequence[Tensor]],
    decisive: Mapping[str, Any],
) -> None:
    """Write the state whole or not at all.

    Args:
        random_states: `random_state` of every process, by rank.
        decisive: settings that must be the same when a run resumes, as plain JSON values.
    """
    state = {
        "progress": asdict(progress),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": [list(states) for states in random_states],
        "decisive": dict(decisive),
    }
    temporary = output / (STATE_FILE + ".partial")
    torch.save(state, temporary)
    temporary.replace(output / STATE_FILE)


def restore_state(
    output: Path,
    model: Transformer,
    optimizer: Optimizers,
    device: torch.device,
    *,
    rank: int,
    decisive: Mapping[str, Any],
) -> Progress:
    """Restore the state in `output`; returns a new Progress if there is none.

    Raises:
        StateError: it was saved by a run that differs in something decisive, or is damaged.
    """
    path = output / STATE_FILE
    if not path.exists():
        return Progress()
    try:
        state = torch.load(path, map_location=device, weights_only=True)
    except Exception as exc:  # torch raises whatever unpickling ran into
        raise StateError(f"{path} is damaged: {exc}; remove it to start anew") from exc
    saved = state["decisive"]
    # A state of an older version may lack some, which can't be compared then.
    changed = first_difference(saved, {k: v for k, v in decisive.items() if k in saved})
    if changed is not None:
        raise StateError(
            f"{path} was saved with another {changed}; undo the change, or choose another output "
            "folder to start anew"
        )
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    set_random_state(state["random"][rank], device)
    return Progress(**state["progress"])


def take_weights(model: Transformer, folder: Path) -> None:
    """Give `model` the weights of the checkpoint in `folder`.

    Raises:
        CheckpointError: it cannot be read, or is of another network, names all fields. Dropout may
            differ, and limits of positions that are not learned.
    """
    checkpoint = load_checkpoint(folder)
    theirs, ours = asdict(checkpoint.config), asdict(model.config)
    free = {name for name in ours if "dropout" in name}
    if model.config.positions != "learned":
        free |= {"max_positions", "max_source_positions", "max_target_positions"}
    changed = [
        f"model.{name} is {theirs[name]!r} there, {value!r} here"
        for name, value in ours.items()
        if name not in free and theirs[name] != value
    ]
    if changed:
        raise CheckpointError(
            f"optimization.init_from: {folder} is of another network: {'; '.join(changed)}"
        )
    model.load_state_dict(checkpoint.model.state_dict())


def forget_old_checkpoints(output: Path, keep: int) -> None:
    """Remove all checkpoints but the last `keep`."""
    for old in recent_checkpoints(output)[:-keep]:
        shutil.rmtree(old)


def forget_checkpoints_after(output: Path, update: int) -> None:
    """Remove the checkpoints of updates that a restored state has not seen.

    A run killed between writing a checkpoint and its state leaves one; it will be made again.
    """
    newest = checkpoint_folder(output, update)
    for folder in recent_checkpoints(output):
        if folder.name > newest.name:
            shutil.rmtree(folder)
