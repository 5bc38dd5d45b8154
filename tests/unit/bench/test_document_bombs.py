"""Document bombs: growth that is not linear is found, and linear growth is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest

from service.documents.document import Document, DocumentLimits, DocumentSegment
from service.documents.formats import READERS, Reader
from tests.robustness.fuzz.document_bombs import Bomb, DocumentBombs, Shape, Strand
from tests.robustness.fuzz.target import Finding

LINES = Bomb(".txt", "~", (Strand("a\n", Shape.REPEAT),), 2_500, 1, "longer")


class TimedText:
    """A text that is read in a given time."""

    segments: Sequence[DocumentSegment] = ()

    def write(self, translations: Sequence[str]) -> bytes:
        """Nothing."""
        return b""


@dataclass(frozen=True)
class TimedReader(Reader):
    """Takes a power of a file's size, on a clock of its own."""

    power: int = 1
    now: ClassVar[float] = 0.0

    def read(self, data: bytes, limits: DocumentLimits) -> Document:
        """A text."""
        TimedReader.now += (len(data) / 10_000) ** self.power
        return TimedText()


@pytest.mark.parametrize(("power", "is_found"), [(1, False), (2, True)])
def test_work_that_grows_faster_than_the_file_is_found(
    power: int, is_found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(READERS, ".txt", TimedReader("", "", power))
    bombs = DocumentBombs(lambda: TimedReader.now)
    if is_found:
        with pytest.raises(Finding, match="processor time grows faster than the file"):
            bombs.run(LINES)
    else:
        assert bombs.run(LINES) == "written"


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (Shape.REPEAT, "<a></a><a></a><a></a>x"),
        (Shape.NEST, "<a><a><a>x</a></a></a>"),
        (Shape.ATTRIBUTES, '<a a0="b" a1="b" a2="b">x</a>'),
        (Shape.NAMESPACES, '<a xmlns:n0="urn:0" xmlns:n1="urn:1" xmlns:n2="urn:2">x</a>'),
    ],
)
def test_a_strand_grows_around_others(shape: Shape, text: str) -> None:
    assert Strand("<a>~</a>", shape).grown("x", 3) == text
