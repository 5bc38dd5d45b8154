"""Back-translation: what is translated, what is kept, and going on after an interruption."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from bench import back_translation
from bench.back_translation import (
    TRANSLATIONS_FILE,
    corpus_folder,
    read_sentences,
    translate_rest,
    write_corpus,
)
from model.bundle.tokenizer import sentinel
from service.domain.requests import FinishReason
from service.translation.results import TextResult

LANGUAGES = ("en", "de")


class Reverser:
    """Turns each sentence around; as many calls as `limit` succeed."""

    def __init__(self, limit: int = 1000) -> None:
        self.seen: list[str] = []
        self._left = limit

    async def __call__(self, sentences: Sequence[str]) -> Sequence[TextResult]:
        if not self._left:
            raise KeyboardInterrupt
        self._left -= 1
        self.seen += sentences
        return [
            TextResult(text[::-1], FinishReason.EOS, confidence=len(text) / 10)
            for text in sentences
        ]


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(back_translation, "_BATCH", 2)


def translate(
    sentences: Sequence[str], folder: Path, reverser: Reverser, model: str = "m 1"
) -> None:
    asyncio.run(translate_rest(sentences, folder, model, reverser))


def corpus(folder: Path, least: float = 0.0, tag: str = "@") -> list[tuple[str, str]]:
    write_corpus(folder, languages=LANGUAGES, least_confidence=least, tag=tag)
    sides = [(folder / f"train.{language}").read_text().splitlines() for language in LANGUAGES]
    return list(zip(*sides, strict=True))


def test_pairs_are_tagged_and_those_of_low_confidence_left_out(tmp_path: Path) -> None:
    translate(["a", "b c", "d e f"], tmp_path, Reverser())
    assert corpus(tmp_path) == [("@ a", "a"), ("@ c b", "b c"), ("@ f e d", "d e f")]
    assert corpus(tmp_path, least=0.3, tag="+") == [("+ c b", "b c"), ("+ f e d", "d e f")]
    assert corpus(tmp_path, least=0.9) == []


def test_pairs_that_lost_a_sentinel_are_left_out(tmp_path: Path) -> None:
    class Loser(Reverser):
        async def __call__(self, sentences: Sequence[str]) -> Sequence[TextResult]:
            results = await super().__call__(sentences)
            return [replace(one, text=one.text.replace(sentinel(2), "")) for one in results]

    kept = f"a {sentinel(1)}"
    translate([kept, f"{sentinel(1)} b {sentinel(2)}"], tmp_path, Loser())
    assert corpus(tmp_path, tag="") == [(kept[::-1], kept)]


@pytest.mark.parametrize("cut", [0, 3])
def test_an_interrupted_translation_goes_on_after_the_last_whole_line(
    tmp_path: Path, cut: int
) -> None:
    sentences = ["one", "two", "three", "four", "five"]
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    translate(sentences, unbroken, Reverser())
    with pytest.raises(KeyboardInterrupt):
        translate(sentences, broken, Reverser(limit=1))
    path = broken / TRANSLATIONS_FILE
    path.write_bytes(path.read_bytes()[: -cut or None])
    rest = Reverser()
    translate(sentences, broken, rest)
    assert rest.seen == sentences[1 if cut else 2 :]
    assert path.read_bytes() == (unbroken / TRANSLATIONS_FILE).read_bytes()


def test_translations_of_another_model_or_other_sentences_are_not_continued(
    tmp_path: Path,
) -> None:
    translate(["one", "two"], tmp_path, Reverser())
    with pytest.raises(typer.BadParameter, match="of another model"):
        translate(["one", "two", "three"], tmp_path, Reverser(), model="m 2")
    with pytest.raises(typer.BadParameter, match="of other sentences"):
        translate(["one", "2", "three"], tmp_path, Reverser())


def test_sentences_are_read_from_plain_and_compressed_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Zwei  Wörter.\n\tDrei.\n", encoding="utf-8")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress("Zwei Wörter.\nDrei.".encode()))
    for file in ("a.txt", "b.txt.gz"):
        assert read_sentences(tmp_path / file) == ["Zwei Wörter.", "Drei."]
    assert corpus_folder(tmp_path, tmp_path / "b.txt.gz") == tmp_path / "back-b"
    assert corpus_folder(tmp_path, tmp_path / "a.txt", "distilled") == tmp_path / "distilled-a"
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"abc")[:-4])
    for file in ("c.txt.gz", "missing.txt"):
        with pytest.raises(typer.BadParameter, match=file):
            read_sentences(tmp_path / file)
