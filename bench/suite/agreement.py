"""The number of a peer's translations that differ from ours, with equal weights and texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.load.source import read_texts
from bench.suite.artifacts import Artifacts
from bench.suite.systems import System, running
from dragoman.client import Client
from dragoman.options import Search

NUM_TEXTS = 200
_TEXTS_A_CALL = 20


def file_name(beam_size: int) -> str:
    """The file of a beam size in a run's folder."""
    return "agreement.json" if beam_size == 1 else f"agreement-beam{beam_size}.json"


@dataclass(frozen=True)
class Agreement:
    """The differences between two systems' translations of the same texts.

    Attributes:
        different: the texts' numbers, and both translations, where these differ.
    """

    num_texts: int
    different: Sequence[tuple[int, str, str]]

    def __str__(self) -> str:
        count = f"{len(self.different)} of {self.num_texts}"
        return f"{count} translations by CTranslate2 differ from ours"


def compare_translations(ours: Sequence[str], theirs: Sequence[str]) -> Agreement:
    """Compare translations, both in the order of the texts."""
    pairs = enumerate(zip(ours, theirs, strict=True))
    return Agreement(len(ours), [(n, a, b) for n, (a, b) in pairs if a != b])


def measure_agreement(
    own: System,
    peer: System,
    artifacts: Artifacts,
    log: Path,
    beam_size: int = 1,
) -> Agreement:
    """Translate the first texts with both, searching as CTranslate2 does.

    Raises:
        LoadError: a server did not start.
        TranslationError: a text was not translated.
    """
    texts = read_texts(artifacts.texts)[:NUM_TEXTS]
    search = Search(beam_size=beam_size, early_stopping="first") if beam_size > 1 else None
    translated = []
    for system in (own, peer):
        with running(system, artifacts, log) as server, Client(server.address) as client:
            made: list[str] = []
            for start in range(0, len(texts), _TEXTS_A_CALL):
                call = texts[start : start + _TEXTS_A_CALL]
                batch = client.translate(call, search=search, timeout=600.0)
                for translation in batch.translations:
                    if translation.error is not None:
                        raise translation.error
                    made.append(translation.text)
            translated.append(made)
    return compare_translations(*translated)


def write(file: Path, agreement: Agreement) -> None:
    """Store the differences."""
    file.parent.mkdir(parents=True, exist_ok=True)
    facts = {"num_texts": agreement.num_texts, "different": list(agreement.different)}
    file.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read(file: Path) -> Agreement:
    """The agreement that `write` stored."""
    facts = json.loads(file.read_text(encoding="utf-8"))
    return Agreement(facts["num_texts"], [tuple(item) for item in facts["different"]])
