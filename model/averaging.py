"""The mean of several checkpoints' weights (Vaswani et al., 2017, section 6.1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from model.checkpoint import load_checkpoint


def average_weights(folders: Sequence[Path]) -> dict[str, Tensor]:
    """The state dict whose every entry is the mean over the checkpoints in `folders`.

    Raises:
        CheckpointError: a checkpoint cannot be read.
        ValueError: there is none.
    """
    if not folders:
        raise ValueError("no checkpoint to average")
    total = {
        name: tensor.double()
        for name, tensor in load_checkpoint(folders[0]).model.state_dict().items()
    }
    for folder in folders[1:]:
        for name, tensor in load_checkpoint(folder).model.state_dict().items():
            total[name] += tensor.double()
    return {name: (tensor / len(folders)).float() for name, tensor in total.items()}
