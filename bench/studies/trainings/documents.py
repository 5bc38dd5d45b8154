"""Documents translated sentence by sentence, and in runs of sentences as long as a model reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from model.data.corpus import CorpusError, read_lines

Translate = Callable[[Sequence[str]], list[str]]


@dataclass(frozen=True)
class TestDocuments:
    """Sentences in document order, their references, and the document of each."""

    __test__ = False  # pytest: this is no test

    sources: Sequence[str]
    references: Sequence[str]
    documents: Sequence[str]

    @classmethod
    def read(
        cls, folder: Path, source: str, target: str, limit: int | None = None
    ) -> TestDocuments:
        """Reads valid.SOURCE, valid.TARGET and valid.doc of a corpus, or their first lines.

        Raises:
            CorpusError: a file cannot be read, or line counts differ.
        """
        names = (f"valid.{source}", f"valid.{target}", "valid.doc")
        sides = [read_lines(folder / name) for name in names]
        if len({len(side) for side in sides}) > 1:
            counts = ", ".join(f"{n} {len(s)}" for n, s in zip(names, sides, strict=True))
            raise CorpusError(f"{folder}: unequal line counts: {counts}")
        return cls(*(side[:limit] for side in sides))


def document_runs(lengths: Sequence[int], documents: Sequence[str], most: int) -> list[range]:
    """Runs of sentences of a document with at most `most` tokens; a longer sentence is a run."""
    runs, start, size = [], 0, 0
    for index, length in enumerate(lengths):
        other = index > start and documents[index] != documents[start]
        if index > start and (other or size + length > most):
            runs.append(range(start, index))
            start, size = index, 0
        size += length
    return [*runs, range(start, len(lengths))] if lengths else []


def document_scores(
    test: TestDocuments, translate: Translate, count: Callable[[str], int], most: int
) -> dict[str, float]:
    """BLEU by sentence, and of whole runs as one segment each (d-BLEU: Liu et al., 2020).

    Args:
        count: tokens of a text.
        most: tokens of a run.

    Returns:
        "sentence BLEU"; "document BLEU, by sentence" of the same translations, joined; and
        "document BLEU, whole" of runs that were translated in one piece.
    """
    from model.evaluation.scoring import score_translations

    runs = document_runs([count(text) for text in test.sources], test.documents, most)

    def joined(lines: Sequence[str]) -> list[str]:
        return [" ".join(lines[run.start : run.stop]) for run in runs]

    apart = translate(test.sources)
    references = joined(test.references)
    return {
        "sentence BLEU": score_translations(apart, test.references).bleu.score,
        "document BLEU, by sentence": score_translations(joined(apart), references).bleu.score,
        "document BLEU, whole": score_translations(
            translate(joined(test.sources)), references
        ).bleu.score,
    }
