"""`dragoman export`: from a checkpoint to a bundle that can be served."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import fail, fail_without

if TYPE_CHECKING:
    from export.proof import Proof


def export(
    checkpoint: Annotated[Path, typer.Argument(help="What training left behind (a directory).")],
    output: Annotated[Path, typer.Option(help="The bundle to write (a directory).")],
    precision: Annotated[
        str,
        typer.Option(help="fp32 or int8 for processors, fp16 for GPUs."),
    ] = "fp32",
    name: Annotated[
        str | None, typer.Option(help="The model's name in requests.", show_default="en-de, say")
    ] = None,
    model_version: Annotated[str, typer.Option(help="Its version, for you to choose.")] = "1",
    top_k: Annotated[
        int,
        typer.Option(
            help="Best tokens that a step returns by default; a beam needs twice its size.",
            min=1,
        ),
    ] = 8,
    model_card: Annotated[
        Path | None, typer.Option(help="A text to put into the bundle as MODEL_CARD.md.")
    ] = None,
    alignment_layer: Annotated[
        int | None,
        typer.Option(
            help="The decoder layer, from 0, whose attention is the alignment.",
            show_default="the last but one; of fewer than three the last",
        ),
    ] = None,
    sentences: Annotated[
        Path | None,
        typer.Option(
            help="Source sentences, one a line, on which the bundle has to translate like the "
            "checkpoint; some English ones are built in."
        ),
    ] = None,
) -> None:
    """Make a bundle of a checkpoint, and prove that it translates like it.

    Writes nothing unless the proof succeeds. The same checkpoint gives the same bytes.
    """
    try:
        from export.bundle_writer import ExportOptions
        from export.errors import ExportError
        from export.exporter import export_checkpoint
        from model.checkpoint import CheckpointError
        from model.tokenizer import TokenizerError
    except ModuleNotFoundError as exc:
        fail_without(str(exc.name), "train,cpu")

    options = ExportOptions(
        precision, name, model_version, top_k, model_card, alignment_layer=alignment_layer
    )
    try:
        lines = None if sentences is None else _read_lines(sentences)
        proof = export_checkpoint(checkpoint, output, options, lines)
    except (ExportError, CheckpointError, TokenizerError) as exc:
        fail(str(exc))
    except OSError as exc:
        fail(f"{exc.filename}: {exc.strerror}")
    typer.echo(f"{output}: {precision}; {_describe(proof)}")


def _describe(proof: Proof) -> str:
    same = f"{proof.num_identical} of {proof.num_sentences}"
    others = ""
    if proof.num_identical == proof.num_sentences:
        same = f"all {proof.num_sentences}"
    else:
        others = f", the others but for tokens that it holds for equal within {proof.tie:g} nats"
    return (
        f"{same} sentences are translated token by token as by the checkpoint{others}; over "
        f"{proof.num_tokens} tokens log-probabilities differ by {proof.mean_difference:.2g} on "
        f"average and {proof.largest_difference:.2g} at most"
    )


def _read_lines(file: Path) -> list[str]:
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except UnicodeDecodeError:
        fail(f"{file} is not UTF-8")
    lines = [line for line in lines if line]
    return lines or fail(f"{file} holds no sentence")
