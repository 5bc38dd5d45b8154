"""Training on a machine without downloads, such as a GPU that is lent for minutes.

    python -m model.training.packed_training pack RECIPE --data-root PREPARED --run RUN \
        --output PIECES
    python -m model.training.packed_training train PIECES --work WORK --output OUT
    python -m model.training.packed_training weights --work WORK --output OUT --first 4
    python -m model.training.packed_training join OUT --output CHECKPOINT

`train` and `weights` run on the other machine. `train` keeps the pieces that it finds in WORK, so
that they may come one by one, and begins when all have come. It ends after some minutes with its
state saved; the same command resumes. OUT gets the mean of the last checkpoints in half precision,
also in pieces; `weights` gives the pieces that did not fit. On a machine that has lost WORK, start
again from the weights: `pack --init`.

Needs torch, numpy, sentencepiece, safetensors, pydantic, rich, typer, tensorboard and sacrebleu.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from pathlib import Path
from typing import Annotated

import typer

from model.data.packed_corpus import (
    MANIFEST_FILE,
    missing_pieces,
    pack,
    piece_name,
    read_pieces,
    unpack,
    write_pieces,
)
from model.data.recipe import load_recipe
from model.data.recipe_sections import Optimization
from model.data.training_data import load_training_data
from model.network.checkpoint import load_checkpoint
from model.training.report import CURVES_FILE, PAGE_FILE
from model.training.training import Trainer

app = typer.Typer(help="Train on a machine that nothing can be fetched from.")
_MIB = 2**20
_SECONDS_BETWEEN_FITS = 10.0
_BEYOND = 1.01

Output = Annotated[Path, typer.Option(help="The folder to write.")]
Work = Annotated[Path, typer.Option(help="A folder that stays on the machine between two calls.")]
First = Annotated[int, typer.Option(help="The first piece of the weights to write.", min=0)]
Count = Annotated[int, typer.Option(help="Number of pieces of the weights to write.", min=1)]


@app.command("pack")
def pack_corpus(
    recipe: Annotated[Path, typer.Argument(help="The recipe.")],
    data_root: Annotated[Path, typer.Option(help="Its corpora.")],
    output: Output,
    run: Annotated[
        Path | None, typer.Option(help="A run of this recipe, whose vocabulary to take.")
    ] = None,
    init: Annotated[Path | None, typer.Option(help="A checkpoint to start from.")] = None,
    piece_mib: Annotated[int, typer.Option(help="Largest size of a piece.", min=1)] = 30,
) -> None:
    """Pack a tokenised corpus into pieces."""
    loaded = load_recipe(recipe, data_root=data_root)
    if run is not None:
        loaded = loaded.model_copy(update={"output": run.resolve()})
    data = load_training_data(loaded)
    count = pack(data, output, piece_bytes=piece_mib * _MIB, init=init)
    typer.echo(f"{output}: {data.num_pairs} pairs in {count} pieces")


@app.command()
def train(
    pieces: Annotated[Path, typer.Argument(help="Pieces of a pack, all or some of them.")],
    work: Work,
    output: Output,
    changes: Annotated[
        Path | None, typer.Option(help="TOML with fields that replace those of the recipe.")
    ] = None,
    minutes: Annotated[float, typer.Option(help="Minutes until it saves and ends.", min=0)] = 8.0,
    fit: Annotated[
        bool, typer.Option(help="End the schedule of the learning rate with these minutes.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    first: First = 0,
    count: Count = 4,
) -> None:
    """Train for some minutes, or go on; then write the weights."""
    began = time.monotonic()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    packed, run = work / "pack", work / "run"
    packed.mkdir(parents=True, exist_ok=True)
    for file in (*pieces.glob("piece-*.xz"), pieces / MANIFEST_FILE):
        if file.is_file():
            shutil.copy(file, packed)
    if missing := missing_pieces(packed):
        typer.echo(f"kept; still missing: {', '.join(missing)}")
        return
    data = unpack(packed, run, changes.read_text(encoding="utf-8") if changes else "")
    trainer = Trainer(data.recipe, data, device=device, threads=1 if device == "cpu" else 0)
    left = max(0.0, 60.0 * minutes - (time.monotonic() - began))
    timer, ended = threading.Timer(left, trainer.request_stop), threading.Event()
    threads: list[threading.Thread] = [timer]
    if fit:
        end = began + 60.0 * minutes
        threads.append(threading.Thread(target=fit_schedule, args=(trainer, end, ended)))
    for thread in threads:
        thread.daemon = True
        thread.start()
    try:
        trainer.run()
        typer.echo("finished")
    except KeyboardInterrupt:  # the state is saved
        typer.echo(f"stopped at update {trainer.progress.update}; the same command resumes")
    finally:
        timer.cancel()
        ended.set()
    _pack_weights(trainer, work)
    _write_weights(work, output, first, count)


def fit_schedule(trainer: Trainer, end: float, stop: threading.Event) -> None:
    """Move the end of a run's schedule to the update that it reaches at `end`, repeatedly.

    Args:
        end: time in seconds of `time.monotonic`.
        stop: event that is set when the run has ended.
    """
    first, began = trainer.progress.update, time.monotonic()
    while not stop.wait(_SECONDS_BETWEEN_FITS) and time.monotonic() < end:
        update, now = trainer.progress.update, time.monotonic()
        if update == first:
            continue
        left = (update - first) / (now - began) * (end - now)
        options = fitted(trainer.recipe.optimization, update + left)
        trainer.recipe = trainer.recipe.model_copy(update={"optimization": options})
        first, began = update, now
    logging.info("the schedule ended at update %d", trainer.recipe.optimization.max_updates)


def fitted(options: Optimization, reached: float) -> Optimization:
    """A schedule for `reached` updates, with the same share of cooldown.

    It ends a little later: a run that comes to its last update validates, which takes time.
    """
    last = 1 + int(_BEYOND * reached)
    cooldown = last * options.cooldown_updates // options.max_updates
    return options.model_copy(update={"max_updates": last, "cooldown_updates": cooldown})


@app.command()
def weights(work: Work, output: Output, first: First = 0, count: Count = 4) -> None:
    """Write pieces of the weights that `train` left in WORK."""
    _write_weights(work, output, first, count)


@app.command()
def join(
    pieces: Annotated[Path, typer.Argument(help="All pieces of the weights, and their manifest.")],
    output: Output,
) -> None:
    """Put the pieces of the weights together to a checkpoint."""
    output.mkdir(parents=True)
    for name, content in read_pieces(pieces).items():
        (output / name).write_bytes(content)
    typer.echo(f"{output}: {load_checkpoint(output).provenance}")


def _pack_weights(trainer: Trainer, work: Path) -> None:
    """Leave the run's weights in pieces."""
    trainer.save_weights(work / "weights")
    files = {file.name: file.read_bytes() for file in sorted((work / "weights").iterdir())}
    shutil.rmtree(work / "pieces", ignore_errors=True)
    write_pieces(files, work / "pieces", piece_bytes=15 * _MIB, preset=0)


def _write_weights(work: Path, output: Path, first: int, count: int) -> None:
    output.mkdir(parents=True, exist_ok=True)
    names = [piece_name(number) for number in range(first, first + count)]
    files = [work / "pieces" / name for name in (MANIFEST_FILE, *names)]
    files += [work / "run" / name for name in (PAGE_FILE, CURVES_FILE)]
    for file in files:
        if file.is_file():
            shutil.copy(file, output)
    total = len(list((work / "pieces").glob("piece-*.xz")))
    typer.echo(f"{output}: pieces {first} to {min(first + count, total) - 1} of {total}")


if __name__ == "__main__":
    app()
