"""Test sets in document order, and what they hold for the test of pronouns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from bench.context.pronouns import PronounItem
from model.data.corpus import CorpusError, read_lines
from model.evaluation.scoring import TestSet

# Of a set without documents, runs of so many lines count as one.
_RUN_LINES = 20
_PRONOUN = re.compile(r"(Er|Sie)(?= )")
_BY_PRONOUN = {"Er": "m", "Sie": "f", "Es": "n"}


@dataclass(frozen=True)
class DocumentSet:
    """Sentences with references, in documents.

    Attributes:
        name: of the test set.
        sources, references: of each document's sentences.
    """

    name: str
    sources: list[list[str]]
    references: list[list[str]]

    @classmethod
    def parse(cls, text: str, root: Path) -> DocumentSet:
        """Read NAME=SOURCE,REFERENCE or NAME=SOURCE,REFERENCE,DOCUMENTS, files below `root`.

        DOCUMENTS has a document's id for each line.

        Raises:
            CorpusError: a file can't be used, or there are too many or too few.
        """
        name, _, files = text.partition("=")
        paths = [root / file for file in files.split(",")]
        if len(paths) not in (2, 3):
            raise CorpusError(f"{text}: NAME=SOURCE,REFERENCE or NAME=SOURCE,REFERENCE,DOCUMENTS")
        lines = TestSet.read(*paths[:2])
        ids = [str(index // _RUN_LINES) for index in range(len(lines.sources))]
        if len(paths) == 3:
            ids = read_lines(paths[2])
            if len(ids) != len(lines.sources):
                raise CorpusError(f"{paths[2]} has {len(ids)} lines, {paths[0]} another number")
        rows = zip(ids, lines.sources, lines.references, strict=True)
        groups = [list(group) for _, group in groupby(rows, key=lambda row: row[0])]
        return cls(
            name,
            [[source for _, source, _ in group] for group in groups],
            [[reference for _, _, reference in group] for group in groups],
        )

    def pronoun_items(self, count: int) -> Iterator[PronounItem]:
        """Sentences that begin with "It", and whose references begin with Er or Sie.

        These stand for a noun. Es often stands for nothing, as the English "it" does: of fifty
        items that were read, 27 of 29 with er or sie had their noun in the sentence before, and 7
        of 21 with es.

        Args:
            count: sentences before, as context; as many as there are if they are fewer.
        """
        for sources, references in zip(self.sources, self.references, strict=True):
            for index in range(1, len(sources)):
                found = _PRONOUN.match(references[index])
                if not found or not sources[index].startswith("It "):
                    continue
                first = max(0, index - count)
                rest = references[index][found.end() :]
                yield PronounItem(
                    _BY_PRONOUN[found[0]],
                    "",
                    tuple(sources[first : index + 1]),
                    tuple(references[first:index]),
                    {gender: pronoun + rest for pronoun, gender in _BY_PRONOUN.items()},
                )


def flat(documents: Sequence[Sequence[str]]) -> list[str]:
    """All sentences of all documents."""
    return [sentence for document in documents for sentence in document]
