"""`dragoman export`: makes a bundle, which can be served, from a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import ended_by_sigterm, fail, fail_without
from cli.options import (
    SHORTLIST_HELP,
    BundleName,
    BundleVersion,
    CarrierSentences,
    Precision,
    Threads,
    TopK,
)
from cli.progress import log_to_standard_error, stages

if TYPE_CHECKING:
    from export.parity import ParityReport


def export(
    checkpoint: Annotated[Path, typer.Argument(help="A training's folder, or a checkpoint in it.")],
    output: Annotated[Path, typer.Option(help="The bundle to write (a directory).")],
    precision: Precision = "fp32",
    output_format: Annotated[
        str,
        typer.Option(
            "--format",
            help="bundle, which is served; marian, files for Firefox and other engines of its "
            "models; or huggingface, a directory for transformers. Of the options below, marian "
            "has --precision, --sentences and --shortlist-from, huggingface none.",
        ),
    ] = "bundle",
    name: BundleName = None,
    model_version: BundleVersion = "1",
    top_k: TopK = 8,
    model_card: Annotated[
        Path | None, typer.Option(help="File to use as the bundle's MODEL_CARD.md.")
    ] = None,
    alignment_layer: Annotated[
        int | None,
        typer.Option(
            help="Decoder layer, from 0, that gives the alignments.",
            show_default="the last but one; of fewer than three the last",
        ),
    ] = None,
    sentences: Annotated[
        Path | None,
        typer.Option(
            help="Source sentences, one per line, that the bundle has to translate like the "
            "checkpoint, and on which 8-bit caches are measured. Default: built-in English ones."
        ),
    ] = None,
    shortlist_from: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            help=SHORTLIST_HELP,
            show_default="the training's, of a recurrent decoder",
        ),
    ] = None,
    carrier_sentences: CarrierSentences = 200,
    threads: Threads = 0,
) -> None:
    """Make a bundle of a checkpoint, and check that both translate alike.

    Writes nothing unless the check succeeds. The same checkpoint and sentences give the same bytes.
    """
    try:
        from export.bundle_writer import ExportOptions
        from export.errors import ExportError
        from export.exporter import export_checkpoint
        from export.huggingface.writer import write_huggingface
        from export.parity import SENTENCES
        from export.students.writer import write_student
        from model.bundle.tokenizer import TokenizerError
        from model.network.checkpoint import CheckpointError
    except ModuleNotFoundError as exc:
        fail_without(str(exc.name), "train,cpu")

    if output_format not in ("bundle", "marian", "huggingface"):
        fail(f"--format must be bundle, marian or huggingface, not {output_format!r}")
    options = ExportOptions(
        precision, name, model_version, top_k, model_card, alignment_layer=alignment_layer
    )
    try:
        lines = None if sentences is None else read_lines(sentences)
        if output_format == "huggingface":
            with ended_by_sigterm():
                agreement = write_huggingface(checkpoint, output)
            typer.echo(f"{output}: {describe_agreement(agreement)}")
            return
        if output_format == "marian":
            with ended_by_sigterm():
                agreed = write_student(
                    checkpoint, output, precision, lines or SENTENCES, shortlist_from
                )
            typer.echo(f"{output}: {precision}; {describe_agreement(agreed, 'fxtranslate')}")
            return
        log_to_standard_error("%(message)s")
        with ended_by_sigterm(), stages("sentences") as show:
            proof = export_checkpoint(
                checkpoint,
                output,
                options,
                lines,
                num_carrier_sentences=carrier_sentences,
                threads=threads,
                on_progress=show,
                shortlist_from=shortlist_from,
            )
    except (ExportError, CheckpointError, TokenizerError) as exc:
        fail(str(exc))
    except OSError as exc:
        fail(f"{exc.filename or output}: {exc.strerror}")
    typer.echo(f"{output}: {precision}; {describe(proof)}")


def describe_agreement(agreement: object | None, engine: str = "transformers") -> str:
    """The agreement of a network with that of another engine, in words."""
    return f"not compared with {engine}" if agreement is None else str(agreement)


def describe(proof: ParityReport) -> str:
    """The outcome of a proof, in words."""
    total = proof.num_sentences
    if proof.num_identical == total:
        same = f"all {total} sentences are translated token by token as by the checkpoint"
    else:
        from export.parity_check import share_bounds

        least, most = share_bounds(proof.num_identical, total)
        same = (
            f"{proof.num_identical} of {total} sentences are translated token by token as by the "
            f"checkpoint (of all texts like these, {least:.0%} to {most:.0%}); of the others "
            f"{proof.num_ties} begin to differ where it holds its two best tokens for equal within "
            f"{proof.noise:g} nats, as it does at {proof.num_unsure / proof.num_tokens:.0%} of all "
            f"positions"
        )
        if proof.num_disagreeing:
            same += f", and {proof.num_disagreeing} differ by more than one sentence should"
    return (
        f"{same}; over {proof.num_tokens} tokens log-probabilities differ by "
        f"{proof.mean_difference:.2g} on average and {proof.largest_difference:.2g} at most"
        + (f"; {proof.listed}" if proof.listed else "")
    )


def read_lines(file: Path) -> list[str]:
    """The lines of a text file that aren't blank; ends the command where there are none."""
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except UnicodeDecodeError:
        fail(f"{file} is not UTF-8")
    lines = [line for line in lines if line]
    return lines or fail(f"{file} has no sentence")
