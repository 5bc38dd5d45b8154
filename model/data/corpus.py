"""Parallel text: read, checked, and cut into batches by a token budget."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from model.bundle.padding import pad_right

Int64 = npt.NDArray[np.int64]


class CorpusError(ValueError):
    """A corpus cannot be used. The message names the file and, where there is one, the line."""


@dataclass(frozen=True)
class ParallelText:
    """Aligned sentences of two languages.

    Attributes:
        sources, targets: the sentences, of equal number.
        skipped: pairs that were left out, one "file:line: reason" each.
        alignments: the links of their words in Pharaoh's format, one line a pair; empty if none
            were read.
    """

    sources: Sequence[str]
    targets: Sequence[str]
    skipped: Sequence[str] = field(default=())
    alignments: Sequence[str] = field(default=())

    def __len__(self) -> int:
        return len(self.sources)

    def at(self, indices: Int64) -> ParallelText:
        """The pairs at `indices`, in that order."""
        chosen = indices.tolist()
        return ParallelText(
            [self.sources[i] for i in chosen],
            [self.targets[i] for i in chosen],
            (),
            [self.alignments[i] for i in chosen] if self.alignments else (),
        )


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file, without their line ends.

    Only a line feed ends a line (str.splitlines would also cut at U+2028 and break the alignment).

    Raises:
        CorpusError: the file cannot be read, or a line is not UTF-8.
    """
    try:
        raw = path.read_bytes()
    except OSError as exc:
        raise CorpusError(f"{path}: {exc.strerror}") from exc
    lines = raw.removeprefix(codecs.BOM_UTF8).split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    decoded = []
    for number, line in enumerate(lines, start=1):
        try:
            decoded.append(line.removesuffix(b"\r").decode("utf-8"))
        except UnicodeDecodeError as exc:
            raise CorpusError(
                f"{path}:{number}: not UTF-8 (byte {exc.object[exc.start]:#04x} "
                f"at column {exc.start + 1})"
            ) from exc
    return decoded


def concatenated(texts: Sequence[ParallelText]) -> ParallelText:
    """All pairs of the texts, in order."""
    return ParallelText(
        *(
            [line for text in texts for line in getattr(text, part.name)]
            for part in fields(texts[0])
        )
    )


def read_parallel(
    source: Path, target: Path, *, lowercase: bool = False, alignment: Path | None = None
) -> ParallelText:
    """Read two aligned files. A pair with an empty side is skipped and reported.

    Args:
        alignment: a file with the links of each pair's words; None reads none.

    Raises:
        CorpusError: unequal line counts, no usable pair, an unreadable file or bad UTF-8.
    """
    sources, targets = read_lines(source), read_lines(target)
    if len(sources) != len(targets):
        raise CorpusError(
            f"{source} has {len(sources)} lines but {target} has {len(targets)}; "
            f"line {min(len(sources), len(targets)) + 1} has no counterpart"
        )
    links = [] if alignment is None else read_lines(alignment)
    if alignment is not None and len(links) != len(sources):
        raise CorpusError(
            f"{alignment} has {len(links)} lines but {source} has {len(sources)}; align the words "
            "again: python -m model.data.word_alignment"
        )
    kept: list[int] = []
    skipped: list[str] = []
    for number, (left, right) in enumerate(zip(sources, targets, strict=True), start=1):
        if not left.strip():
            skipped.append(f"{source}:{number}: empty line")
        elif not right.strip():
            skipped.append(f"{target}:{number}: empty line")
        else:
            kept.append(number - 1)
    if not kept:
        raise CorpusError(f"{source}: no sentence pair with text on both sides")
    if lowercase:
        sources, targets = [s.lower() for s in sources], [t.lower() for t in targets]
    text = ParallelText(sources, targets, (), links).at(np.array(kept))
    return replace(text, skipped=skipped)


@dataclass(frozen=True)
class Batch:
    """Token ids of some sentence pairs, padded on the right.

    Attributes:
        source_ids: [rows, source length], each row ends with EOS.
        target_ids: [rows, target length], each row starts with BOS and ends with EOS.
        links: [rows, target length - 1, source length], which source tokens each target token
            after BOS comes from; None where no alignment is known.
    """

    source_ids: Int64
    target_ids: Int64
    links: npt.NDArray[np.bool_] | None = None

    def num_target_tokens(self, pad_id: int) -> int:
        """Tokens that the loss is taken over: all but BOS and padding."""
        return int((self.target_ids[:, 1:] != pad_id).sum())


@dataclass(frozen=True)
class EncodedText:
    """Token ids of a parallel text, without BOS and EOS."""

    sources: Sequence[Sequence[int]]
    targets: Sequence[Sequence[int]]

    def __len__(self) -> int:
        return len(self.sources)

    def lengths(self) -> Int64:
        """[pairs, 2] tokens of source and target, EOS counted."""
        return np.array(
            [(len(s) + 1, len(t) + 1) for s, t in zip(self.sources, self.targets, strict=True)],
            np.int64,
        ).reshape(-1, 2)

    def not_longer_than(self, max_tokens: int) -> Int64:
        """Indices of the pairs whose sides both have at most `max_tokens`."""
        return np.flatnonzero(self.lengths().max(axis=1, initial=0) <= max_tokens)

    def at(self, indices: Int64) -> EncodedText:
        """The pairs at `indices`, in that order."""
        chosen = indices.tolist()
        return EncodedText([self.sources[i] for i in chosen], [self.targets[i] for i in chosen])

    def batch(self, indices: Int64, *, pad_id: int, bos_id: int, eos_id: int) -> Batch:
        """The pairs at `indices` as padded arrays."""
        sources = [[*self.sources[i], eos_id] for i in indices]
        targets = [[bos_id, *self.targets[i], eos_id] for i in indices]
        return Batch(pad_right(sources, pad_id), pad_right(targets, pad_id))


class Encoded(Protocol):
    """Token ids of a parallel text, whatever holds them; see `EncodedText`."""

    def __len__(self) -> int: ...

    def lengths(self) -> Int64:
        """[pairs, 2] tokens of source and target, EOS counted."""

    def not_longer_than(self, max_tokens: int) -> Int64:
        """Indices of the pairs whose sides both have at most `max_tokens`."""

    def at(self, indices: Int64) -> Self:
        """The pairs at `indices`, in that order."""

    def batch(self, indices: Int64, *, pad_id: int, bos_id: int, eos_id: int) -> Batch:
        """The pairs at `indices` as padded arrays."""


def plan_batches(
    lengths: Int64, token_budget: int, generator: np.random.Generator | None
) -> list[Int64]:
    """Group pair indices into batches of at most `token_budget` tokens a side, padding counted.

    Pairs of similar length go together, which keeps padding low. With a `generator` the order of
    the batches, and which of the pairs of equal lengths share a batch, are random.

    Args:
        lengths: [pairs, 2] as from `EncodedText.lengths`.
        token_budget: largest rows x longest side; a single longer pair makes its own batch.
        generator: source of randomness, None for the same order every time.
    """
    tie_break = (
        np.arange(len(lengths)) if generator is None else generator.permutation(len(lengths))
    )
    order = np.lexsort((tie_break, lengths[:, 0], lengths[:, 1]))
    longest_side = lengths.max(axis=1, initial=0)
    batches: list[Int64] = []
    start, width = 0, 0
    for end, index in enumerate(order):
        width = max(width, int(longest_side[index]))
        if end > start and (end + 1 - start) * width > token_budget:
            batches.append(order[start:end])
            start, width = end, int(longest_side[index])
    if start < len(order):
        batches.append(order[start:])
    if generator is not None:
        batches = [batches[i] for i in generator.permutation(len(batches))]
    return batches


def interleave(text: ParallelText) -> Iterator[str]:
    """Sentences of both sides in turn, for training a joint vocabulary."""
    for source, target in zip(text.sources, text.targets, strict=True):
        yield source
        yield target
