"""`dragoman translate-file`: a document, through a server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.exits import describe, ended_by_sigterm, fail
from cli.options import CallTimeout, ServerAccess, as_json, with_call_options, with_server
from cli.output_files import write_whole, writes
from cli.shown_warnings import show_warnings

if TYPE_CHECKING:
    from cli.progress import ShowStage
    from cli.segment_cache import SegmentCache
    from dragoman.client import AsyncClient, TranslationWarning
    from service.documents.document import Document, DocumentSegment

_CALLS_IN_FLIGHT = 4
_WARNINGS_SHOWN = 20
# By which the language is detected.
_SAMPLE_SEGMENTS, _SAMPLE_CHARACTERS = 100, 4000


@writes("output")
@with_server
@with_call_options
def translate_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The document.")],
    output: Annotated[
        Path | None,
        typer.Option(
            help="The translated document. Default: FILE with the language in its name, if there "
            "is none yet."
        ),
    ] = None,
    source: Annotated[
        str,
        typer.Option("--from", metavar="CODE", help="Language of the document; auto detects it."),
    ] = "",
    timeout: CallTimeout = 300,
    *,
    server: ServerAccess,
    options: dict[str, Any],
) -> None:
    """Translate a document, and keep its structure.

    Formats: .txt, .html, .md, .srt, .po, .xliff, .docx and .odt. It is read and written here, so
    that it may be larger than a server accepts. After an interruption, the same command resumes
    where it stopped: translations are kept in a file beside the output until it is complete. A
    document that is there already is replaced only if --output names it.
    """
    from cli.segment_cache import SegmentCache
    from dragoman.client import TranslationError

    if file.is_dir():
        fail(f"{file}: is a directory")
    target = options["target"]
    document = _read(file, target)
    is_chosen = output is not None
    output = output or _default_output(file, target)
    if output.suffix.lower() != file.suffix.lower():
        fail(f"--output: must end in {file.suffix}: the format stays")
    warnings: list[TranslationWarning] = []

    def save(translations: list[str]) -> list[str]:
        if not is_chosen:
            _check_absent(output)
        write_whole(output, [document.write(translations)])
        return translations

    async def run() -> list[str]:
        async with server.async_client(timeout) as client:
            models = [(each.name, each.version) for each in await client.list_models()]
            arguments = {"source": source, **options}
            if source.lower() == "auto":
                arguments["source"] = await _detected(document.segments, target, client)
                if arguments["source"] == target:
                    return save([segment.text for segment in document.segments])
            depends_on = {"models": models, **as_json(arguments)}
            with SegmentCache(output, depends_on) as cache:
                if cache.num_found:
                    typer.echo(f"going on after {cache.num_found:,} parts", err=True)
                translations = await _translated(
                    document.segments, client, cache, arguments, warnings
                )
                save(translations)
                cache.remove()
            return translations

    try:
        with ended_by_sigterm():
            translations = asyncio.run(run())
    except TranslationError as exc:
        fail(describe(server.address, exc))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except OSError as exc:
        fail(f"{exc.filename or output}: {exc.strerror or exc}")
    show_warnings(warnings, _WARNINGS_SHOWN)
    about = f", {len(warnings):,} warnings" if warnings else ""
    typer.echo(f"{output}: {len(translations):,} parts{about}")


def _default_output(file: Path, target: str) -> Path:
    """The document's name with the language in it, if there is no such file yet."""
    try:
        output = file.with_name(f"{file.stem}.{target or 'translated'}{file.suffix}")
    except ValueError:
        fail(f"--to: {target!r} is no language code")
    _check_absent(output)
    return output


def _check_absent(output: Path) -> None:
    if os.path.lexists(output):
        fail(f"{output} is there already: to replace it, name it with --output")


async def _detected(segments: Sequence[DocumentSegment], target: str, client: AsyncClient) -> str:
    """The language of a document, by its beginning: short parts alone would be guesses.

    "auto" if there is nothing to see it by; `target` if it is that language.
    """
    from model.bundle.languages import Language

    texts = [segment.text for segment in segments if any(map(str.isalpha, segment.text))]
    if not texts:
        return "auto"
    sample = "\n".join(texts[:_SAMPLE_SEGMENTS])
    [languages] = await client.detect([sample[:_SAMPLE_CHARACTERS]])
    if not languages:
        return "auto"
    language = languages[0]
    if Language.parse(language.language).code == Language.parse(target).code:
        return target
    if not language.is_served:
        fail(f"--from: the language seems to be {language.language}, which is not translated")
    return language.language


def _read(file: Path, target: str) -> Document:
    from service.documents.document import DocumentLimits, set_language
    from service.documents.formats import read_document
    from service.errors import InvalidArgumentError

    limits = DocumentLimits()
    try:
        if (size := file.stat().st_size) > limits.max_bytes:
            fail(f"{file}: {size:,} bytes, the limit is {limits.max_bytes:,}")
        document = read_document(file.name, file.read_bytes(), limits)
        set_language(document, target)
    except InvalidArgumentError as exc:
        fail(f"{file}: {exc.description}")
    except OSError as exc:
        fail(f"{file}: {exc.strerror or exc}")
    return document


async def _translated(
    segments: Sequence[DocumentSegment],
    client: AsyncClient,
    cache: SegmentCache,
    arguments: dict[str, Any],
    warnings: list[TranslationWarning],
) -> list[str]:
    """The translation of each segment, from the cache or the server, and the server's warnings.

    Raises:
        TranslationError: a call failed, or a part of the document.
    """
    from cli.progress import stages
    from service.documents.text_batches import batches

    found = {
        segment: kept
        for segment in dict.fromkeys(segments)
        if (kept := cache.get(segment.text, segment.mime_type.value)) is not None
    }
    missing = [segment for segment in segments if segment not in found]
    in_flight = asyncio.Semaphore(_CALLS_IN_FLIGHT)
    num_different = len(set(segments))

    async def translate(batch: list[DocumentSegment], show: ShowStage) -> None:
        async with in_flight:
            texts = [segment.text for segment in batch]
            answer = await client.translate(texts, mime_type=batch[0].mime_type.value, **arguments)
        for segment, translation in zip(batch, answer.translations, strict=True):
            if translation.error is not None:
                raise translation.error
            found[segment] = translation.text
            warnings.extend(translation.warnings)
            cache.add(segment.text, segment.mime_type.value, translation.text)
        cache.flush()
        show("translating", len(found), num_different)

    with stages("parts") as show:
        tasks = [asyncio.create_task(translate(batch, show)) for batch in batches(missing)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return [found[segment] for segment in segments]
