"""Packs a training run into a small archive, to resume it on another machine.

    python -m model.training.run_archive pack runs/en-de-compact --output FOLDER
    python -m model.training.run_archive unpack FOLDER --output runs/en-de-compact
    dragoman train model/recipes/en-de-compact.toml --data-root PREPARED

The archive holds the vocabulary, the weights in half precision, the position in the text and the
state of everything random. Of the optimizer it keeps AdamW's second moments alone, a matrix of them
as the means of its rows and columns (Shazeer and Stern, 2018, "Adafactor", section 3). Averaged
gradients begin at zero again, so that the first updates are small. So the final weights differ from
those of an uninterrupted run, unlike those of a run that resumes from its own folder. Corpora are
not in it: the other machine prepares them by the same recipe, and `dragoman train` compares them.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from model.bundle.tokenizer import TOKENIZER_FILE
from model.data.packed_corpus import PackError, read_pieces, write_pieces
from model.data.recipe import STATE_FILE
from model.data.vocabulary import SOURCE_FILE

app = typer.Typer(no_args_is_help=True, add_completion=False)
_SECOND, _FIRST = "exp_avg_sq", "exp_avg"  # AdamW's moments, as PyTorch calls them
_ROWS, _COLUMNS = "row_means", "column_means"


@app.command()
def pack(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    output: Annotated[Path, typer.Option(help="The folder of the archive.")],
    piece_mib: Annotated[int, typer.Option(help="Largest size of a piece.", min=1)] = 30,
) -> None:
    """Pack the last saved state of a run."""
    try:
        state = torch.load(run / STATE_FILE, map_location="cpu", weights_only=True)
        names = (TOKENIZER_FILE, SOURCE_FILE)
        files = {name: (run / name).read_bytes() for name in names if (run / name).exists()}
    except OSError as exc:
        raise typer.BadParameter(f"{exc.filename}: {exc.strerror}", param_hint="RUN") from exc
    parts = state["optimizer"]
    parts = [parts] if isinstance(parts, dict) else parts  # an older version's
    small = {
        **state,
        "model": halved(state["model"]),
        "optimizer": [reduced(part) for part in parts],
    }
    content = io.BytesIO()
    torch.save(small, content)
    write_pieces({STATE_FILE: content.getvalue(), **files}, output, piece_bytes=piece_mib << 20)
    size = sum(file.stat().st_size for file in output.iterdir())
    typer.echo(f"{output}: update {state['progress']['update']}, {size / 1e6:.1f} MB")


@app.command()
def unpack(
    archive: Annotated[Path, typer.Argument(help="The folder of an archive.")],
    output: Annotated[Path, typer.Option(help="The folder of the run, which has no state yet.")],
) -> None:
    """Unpack an archive to a run that `dragoman train` goes on with."""
    if (output / STATE_FILE).exists():
        raise typer.BadParameter(f"{output} has a state already", param_hint="--output")
    try:
        files = read_pieces(archive)
    except PackError as exc:
        raise typer.BadParameter(str(exc), param_hint="ARCHIVE") from exc
    state = torch.load(io.BytesIO(files.pop(STATE_FILE)), map_location="cpu", weights_only=True)
    state["model"] = {name: _widened(tensor) for name, tensor in state["model"].items()}
    state["optimizer"] = [restored(part) for part in state["optimizer"]]
    output.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (output / name).write_bytes(content)
    torch.save(state, output / STATE_FILE)
    typer.echo(f"{output}: update {state['progress']['update']}")


def halved(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights in half precision; tied weights stay tied."""
    half: dict[int, Tensor] = {}
    return {
        name: half.setdefault(weight.data_ptr(), weight.half())
        if weight.is_floating_point()
        else weight
        for name, weight in weights.items()
    }


def reduced(part: dict[str, Any]) -> dict[str, Any]:
    """The state of an optimizer without averaged gradients, and with second moments as means."""
    weights = {}
    for index, moments in part["state"].items():
        second = moments.get(_SECOND)
        if second is None:  # Muon: the average of gradients is all that it has
            continue
        kept = {"step": moments["step"]}
        if second.ndim == 2:
            kept |= {_ROWS: second.mean(1), _COLUMNS: second.mean(0)}
        else:
            kept[_SECOND] = second
        weights[index] = kept
    return {**part, "state": weights}


def restored(part: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `reduced`, as far as possible: moments from means, averages of 0."""
    weights = {}
    for index, kept in part["state"].items():
        second = kept.get(_SECOND)
        if second is None:
            rows, columns = kept[_ROWS], kept[_COLUMNS]
            # Both have the same mean, that of all; it is 0 where no gradient ever came.
            second = torch.outer(rows, columns) / rows.mean().clamp(min=1e-30)
        moments = {_FIRST: torch.zeros_like(second), _SECOND: second}
        weights[index] = {"step": kept["step"], **moments}
    return {**part, "state": weights}


def _widened(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


if __name__ == "__main__":
    app()
