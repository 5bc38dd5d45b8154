"""Results of calls with translation memories, free of protobuf."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryMatch:
    """A sentence and its match in a translation memory.

    Attributes:
        sentence: the sentence, as in the text.
        source: the text in the memory.
        translation: its translation; of an exact match, as in the translation of the text.
        score: similarity of sentence and source, from 0 to 1; 1 for exact matches only.
        memory: name of the memory.
    """

    sentence: str
    source: str
    translation: str
    score: float
    memory: str


@dataclass(frozen=True)
class MemoryInfo:
    """A translation memory.

    Attributes:
        num_pairs: number of its pairs of a text and a translation.
    """

    name: str
    num_pairs: int


@dataclass(frozen=True)
class MemoryImport:
    """The counts of an import.

    Attributes:
        num_added: pairs that the memory did not have.
        num_replaced: pairs whose text the memory had.
        num_skipped: units or translations that were left out: empty, too long, or without the
            source language.
    """

    num_added: int
    num_replaced: int
    num_skipped: int
