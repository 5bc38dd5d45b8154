"""`dragoman evaluate`: BLEU and chrF of a bundle or a checkpoint on a test set."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.exits import fail, fail_without
from cli.offline import OfflineOptions, OnProgress, translator_for
from cli.output_files import write_whole, writes

if TYPE_CHECKING:
    from model.evaluation.scoring import Report, Score


@writes("output")
def evaluate(
    model: Annotated[
        Path, typer.Option(help="A bundle, a training's folder, or a checkpoint in it.")
    ],
    source: Annotated[Path, typer.Option(help="Text to translate, one sentence per line, UTF-8.")],
    reference: Annotated[Path, typer.Option(help="Reference translation, line by line.")],
    source_language: Annotated[
        str, typer.Option("--from", metavar="CODE", help="Language of the source, such as en.")
    ] = "",
    target_language: Annotated[
        str, typer.Option("--to", metavar="CODE", help="Language of the reference, such as de.")
    ] = "",
    beam_size: Annotated[
        int | None,
        typer.Option(help="Hypotheses per sentence; 1 is greedy. Default: the bundle's.", min=1),
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(
            help="Alpha: the scores of a beam are divided by length^alpha. Default: the bundle's."
        ),
    ] = None,
    lowercase: Annotated[
        bool, typer.Option(help="Lower-case the source, and ignore case in the comparison.")
    ] = False,
    moses: Annotated[
        bool,
        typer.Option(
            help="Add lower-cased, Moses-tokenised BLEU, for comparison with older papers."
        ),
    ] = False,
    output: Annotated[Path | None, typer.Option(help="Also write the translations here.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    batch_tokens: Annotated[
        int, typer.Option(help="Source tokens in a batch (checkpoints).", min=1)
    ] = 4096,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Annotated[
        int,
        typer.Option(
            help="CPU threads; 0 uses all cores for a bundle, and measures for a checkpoint.",
            min=0,
        ),
    ] = 0,
) -> None:
    """Translate a test set and print sacreBLEU and chrF with their signatures.

    Each line is translated as one sentence. A bundle runs in the engine that serves it. --from and
    --to may be left out if the model has only one choice.
    """
    from model.data.corpus import CorpusError

    try:
        from model.evaluation.scoring import TestSet, score_translations
    except ModuleNotFoundError as exc:
        fail_without(str(exc.name), "evaluate")

    if moses and importlib.util.find_spec("sacremoses") is None:
        fail_without("--moses: sacremoses", "train")
    if output is not None and not output.parent.is_dir():
        fail(f"--output: there is no directory {output.parent}")
    options = OfflineOptions(
        beam_size,
        length_penalty,
        batch_tokens,
        device,
        threads,
        source=source_language,
        target=target_language,
    )
    translate = translator_for(model, options)
    try:
        test_set = TestSet.read(source, reference)
    except CorpusError as exc:
        fail(str(exc))
    sources = [text.lower() for text in test_set.sources] if lowercase else test_set.sources
    start = time.perf_counter()
    with _progress(len(sources)) as on_progress:
        translated = translate(model, sources, options, on_progress)
    seconds = time.perf_counter() - start
    if translated.num_cut:
        typer.echo(
            f"warning: {translated.num_cut} of {len(sources)} sentences are too long for the model "
            f"and were cut off",
            err=True,
        )
    if output is not None:
        lines = (" ".join(text.splitlines()) for text in translated.sentences)
        try:
            write_whole(output, (f"{line}\n".encode() for line in lines))
        except OSError as exc:
            fail(f"--output: {output}: {exc.strerror or exc}")
    report = score_translations(
        translated.sentences,
        test_set.references,
        lowercase=lowercase,
        moses_language=translated.target_language if moses else None,
    )
    facts = {
        "model": str(model),
        "kind": translated.kind,
        "beam_size": translated.beam_size,
        "num_cut": translated.num_cut,
    }
    if json_output:
        import json

        typer.echo(json.dumps({**facts, "seconds": round(seconds, 3), **report.to_dict()}))
    else:
        _print(facts, seconds, report)


@contextmanager
def _progress(total: int) -> Iterator[OnProgress]:
    """A bar on standard error if that is a terminal; yields the function that advances it."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("translating", total=total)
        yield lambda count: progress.advance(task, count)


def _print(facts: dict[str, Any], seconds: float, report: Report) -> None:
    search = "greedy" if facts["beam_size"] == 1 else f"beam {facts['beam_size']}"
    typer.echo(
        f"{facts['kind']} {facts['model']}, {search}: "
        f"{report.num_sentences} sentences in {seconds:.1f} s"
    )
    lines: list[tuple[str, Score | None]] = [
        ("BLEU", report.bleu),
        ("chrF2", report.chrf),
        ("BLEU (Moses)", report.moses_bleu),
    ]
    for name, score in lines:
        if score is not None:
            typer.echo(f"{name:<12} {score.score:6.2f}  {score.signature}")
