"""`dragoman batch`: files of many rows, through servers or with models in this process."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.exits import describe, ended_by_sigterm, fail, require_runtime
from cli.options import (
    ApiKey,
    CallTimeout,
    SourceLanguage,
    TlsArgument,
    as_json,
    with_call_options,
    with_tls,
)
from cli.output_files import writes

if TYPE_CHECKING:
    from cli.batch.job import Job
    from cli.batch.plan import JobPart
    from cli.batch.run import OnDone


# Packages with errors of their own.
_CLIENTS_OF_BUCKETS = ("aiobotocore", "aiohttp", "botocore", "gcsfs", "google")

# Exit status of a complete job with rows that failed.
_SOME_FAILED = 3


def _with_paths(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `paths`: the files and folders that its other options name."""

    @functools.wraps(command)
    def run(**given: Any) -> Any:
        values = [each if isinstance(each, list) else [each] for each in given.values()]
        paths = [path for each in values for path in each if isinstance(path, Path)]
        return command(**given, paths=paths)

    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.name != "paths"]
    run.__annotations__ = {}  # as in `writes`
    run.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
    return run


@writes("output")
@_with_paths
@with_tls
@with_call_options
def batch(
    source_files: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="A file, a folder, a pattern such as 'texts/*.jsonl', or a URL such as "
            "s3://bucket/folder (extra `batch`).",
        ),
    ],
    output: Annotated[
        str, typer.Option(help="A file; for several inputs a folder, with the same names in it.")
    ],
    column: Annotated[
        list[str] | None,
        typer.Option(help="Column to translate, into NAME_translation; repeatable. Default: text."),
    ] = None,
    format: Annotated[
        str,
        typer.Option(
            help="text, jsonl, csv, tsv or parquet. Default: by the names of the files.",
            show_default=False,
        ),
    ] = "",
    server: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="A server; several share the work. Default: models in this process.",
        ),
    ] = None,
    bundle: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="A model for this process; repeatable. Default: those of this installation.",
        ),
    ] = None,
    ray: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Run on a Ray cluster: auto, local or ray://HOST:PORT (extra `ray`).",
            show_default=False,
        ),
    ] = "",
    actor_cpus: Annotated[
        int, typer.Option(help="CPUs of each model on a Ray cluster.", min=1)
    ] = 2,
    part_rows: Annotated[
        int, typer.Option(help="Rows that are kept together, and done again together.", min=1)
    ] = 8_192,
    restart: Annotated[
        bool,
        typer.Option("--restart", help="Forget earlier runs, and replace what is at OUTPUT."),
    ] = False,
    api_key: ApiKey = "",
    tls: TlsArgument = None,
    source: SourceLanguage = "",
    split_sentences: Annotated[
        bool, typer.Option(help="Split texts into sentences, or translate each in one piece.")
    ] = True,
    mime_type: Annotated[
        str,
        typer.Option(
            metavar="TYPE",
            help="Format of the texts: text/plain, text/html, text/xml or text/markdown.",
        ),
    ] = "",
    timeout: CallTimeout = 300,
    give_up_after: Annotated[
        float, typer.Option(help="Seconds without an answer of any server that end the job.", min=0)
    ] = 300,
    *,
    options: dict[str, Any],
    paths: list[Path],
) -> None:
    """Translate files of many rows: text, JSON Lines, CSV, TSV and Parquet.

    Each row is translated exactly once. After an interruption, the same command resumes with the
    missing parts; OUTPUT.dragoman-job has the others until the job is complete. Files that are not
    this job's are never replaced without --restart, and its inputs never. Equal texts are
    translated once. A row that can't be translated has no translation: OUTPUT.problems.jsonl has
    the reason, and the warnings of other rows. OUTPUT.manifest.json has checksums of all parts. The
    exit status is 3 if the job is complete but rows failed.
    """
    from cli.batch.formats import FORMATS
    from cli.batch.inputs import JobError, find_inputs
    from cli.batch.job import Job
    from cli.batch.pool import ServersAwayError
    from cli.batch.run import JobServers, Work
    from cli.batch.storage import Storage
    from dragoman.client import TranslationError
    from model.bundle.manifest import BundleError
    from service.errors import DragomanError

    if format and format not in FORMATS:
        fail(f"--format: must be one of {', '.join(FORMATS)}, not {format!r}")
    if server and bundle:
        fail("--bundle: with --server, the servers' models translate")
    if not server:
        require_runtime("auto")
    chosen: dict[str, Any] = dict(
        source=source,
        split_sentences=split_sentences,
        **options,
        **({"mime_type": mime_type} if mime_type else {}),
    )
    servers = JobServers(
        tuple(server or ()),
        tuple(bundle or ()),
        client=dict(timeout=timeout, api_key=api_key, tls=tls),
    )
    try:
        with ended_by_sigterm():
            at = Storage.of(output)
            files = find_inputs(source_files, at, format, paths, _tell_skipped)
            is_one = [file.storage.path for file in files] == [Storage.of(source_files).path]
            depends_on = {"models": asyncio.run(servers.models()), **as_json(chosen)}
            columns = tuple(column or ("text",))
            job = Job(files, files[0].output if is_one else at, columns, depends_on, part_rows)
            work = Work(job, servers, chosen, give_up_after)
            translate = work.translate
            if ray:
                from cli.batch.ray_pipeline import Cluster

                translate = Cluster(ray, actor_cpus, work).translate
            with job.locked():
                if restart:
                    job.restart()
                _run(job, translate)
    except TranslationError as exc:
        fail(describe(", ".join(servers.addresses) or "the models", exc))
    except (JobError, ServersAwayError, BundleError, DragomanError) as exc:
        fail(str(exc))
    except ValueError as exc:
        fail(f"INPUT or --output: {exc}")
    except ImportError as exc:
        fail(f"{exc}: pip install '.[batch]' in the folder of Dragoman's source")
    except OSError as exc:
        fail(f"{exc.filename or output}: {exc.strerror or exc}")
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except Exception as exc:
        if type(exc).__module__.split(".")[0] not in _CLIENTS_OF_BUCKETS:
            raise
        fail(f"INPUT or --output: {exc}")


def _tell_skipped(paths: Sequence[str]) -> None:
    num = f"{len(paths):,} file{'s' if len(paths) > 1 else ''}"
    typer.echo(f"skipping {num} by name, such as {paths[0]}", err=True)


def _run(job: Job, translate: Callable[[list[JobPart], OnDone], None]) -> None:
    """Do a job, and say how it ended; fails if rows failed."""
    from cli.progress import stages

    began = time.monotonic()
    num_failed = job.open()
    if num_failed is not None:
        about = f", {num_failed:,} failed ({job.problems.path})" if num_failed else ""
        typer.echo(f"{job.output.path}: is complete already{about}")
        raise typer.Exit(_SOME_FAILED if num_failed else 0)
    with stages("rows") as show:
        missing = job.missing()
        num_left = sum(part.extent.rows for part in missing)
        num_done = job.num_rows - num_left
        if num_done:
            typer.echo(f"going on after {num_done:,} rows", err=True)

        def done(rows: int) -> None:
            nonlocal num_done
            num_done += rows
            show("translating", num_done, job.num_rows)

        if missing:
            translate(missing, done)
    num_failed, num_warned = job.finish()
    seconds = time.monotonic() - began
    parts = [f"{job.output.path}: {job.num_rows:,} rows"]
    if num_left:
        parts.append(f"{num_left / seconds:,.0f} rows/s")
    if num_warned:
        parts.append(f"{num_warned:,} with warnings")
    if num_failed:
        parts.append(f"{num_failed:,} failed")
    where = f" ({job.problems.path})" if num_failed or num_warned else ""
    typer.echo(", ".join(parts) + where)
    if num_failed:
        raise typer.Exit(_SOME_FAILED)
