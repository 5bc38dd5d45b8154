"""The mean of several checkpoints (Vaswani et al., 2017, section 6.1).

    python -m model.training.averaging RUN --output CHECKPOINT
    python -m model.training.averaging FOLDER FOLDER... --output CHECKPOINT
    python -m model.training.averaging OLD NEW --share 0.15 --share 0.85 --output CHECKPOINT

The first form takes a run's last checkpoints, also while the run goes on. `dragoman train`
writes such a mean itself when it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from torch import Tensor

from model.bundle.config import AlignmentHead
from model.network.checkpoint import (
    RECIPE_FILE,
    Checkpoint,
    CheckpointError,
    load_checkpoint,
    save_checkpoint,
)
from model.training.run_state import recent_checkpoints


def average_checkpoints(
    folders: Sequence[Path], shares: Sequence[float] = ()
) -> tuple[dict[str, Tensor], AlignmentHead | None]:
    """The mean weights of the checkpoints in `folders`, and the head that all of them trained.

    Args:
        shares: the share of each checkpoint, in any unit; empty for equal ones.

    Returns:
        The state dict whose every entry is the mean; the alignment head, None unless every
        checkpoint names the same one.

    Raises:
        CheckpointError: a checkpoint cannot be read, or is not of the first one's network.
        ValueError: there is no checkpoint, or not one positive share for each.
    """
    if not folders:
        raise ValueError("no checkpoint to average")
    shares = shares or [1.0] * len(folders)
    if len(shares) != len(folders) or min(shares) <= 0:
        raise ValueError(f"{len(folders)} checkpoints need as many shares above 0")
    first = load_checkpoint(folders[0])
    total = {name: shares[0] * tensor.double() for name, tensor in first.model.state_dict().items()}
    heads = {first.alignment_head}
    for folder, share in zip(folders[1:], shares[1:], strict=True):
        checkpoint = load_checkpoint(folder)
        _check_alike(folders[0], first, folder, checkpoint)
        heads.add(checkpoint.alignment_head)
        for name, tensor in checkpoint.model.state_dict().items():
            total[name] += share * tensor.double()
    weights = {name: (tensor / sum(shares)).float() for name, tensor in total.items()}
    return weights, first.alignment_head if len(heads) == 1 else None


def _check_alike(first_folder: Path, first: Checkpoint, folder: Path, other: Checkpoint) -> None:
    for field, one, two in (
        ("network", first.config, other.config),
        ("vocabulary", first.tokenizer.serialized(), other.tokenizer.serialized()),
        ("languages", first.languages, other.languages),
    ):
        if one != two:
            raise CheckpointError(f"{folder}: another {field} than {first_folder}")


def write_average(
    folders: Sequence[Path], output: Path, shares: Sequence[float] = ()
) -> Checkpoint:
    """Write the mean of checkpoints as a checkpoint in half precision, and return it.

    All but the weights comes from the last checkpoint; the provenance also counts the checkpoints
    (`averaged`).

    Raises:
        CheckpointError, ValueError: as `average_checkpoints`.
    """
    weights, head = average_checkpoints(folders, shares)
    last = load_checkpoint(folders[-1])
    last.model.load_state_dict(weights)
    recipe = folders[-1] / RECIPE_FILE
    save_checkpoint(
        output,
        last.model,
        last.tokenizer,
        languages=last.languages,
        provenance={**last.provenance, "averaged": len(folders)},
        recipe=recipe.read_text(encoding="utf-8") if recipe.is_file() else None,
        alignment_head=head,
        trained_length=last.trained_length,
        dtype="fp16",
    )
    return load_checkpoint(output)


def main(
    folders: Annotated[
        list[Path], typer.Argument(help="A run's folder, or two checkpoints and more.")
    ],
    output: Annotated[Path, typer.Option(help="The checkpoint to write, a new folder.")],
    share: Annotated[
        list[float] | None, typer.Option(help="Share of each checkpoint; default: equal ones.")
    ] = None,
    last: Annotated[
        int, typer.Option(help="Number of a run's last checkpoints; 0 takes all.", min=0)
    ] = 0,
) -> None:
    """Write the mean of checkpoints as a checkpoint in half precision."""
    if output.exists():
        raise typer.BadParameter(f"{output} exists already")
    if len(folders) == 1:
        folders = recent_checkpoints(folders[0])[-last:]
    try:
        written = write_average(folders, output, share or ())
    except ValueError as exc:
        raise typer.BadParameter(str(exc)) from exc
    typer.echo(f"{output}: the mean of {', '.join(folder.name for folder in folders)}")
    typer.echo(f"{written.provenance}")


if __name__ == "__main__":
    typer.run(main)
