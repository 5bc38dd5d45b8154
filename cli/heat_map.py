"""Heat maps of attention weights: their labels and their numbers."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from dragoman.results import AttentionMap, AttentionView, SourceToken, Token

Rows = Sequence[Sequence[float]]
JOINERS = "\u200c\u200d"
"""Characters without a shape that change how those beside them are written, as in Persian."""
_SIDES = {
    "cross": ("translation", "text"),
    "encoder_self": ("text", "text"),
    "decoder_self": ("translation", "translation so far"),
}


@dataclass(frozen=True)
class HeatMap:
    """A matrix of weights with its labels.

    Attributes:
        row_title, column_title: names of the rows and of the columns.
        rows, columns: a label for each.
        weights: [rows, columns], from 0 to 1.
    """

    title: str
    row_title: str
    column_title: str
    rows: Sequence[str]
    columns: Sequence[str]
    weights: Rows

    @property
    def largest(self) -> float:
        """The largest weight."""
        return max((max(row, default=0.0) for row in self.weights), default=0.0)


def visible(label: str) -> str:
    """A label of visible characters: others become U+FFFD, white space a plain space.

    Invisible ones can control a terminal or change the direction of text, and XML forbids most.
    """
    return "".join(map(_visible, label))


def _visible(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Zs":
        return " "
    is_seen = category[0] != "C" and category not in ("Zl", "Zp")
    return character if is_seen or character in JOINERS else "\ufffd"


def heat_map(view: AttentionView, shown: AttentionMap, *, words: bool) -> HeatMap:
    """The heat map of one attention of a pair.

    Args:
        words: whether rows and columns are words and not tokens. The weight of a word is the sum of
            those of its tokens as keys, and their mean as queries, so that rows still sum to one
            (Clark et al., 2019, "What Does BERT Look At?", section 4.1).
    """
    row_title, column_title = _SIDES[shown.kind]
    rows, columns = _axes(view, shown.kind)
    if len(columns.tokens) != len(shown.rows[0]):  # low-rank attention
        columns, column_title = _Axis.numbered(len(shown.rows[0])), "weighted sums of positions"
    layer = "mean of layers" if shown.layer is None else f"layer {shown.layer}"
    head = "mean of heads" if shown.head is None else f"head {shown.head}"
    title = f"{shown.kind.replace('_', ' ')} attention, {layer}, {head}"
    weights: Rows = shown.rows
    if words:
        weights = [_sums(row, columns.words) for row in _means(weights, rows.words)]
        rows, columns = rows.merged(), columns.merged()
    return HeatMap(title, row_title, column_title, rows.tokens, columns.tokens, weights)


@dataclass(frozen=True)
class _Axis:
    """The labels of rows or columns, and the word of each."""

    tokens: Sequence[str]
    words: Sequence[int]
    merged_labels: Sequence[str]

    @classmethod
    def of(cls, text: str, tokens: Sequence[Token | SourceToken], words: Sequence[int]) -> _Axis:
        labels = [token.piece for token in tokens]
        merged: list[str] = []
        for word in dict.fromkeys(words):
            own = [token for token, of in zip(tokens, words, strict=True) if of == word]
            characters = text[own[0].start : own[-1].end].strip()
            merged.append(characters or "".join(token.piece for token in own))
        return cls(labels, words, merged)

    @classmethod
    def numbered(cls, count: int) -> _Axis:
        labels = [str(number) for number in range(count)]
        return cls(labels, range(count), labels)

    def merged(self) -> _Axis:
        return _Axis(self.merged_labels, range(len(self.merged_labels)), self.merged_labels)


def _axes(view: AttentionView, kind: str) -> tuple[_Axis, _Axis]:
    source = _Axis.of(view.source_text, view.source_tokens, view.source_words)
    if kind == "encoder_self":
        return source, source
    target = _Axis.of(view.translation, view.tokens, view.words)
    if kind == "cross":
        return target, source
    shifted = [0, *(1 + word for word in view.words[:-1])]
    return target, _Axis.of(view.translation, view.input_tokens, shifted)


def _means(rows: Rows, words: Sequence[int]) -> list[list[float]]:
    """The mean of the rows of each word."""
    merged = []
    for word in dict.fromkeys(words):
        own = [row for row, of in zip(rows, words, strict=True) if of == word]
        merged.append([sum(column) / len(own) for column in zip(*own, strict=True)])
    return merged


def _sums(row: Sequence[float], words: Sequence[int]) -> list[float]:
    """The sum of the columns of each word."""
    sums = dict.fromkeys(words, 0.0)
    for weight, word in zip(row, words, strict=True):
        sums[word] += weight
    return list(sums.values())
