"""Document bombs: growth that is not linear is found, and linear growth is not."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from service.documents.document import Document, DocumentLimits, DocumentSegment
from service.documents.formats import READERS, Reader
from tests.robustness.fuzz.document_bombs import Bomb, DocumentBombs, Shape, Strand
from tests.robustness.fuzz.target import Finding, random_of

LINES = Bomb(".txt", "~", (Strand("a\n", Shape.REPEAT),), 2_500, 1, "longer")


class QuadraticText:
    """A text that is read again for each of its lines."""

    segments: Sequence[DocumentSegment] = ()

    def __init__(self, data: bytes, limits: DocumentLimits) -> None:
        for _ in range(len(data) // 4):
            sum(data)

    def write(self, translations: Sequence[str]) -> bytes:
        """Nothing."""
        return b""


class QuadraticReader(Reader):
    """Reads files so."""

    def load(self) -> Callable[..., Document]:
        """The class above."""
        return QuadraticText


def test_quadratic_work_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(READERS, ".txt", QuadraticReader("", ""))
    with pytest.raises(Finding, match="processor time grows faster than the file"):
        DocumentBombs().run(LINES)


def test_linear_work_is_not() -> None:
    assert DocumentBombs().run(LINES) == "written"


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


def test_a_larger_file_has_about_four_times_the_size() -> None:
    target = DocumentBombs()
    for number in range(50):
        given = target.generate(random_of(target.name, 0, number))
        (_, small), (_, large) = given.file(1), given.file(4)
        assert small <= large < 6 * small


def test_all_formats_are_made() -> None:
    target, rng = DocumentBombs(), random.Random(0)
    made = {target.generate(rng).extension for _ in range(200)}
    assert made == {".docx", ".odt", ".xlf", ".po", ".srt", ".md", ".html", ".txt"}
