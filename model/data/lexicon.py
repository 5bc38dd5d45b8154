"""Shortlists from a parallel text: the target tokens that often translate each source token.

Without alignments, probabilities are those of IBM model 1 (Brown et al., 1993, "The Mathematics of
Statistical Machine Translation", section 4.2), between the tokens of the model's own vocabularies.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from model.bundle.shortlist import SHORTLIST_FILE, Shortlist
from model.bundle.tokenizer import Tokenizer
from model.data.corpus import ParallelText, read_parallel
from model.data.word_alignment import token_links

_log = logging.getLogger("dragoman.shortlist")

# Best target tokens of each source token, and frequent ones of every sentence. For the included
# model and 42,000 pairs of other text: 50 and 100 list 92.9 % of the tokens of its translations,
# 50 and 500 94.8 %, 100 and 500 95.6 %.
LISTED = 100
FREQUENT = 500
MAX_PAIRS = 60_000  # more take minutes, and gigabytes
_MAX_TOKENS = 60  # of a sentence; longer ones say little for their time
_CHUNK = 2_000
_ITERATIONS = 4
_LEAST = 0.1  # fewest expected occurrences of a pair; with 0.02, the lists are hardly better

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def shortlist_from(source: Path, target: Path, tokenizer: Tokenizer, vocab_size: int) -> Shortlist:
    """The shortlist of a parallel text.

    Args:
        source: a file of sentences. Links of words in a file of the same name with the suffix
            .align (`model.data.word_alignment`) are used in place of IBM model 1.
        vocab_size: number of tokens of the network.

    Raises:
        CorpusError: a file can't be read, or they have no usable pairs of lines.
    """
    alignment = source.with_suffix(".align")
    given = alignment if alignment.is_file() else None
    text = read_parallel(source, target, alignment=given)
    return shortlist_of(text, tokenizer, vocab_size)


def shortlist_of(text: ParallelText, tokenizer: Tokenizer, vocab_size: int) -> Shortlist:
    """The shortlist of a text, by its links of words if it has them; see `shortlist_from`."""
    step = -(-len(text.sources) // MAX_PAIRS)
    sources, targets = text.sources[::step], text.targets[::step]
    _log.info("a shortlist from %d sentence pairs", len(sources))
    own = tokenizer.encode_batch(list(sources))
    translated = tokenizer.target.encode_batch(list(targets))
    if not text.alignments:
        pairs, counts = _ibm1(own, translated, vocab_size)
    else:
        links = text.alignments[::step]
        keys = [
            own[n][s] * vocab_size + translated[n][t]
            for n, texts in enumerate(zip(sources, targets, links, strict=True))
            for s, t in token_links(tokenizer, *texts)
        ]
        pairs, found = np.unique(np.array(keys, np.int64), return_counts=True)
        counts = found.astype(np.float64)
    return best_of(pairs, counts, _frequent(translated), tokenizer.eos_id, vocab_size)


def write_shortlist(folder: Path, text: ParallelText, tokenizer: Tokenizer) -> None:
    """Write the shortlist of a training's text beside its checkpoint, for the export."""
    shortlist = shortlist_of(text, tokenizer, tokenizer.vocab_size)
    (folder / SHORTLIST_FILE).write_bytes(shortlist.to_bytes())


def best_of(
    pairs: Ids, counts: Floats, frequent: Sequence[int], eos_id: int, vocab_size: int
) -> Shortlist:
    """The target tokens with the highest counts for each source token.

    Args:
        pairs: source token * `vocab_size` + target token, once each.
        counts: number of times that each pair was seen.
        frequent: target tokens that every sentence gets: those of the source's EOS.
    """
    order = np.lexsort((-counts, pairs // vocab_size))
    sources = pairs[order] // vocab_size
    # Of equal source tokens, the one at the beginning has the rank 0.
    rank = np.arange(len(order)) - np.searchsorted(sources, sources)
    kept = order[rank < LISTED]
    own, translated = pairs[kept] // vocab_size, pairs[kept] % vocab_size
    own = np.concatenate((own, np.full(len(frequent), eos_id)))
    translated = np.concatenate((translated, np.array(frequent, np.int64)))
    return Shortlist.of_pairs(0, own, translated, vocab_size)


def _frequent(targets: Sequence[Sequence[int]]) -> list[int]:
    counts = np.bincount(np.fromiter((i for ids in targets for i in ids), np.int64))
    best = np.argsort(-counts, kind="stable")[:FREQUENT]
    return [int(i) for i in best if counts[i]]


def _ibm1(
    sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], vocab_size: int
) -> tuple[Ids, Floats]:
    """Expected counts of pairs after some iterations of expectation maximisation.

    The source also has an empty word, with the id `vocab_size`, which takes what no token explains.
    """
    pairs = list(zip(sources, targets, strict=True))
    chunks = [pairs[start : start + _CHUNK] for start in range(0, len(pairs), _CHUNK)]
    vocabulary = np.unique(np.concatenate([np.unique(_keys(c, vocab_size)[0]) for c in chunks]))
    places = [
        np.searchsorted(vocabulary, keys).astype(np.int32)
        for keys, _ in (_keys(chunk, vocab_size) for chunk in chunks)
    ]
    starts = [_keys(chunk, vocab_size)[1] for chunk in chunks]
    words = vocabulary // vocab_size
    probabilities = np.ones(len(vocabulary))
    counts = probabilities
    for iteration in range(_ITERATIONS):
        _log.info("aligning, pass %d of %d", iteration + 1, _ITERATIONS)
        counts = np.zeros(len(vocabulary))
        for place, start in zip(places, starts, strict=True):
            shares = probabilities[place]
            totals = np.add.reduceat(shares, start)
            shares /= np.repeat(totals, np.diff([*start, len(place)]))
            counts += np.bincount(place, shares, len(vocabulary))
        probabilities = counts / np.bincount(words, counts)[words]
    kept = (counts >= _LEAST) & (words < vocab_size)
    return vocabulary[kept], counts[kept]


def _keys(chunk: Sequence[tuple[Sequence[int], Sequence[int]]], vocab_size: int) -> tuple[Ids, Ids]:
    """Keys of all pairs of tokens, by target token, and where each target token begins."""
    keys, lengths = [], []
    for source, target in chunk:
        own = np.array([*source[:_MAX_TOKENS], vocab_size], np.int64) * vocab_size
        other = np.array(target[:_MAX_TOKENS], np.int64)
        keys.append((other[:, None] + own[None]).ravel())
        lengths.append(np.full(len(other), len(own)))
    ends = np.cumsum(np.concatenate(lengths))
    return np.concatenate(keys), np.concatenate(([0], ends[:-1]))
