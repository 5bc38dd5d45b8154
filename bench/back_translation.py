"""Back-translation: makes training text by translating text of the target language back.

    python -m bench.back_translation novels.txt.gz --model model/optional/de-en --output RAW

FILE holds one sentence a line, plain or gzip. Of novels.txt.gz, the corpus RAW/back-novels is
made: `train.de` has the sentences, `train.en` their translations (Sennrich et al., 2016, "Improving
Neural Machine Translation Models with Monolingual Data"). Each translation begins with a tag, so
that a network can tell a machine's text from a person's (Caswell et al., 2019, "Tagged
Back-Translation"). Pairs of low confidence are left out.

With `--distill`, sentences of the source language become sources, and their translations targets
without a tag, in RAW/distilled-NAME: what a small network learns more easily than people's
translations (Kim and Rush, 2016, "Sequence-Level Knowledge Distillation").

All translations are kept in `translations.tsv`, with confidence and sentence. The same command goes
on after the last one, and another threshold or tag needs no new translation. Pairs that lost a
sentinel are left out, too.
"""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from bench.sentence_translator import sentence_translator
from model.bundle.bundle import Bundle
from model.bundle.manifest import BundleError
from model.bundle.tokenizer import MAX_SENTINELS, sentinel
from service.domain.requests import SearchOptions
from service.translation.options import TranslateOptions
from service.translation.results import TextResult
from service.translation.translator import Translator

TRANSLATIONS_FILE = "translations.tsv"
# One character, which SentencePiece can make a piece of; it divides "<BT>" into scripts.
TAG = "⁂"
_SENTINEL = re.compile(f"[{sentinel(1)}-{sentinel(MAX_SENTINELS)}]")
_BATCH = 500

Translate = Callable[[Sequence[str]], Awaitable[Sequence[TextResult]]]


def main(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Sentences.")],
    model: Annotated[Path, typer.Option(help="The bundle that translates.")],
    output: Annotated[Path, typer.Option(help="Folder of the corpora.")],
    sentences: Annotated[
        int | None, typer.Option(min=1, help="The first ones of each file; default: all.")
    ] = None,
    least_confidence: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Least confidence of the pairs that are kept.")
    ] = 0.4,
    tag: Annotated[str, typer.Option(help="Tag before each translation.")] = TAG,
    distill: Annotated[
        bool, typer.Option(help="Make targets, not sources, of the translations.")
    ] = False,
    beam_size: Annotated[int, typer.Option(min=1, help="Beam size.")] = 1,
) -> None:
    """Translate files, and write the pairs as corpora."""
    try:
        bundle = Bundle.load(model)
        if bundle.calibration() is None:
            raise typer.BadParameter(
                f"{model} has no calibration; python -m bench.calibration makes one",
                param_hint="--model",
            )
    except BundleError as exc:
        raise typer.BadParameter(str(exc), param_hint="--model") from exc
    folders = [corpus_folder(output, file, "distilled" if distill else "back") for file in files]
    asyncio.run(_translate_files(files, folders, bundle, sentences, beam_size))
    for folder in folders:
        kept, total = write_corpus(
            folder,
            languages=(bundle.target_language, bundle.source_language),
            least_confidence=least_confidence,
            tag="" if distill else tag,
        )
        typer.echo(f"{folder}: {kept:,} of {total:,} pairs")


def corpus_folder(output: Path, file: Path, kind: str = "back") -> Path:
    """The folder of the corpus that is made of a file."""
    return output / f"{kind}-{file.name.removesuffix('.gz').removesuffix('.txt')}"


def read_sentences(file: Path) -> list[str]:
    """The lines of a UTF-8 file, plain or gzip, with single spaces.

    Raises:
        typer.BadParameter: it cannot be read.
    """
    try:
        raw = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        lines = raw.decode("utf-8").removesuffix("\n").split("\n")
    except (OSError, EOFError, UnicodeDecodeError) as exc:
        raise typer.BadParameter(f"{file}: {exc}", param_hint="FILE") from exc
    return [" ".join(line.split()) for line in lines]


async def translate_rest(
    sentences: Sequence[str], folder: Path, model: str, translate: Translate
) -> None:
    """Add translations to those in `folder` until all sentences have one.

    Args:
        model: name and version, the first line of the translations.

    Raises:
        typer.BadParameter: the translations in `folder` are of another model or other sentences.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / TRANSLATIONS_FILE
    written = path.read_bytes() if path.exists() else b""
    complete = written[: written.rfind(b"\n") + 1] or f"{model}\n".encode()
    head, *lines = complete.decode("utf-8").split("\n")[:-1]
    if head != model:
        raise typer.BadParameter(f"{path} is of another model; remove it", param_hint="--model")
    if any(line.split("\t")[2] != own for line, own in zip(lines, sentences, strict=False)):
        raise typer.BadParameter(f"{path} is of other sentences; remove it", param_hint="FILE")
    path.write_bytes(complete)  # a line that was cut off goes
    with path.open("a", encoding="utf-8", newline="\n") as file:
        for start in range(len(lines), len(sentences), _BATCH):
            batch = sentences[start : start + _BATCH]
            for sentence, result in zip(batch, await translate(batch), strict=True):
                text = " ".join(result.text.split())  # a model can generate line breaks
                file.write(f"{result.confidence or 0.0:.3f}\t{text}\t{sentence}\n")
            file.flush()


def write_corpus(
    folder: Path,
    *,
    languages: tuple[str, str],
    least_confidence: float,
    tag: str,
) -> tuple[int, int]:
    """Write the pairs of a folder's translations as a corpus.

    Args:
        languages: codes of the translations' and the sentences' languages.
        least_confidence: the lowest one of a pair that is kept.
        tag: string put before each translation, with a space after it.

    Returns:
        How many pairs were kept, and how many there are.
    """
    lines = (folder / TRANSLATIONS_FILE).read_text(encoding="utf-8").split("\n")[1:-1]
    pairs = []
    for line in lines:
        confidence, text, sentence = line.split("\t")
        sentinels = [sorted(_SENTINEL.findall(side)) for side in (text, sentence)]
        if text and float(confidence) >= least_confidence and sentinels[0] == sentinels[1]:
            pairs.append((f"{tag} {text}" if tag else text, sentence))
    for side, language in enumerate(languages):
        content = "".join(f"{pair[side]}\n" for pair in pairs)
        (folder / f"train.{language}").write_text(content, encoding="utf-8")
    return len(pairs), len(lines)


async def _translate_files(
    files: Sequence[Path],
    folders: Sequence[Path],
    bundle: Bundle,
    limit: int | None,
    beam_size: int,
) -> None:
    async with sentence_translator(bundle.path) as translator:
        for file, folder in zip(files, folders, strict=True):
            model = f"{bundle.name} {bundle.version}"
            if beam_size > 1:
                model += f", beam of {beam_size}"
            await translate_rest(
                read_sentences(file)[:limit], folder, model, _whole_lines(translator, beam_size)
            )


def _whole_lines(translator: Translator, beam_size: int) -> Translate:
    search = SearchOptions(beam_size=beam_size)
    options = TranslateOptions(split_sentences=False, search=search)

    async def translate(sentences: Sequence[str]) -> Sequence[TextResult]:
        return await translator.translate(sentences, options)

    return translate


if __name__ == "__main__":
    typer.run(main)
