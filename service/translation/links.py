"""Links between parts of a text and parts of its translation, in characters of both.

If the model has alignments, a link joins two words. Without alignments, and with a pivot language,
it joins a whole sentence and its translation. Copied text is linked to itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from model.bundle.spans import Span
from service.translation.words import word_indices


class Link(NamedTuple):
    """A part of a text, and a part of its translation that comes from it.

    Attributes:
        source: span in the text.
        target: span in the translation. A word of the translation can have several links, or none.
        is_unit: whether no markup may be put inside of the part of the translation.
    """

    source: Span
    target: Span
    is_unit: bool = False


@dataclass
class LinkedText:
    """Joins the links of parts of a text to those of the text.

    Attributes:
        links: links of the parts so far, in the order of the translation.
    """

    links: list[Link] = field(default_factory=list)
    _source: int = 0
    _target: int = 0

    def copy(self, text: str) -> None:
        """Add copied text."""
        if text:
            self.add(len(text), len(text), [Link(Span(0, len(text)), Span(0, len(text)))])

    def translate(self, source: str, target: str, links: Sequence[Link] | None = None) -> None:
        """Add a sentence.

        Args:
            source: the sentence.
            target: its translation.
            links: links of its words; None for one link between the two.
        """
        if links is None:
            whole = Link(Span(0, len(source)), Span(0, len(target)))
            links = [whole] if source and target else []
        self.add(len(source), len(target), links)

    def add(self, source_length: int, target_length: int, links: Sequence[Link]) -> None:
        """Add a part of these lengths, with links in characters of the part."""
        source, target = self._source, self._target
        self.links += [
            Link(
                Span(link.source.start + source, link.source.end + source),
                Span(link.target.start + target, link.target.end + target),
                link.is_unit,
            )
            for link in links
        ]
        self._source += source_length
        self._target += target_length


def word_links(
    source: str,
    target: str,
    spans: tuple[Sequence[Span], Sequence[Span]],
    linked: Sequence[int],
) -> list[Link]:
    """Make links of words from links of tokens, each once, in the order of the translation.

    Args:
        source: a sentence.
        target: its translation.
        spans: spans of the tokens of both, without end-of-sentence.
        linked: index of the source token of each target token; one past the last is
            end-of-sentence, which gives no link.
    """
    source_words, target_words = _words(source, spans[0]), _words(target, spans[1])
    pairs = (
        (source_words[there], word)
        for word, there in zip(target_words, linked, strict=True)
        if there < len(source_words)
    )
    return [Link(*pair) for pair in dict.fromkeys(pairs) if all(start < end for start, end in pair)]


def _words(text: str, spans: Sequence[Span]) -> list[Span]:
    """The word of each token, from its first character to one past its last."""
    indices = word_indices(text, spans)
    words: dict[int, Span] = {}
    for index, span in zip(indices, spans, strict=True):
        if span.start < span.end:
            words[index] = Span(words.get(index, span).start, span.end)
    return [words.get(index, span) for index, span in zip(indices, spans, strict=True)]
