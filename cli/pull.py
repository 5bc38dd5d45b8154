"""`dragoman pull`: downloads models for pairs of languages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import fail
from cli.import_model import plain_errors, report_proof
from cli.options import Precision, ProofSentences, Threads
from cli.progress import log_to_standard_error, stages
from cli.stored_models import ModelsDirectory, ModelsUrl, models_store, store_command

if TYPE_CHECKING:
    from export.store.mirror import Mirror
    from export.store.model_store import ModelStore
    from export.store.pull import Pulled, PullOptions
    from export.store.registry import PublishedModel

    Job = Callable[[ModelStore, PullOptions], Pulled]

_MEGABYTE = 10**6


def pull(
    pairs: Annotated[
        list[str] | None,
        typer.Argument(help="Pairs of languages (en-de ja-en); of --list, languages."),
    ] = None,
    list_models: Annotated[
        bool, typer.Option("--list", help="List the published models, of some languages or of all.")
    ] = False,
    all_of: Annotated[
        str | None,
        typer.Option("--all", metavar="LANG", help="All pairs from and into this language."),
    ] = None,
    wanted_type: Annotated[
        str | None,
        typer.Option(
            "--type",
            metavar="tiny|base-memory|base",
            help="The kind of model; tiny ones are the fastest.",
            show_default="the one that Firefox has",
        ),
    ] = None,
    publisher: Annotated[
        str,
        typer.Option(
            "--from", metavar="mozilla|opus", help="Who publishes them; opus is OPUS-MT, on a hub."
        ),
    ] = "mozilla",
    models_dir: ModelsDirectory = None,
    models_url: ModelsUrl = "",
    precision: Precision = "int8",
    proof_sentences: ProofSentences = None,
    threads: Threads = 0,
) -> None:
    """Download models, prove that they translate as published, and keep them for `dragoman serve`.

    By default, the models are Firefox's, from Mozilla's bucket. A model that is here already is
    downloaded again only if a newer one is published, or if it is damaged. Interrupted downloads
    resume where they stopped.
    """
    if publisher not in ("mozilla", "opus"):
        fail(f"--from: must be mozilla or opus, not {publisher!r}", 2)
    if publisher == "opus" and (list_models or all_of or wanted_type or models_url):
        fail("--from opus takes pairs only: no --list, --all, --type or --models-url", 2)
    if not (pairs or list_models or all_of):
        fail("name a pair of languages (dragoman pull en-de), or list the models (--list)", 2)
    store = models_store(models_dir)
    log_to_standard_error("%(message)s")
    if list_models:
        _list(models_url, pairs or [], wanted_type, store)
        return
    with plain_errors(store.directory):
        if publisher == "opus":
            jobs = _opus_jobs(pairs or [])
        else:
            jobs = _mozilla_jobs(models_url, pairs or [], all_of, wanted_type)
        from export.store.pull import PullOptions  # imports torch, which takes seconds

        options = PullOptions(precision, proof_sentences, threads)
    failed = False
    for job in jobs:
        try:
            with plain_errors(store.directory):
                _report(job(store, options), precision, models_dir)
        except typer.Exit:
            failed = True  # the others are pulled nevertheless
    if failed:
        raise typer.Exit(1)


def _mozilla_jobs(
    models_url: str, pairs: Sequence[str], all_of: str | None, wanted_type: str | None
) -> list[Job]:
    """Choose the models of the list before any of them is downloaded."""
    from export.store.registry import choose, choose_all, fetch_registry

    mirror = _mirror(models_url)
    published = fetch_registry(mirror)
    models = {model.pair: model for model in (choose(published, p, wanted_type) for p in pairs)}
    if all_of is not None:
        models |= {model.pair: model for model in choose_all(published, all_of, wanted_type)}

    def job(model: PublishedModel) -> Job:
        from export.store.pull import pull_published

        return lambda store, options: pull_published(model, mirror, store, options, stages)

    return list(map(job, models.values()))


def _opus_jobs(pairs: Sequence[str]) -> list[Job]:
    from export.store.pairs import pair_key

    def job(pair: str) -> Job:
        from export.huggingface.hub import locate
        from export.store.pull import pull_hub

        pair_key(pair)
        return lambda store, options: pull_hub(pair, locate, store, options, stages)

    return list(map(job, pairs))


def _report(pulled: Pulled, precision: str, models_dir: Path | None) -> None:
    imported = pulled.imported
    if imported is None:
        typer.echo(f"{pulled.pair}: here already, and the newest ({pulled.bundle})")
        return
    typer.echo(f"{pulled.pair}: {pulled.bundle}; {precision}")
    report_proof(imported)
    typer.echo(f"Serve it: {store_command('serve', [pulled.pair], models_dir)}")


def _list(
    models_url: str, languages: Sequence[str], wanted_type: str | None, store: ModelStore
) -> None:
    """Print the published models that translate from or into some languages."""
    from rich.console import Console
    from rich.table import Table

    from export.store.pairs import language_code
    from export.store.registry import fetch_registry

    with plain_errors(store.directory):
        published = fetch_registry(_mirror(models_url))
        here = {path.name for path in store.bundles()}
    wanted = {language_code(language) for language in languages}
    table = Table("pair", "type", "release", "size", "COMET", "here", box=None)
    for model in published:
        if wanted and not wanted & {model.source, model.target}:
            continue
        if wanted_type in (None, model.architecture):
            comet = model.scores.get("comet22")
            table.add_row(
                *(model.pair, model.architecture, model.release or "not released"),
                f"{(model.model.size or 0) / _MEGABYTE:.0f} MB",
                "" if comet is None else f"{comet:.3f}",
                "yes" if model.pair in here else "",
            )
    Console().print(table)


def _mirror(models_url: str) -> Mirror:
    from export.store.mirror import mirror_of
    from export.store.registry import MOZILLA_URL

    return mirror_of(models_url or MOZILLA_URL)
