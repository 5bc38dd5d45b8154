"""The mean of several checkpoints (Vaswani et al., 2017, section 6.1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from model.checkpoint import load_checkpoint
from model.config import AlignmentHead


def average_checkpoints(
    folders: Sequence[Path],
) -> tuple[dict[str, Tensor], AlignmentHead | None]:
    """The mean weights of the checkpoints in `folders`, and the head that all of them trained.

    Returns:
        The state dict whose every entry is the mean; the alignment head, None unless every
        checkpoint names the same one.

    Raises:
        CheckpointError: a checkpoint cannot be read.
        ValueError: there is none.
    """
    if not folders:
        raise ValueError("no checkpoint to average")
    first = load_checkpoint(folders[0])
    total = {name: tensor.double() for name, tensor in first.model.state_dict().items()}
    heads = {first.alignment_head}
    for folder in folders[1:]:
        checkpoint = load_checkpoint(folder)
        heads.add(checkpoint.alignment_head)
        for name, tensor in checkpoint.model.state_dict().items():
            total[name] += tensor.double()
    weights = {name: (tensor / len(folders)).float() for name, tensor in total.items()}
    return weights, first.alignment_head if len(heads) == 1 else None
