"""`dragoman import`: makes a bundle of a model that others trained."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.exits import ended_by_sigterm, fail, fail_without
from cli.export import describe, describe_agreement, read_lines
from cli.options import (
    SHORTLIST_HELP,
    BundleName,
    BundleVersion,
    CarrierSentences,
    Precision,
    ProofSentences,
    Threads,
    TopK,
)
from cli.progress import log_to_standard_error, stages
from model.bundle.out_of_memory import is_out_of_memory

if TYPE_CHECKING:
    from export.importer import Imported


def import_model(
    source: Annotated[
        list[str],
        typer.Argument(
            help="A model's directory, its files, or its name on the Hugging Face hub "
            "(Helsinki-NLP/opus-mt-en-de)."
        ),
    ],
    output: Annotated[Path, typer.Option(help="The bundle to write (a directory).")],
    precision: Precision = "int8",
    languages: Annotated[
        str | None,
        typer.Option(
            help="BCP-47 codes: a source and a target (en,de), or three languages or more "
            "(en,de,fr), between which the model translates.",
            show_default="all that the model has",
        ),
    ] = None,
    name: BundleName = None,
    model_version: BundleVersion = "1",
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit of a model on the hub.")
    ] = None,
    top_k: TopK = 8,
    sentences: Annotated[
        Path | None,
        typer.Option(
            help="Source sentences, one a line, on which the bundle has to translate like the "
            "model, and on which 8-bit caches are measured; some English ones are built in."
        ),
    ] = None,
    proof_sentences: ProofSentences = None,
    shortlist_from: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help=SHORTLIST_HELP, show_default="the model's own, if it has one"),
    ] = None,
    carrier_sentences: CarrierSentences = 200,
    threads: Threads = 0,
) -> None:
    """Make a bundle of a Hugging Face or Marian model, and prove that it translates like it.

    MarianMT (OPUS-MT), M2M-100, NLLB-200 (dense), mBART-50 and BART, a native Marian .npz with its
    decoder.yml, or a translation model of Firefox, from their files as they were downloaded. A
    multilingual model keeps all its directions, unless --languages chooses some. Writes nothing
    unless the proof succeeds. Where transformers or fxtranslate is installed, whichever reads the
    model's files, the proof includes a comparison with it.
    """
    try:
        from export.bundle_writer import ExportOptions
        from export.gathered_files import located
        from export.importer import import_directory
    except ModuleNotFoundError as exc:
        fail_without(str(exc.name), "train,cpu")

    options = ExportOptions(precision, name, model_version, top_k)
    with plain_errors(output, shlex.join(source)):
        lines = None if sentences is None else read_lines(sentences)
        log_to_standard_error("%(message)s")
        with located(source, revision) as (directory, origin), stages("sentences") as show:
            imported = import_directory(
                directory,
                output,
                options,
                _codes(languages),
                lines,
                num_sentences=proof_sentences,
                num_carrier_sentences=carrier_sentences,
                threads=threads,
                on_progress=show,
                origin=origin,
                shortlist_from=shortlist_from,
            )
    directions = imported.directions
    known = " to ".join(directions.first) if directions.is_one else f"{directions.count} directions"
    typer.echo(f"{output}: {imported.name}; {precision}; {known}; {_searched(imported.search)}")
    report_proof(imported)
    typer.echo(f"Serve it: dragoman serve --model {shlex.quote(str(output))}")


@contextlib.contextmanager
def plain_errors(output: Path, source: str = "the model") -> Iterator[None]:
    """End an import with one line for what can go wrong, SIGTERM among it."""
    from export.errors import ExportError

    try:
        with ended_by_sigterm():
            yield
    except ExportError as exc:
        fail(str(exc))
    except ModuleNotFoundError as exc:
        fail_without(str(exc.name), "train,cpu,import")
    except OSError as exc:
        fail(f"{exc.filename or output}: {exc.strerror or exc}")
    except (MemoryError, RuntimeError) as exc:
        if not is_out_of_memory(exc):
            raise
        fail(f"there is too little memory to import {source}: three times the weights are needed")


def report_proof(imported: Imported) -> None:
    """Say how well a bundle translates like the model that it was made of."""
    if imported.proof is None:
        typer.echo("- not proven: nothing shows that it translates like the model")
    else:
        typer.echo(f"- {describe_agreement(imported.agreement, imported.reference)}")
        typer.echo(f"- {describe(imported.proof)}")


def _searched(search: Mapping[str, Any]) -> str:
    """The default search in words."""
    beam_size = search["beam_size"]
    if beam_size == 1:
        return "greedy search"
    return f"a beam of {beam_size}: {beam_size} rows for each sentence (with --beam-size 1, one)"


def _codes(languages: str | None) -> list[str] | None:
    if languages is None:
        return None
    codes = [code.strip() for code in languages.split(",")]
    if len(codes) < 2 or not all(codes):
        fail(
            f"--languages has to name two languages, source first (en,de), or more (en,de,fr), not "
            f"{languages!r}"
        )
    return codes
