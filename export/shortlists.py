"""Shortlists for a bundle: with the pieces that both languages share, and measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from export.errors import ExportError
from model.bundle.bundle import Bundle
from model.bundle.config import ModelConfig
from model.bundle.manifest import edited_manifest
from model.bundle.shortlist import SHORTLIST_FILE, Shortlist, ShortlistError, load_shortlist
from model.bundle.tokenizer import Tokenizer
from model.data.corpus import CorpusError
from model.data.lexicon import shortlist_from


@dataclass(frozen=True)
class ShortlistAgreement:
    """The agreement of greedy translations with a shortlist and with the whole vocabulary.

    A translation is the same if all of its tokens are listed, and only then.

    Attributes:
        num_identical: sentences with the same translation.
        num_tokens: tokens of the translations with the whole vocabulary.
        num_listed: number of listed tokens among them.
        mean_length: mean length of a sentence's list.
    """

    num_sentences: int
    num_identical: int
    num_tokens: int
    num_listed: int
    mean_length: float

    def __str__(self) -> str:
        """The agreement in words."""
        listed = 100 * self.num_listed / max(1, self.num_tokens)
        return (
            f"with the shortlist ({self.mean_length:,.0f} tokens for a sentence), "
            f"{self.num_identical} of {self.num_sentences} translations are the same as with the "
            f"whole vocabulary; it has {listed:.2f} % of their tokens"
        )


def with_shared_pieces(
    shortlist: Shortlist, source_pieces: Sequence[str], target_pieces: Sequence[str], size: int
) -> Shortlist:
    """The shortlist with each source piece in its own list, so that names can be copied.

    Args:
        source_pieces: pieces of the source vocabulary, by id.
        target_pieces: pieces of the target vocabulary, by id.
        size: the network's number of source tokens, at least the number of source pieces.
    """
    target_of = {piece: token for token, piece in enumerate(target_pieces)}
    shared = [(s, target_of[p]) for s, p in enumerate(source_pieces) if p in target_of]
    own = np.array(shared, np.int64).reshape(-1, 2)
    sources, targets = shortlist.pairs()
    sources, targets = np.concatenate((sources, own[:, 0])), np.concatenate((targets, own[:, 1]))
    return Shortlist.of_pairs(shortlist.first_num, sources, targets, size)


def shortlist_from_text(
    texts: tuple[Path, Path], tokenizer: Tokenizer, config: ModelConfig
) -> Shortlist:
    """The shortlist of a parallel text, for a model of one direction.

    Args:
        texts: files of sentences and of their translations.

    Raises:
        ExportError: a file can't be read, or they have no usable pairs of lines.
    """
    try:
        found = shortlist_from(*texts, tokenizer, config.vocab_size)
    except CorpusError as exc:
        raise ExportError(f"--shortlist-from: {exc}") from exc
    return _with_own_pieces(found, tokenizer, config)


def shortlist_for(
    checkpoint: Path,
    texts: tuple[Path, Path] | None,
    tokenizer: Tokenizer,
    config: ModelConfig,
) -> Shortlist | None:
    """The shortlist of a parallel text or, without one, that of the training; None without either.

    Args:
        checkpoint: the folder of the checkpoint.
        texts: as in `shortlist_from_text`.
        tokenizer: as in `shortlist_from_text`.
        config: as in `shortlist_from_text`.

    Raises:
        ExportError: a file can't be read, or the texts have no usable pairs of lines.
    """
    if texts is not None:
        return shortlist_from_text(texts, tokenizer, config)
    if not (file := checkpoint / SHORTLIST_FILE).is_file():
        return None
    try:
        found = Shortlist.parse(file.read_bytes(), config.vocab_size)
    except ShortlistError as exc:
        raise ExportError(f"{file} {exc}: remove it, or give --shortlist-from") from exc
    return _with_own_pieces(found, tokenizer, config)


def _with_own_pieces(found: Shortlist, tokenizer: Tokenizer, config: ModelConfig) -> Shortlist:
    source, target = (_pieces(side, config.vocab_size) for side in (tokenizer, tokenizer.target))
    return with_shared_pieces(found, source, target, config.vocab_size)


def _pieces(tokenizer: Tokenizer, size: int) -> list[str]:
    known = min(size, getattr(tokenizer, "vocab_size", size))
    return [tokenizer.id_to_piece(token) for token in range(known)]


def shortlist_agreement(
    bundle: Bundle, pairs: Iterable[tuple[Sequence[int], Sequence[int]]]
) -> ShortlistAgreement | None:
    """The agreement on some sentences; None for a bundle without a shortlist.

    Args:
        pairs: token ids of each source and of its greedy translation with the whole vocabulary.
    """
    shortlist = load_shortlist(bundle)
    if shortlist is None:
        return None
    start_ids = bundle.tokenizer().target.start_ids
    identical, tokens, listed, length, count = 0, 0, 0, 0, 0
    for source_ids, target_ids in pairs:
        found = shortlist.target_ids(source_ids, start_ids)
        known = np.isin(np.array(target_ids), [*found.tolist(), *shortlist.never])
        count += 1
        identical += bool(known.all())
        tokens += len(known)
        listed += int(known.sum())
        length += len(found)
    return ShortlistAgreement(count, identical, tokens, listed, round(length / max(1, count), 1))


def record_agreement(directory: Path, agreement: ShortlistAgreement | None) -> None:
    """Write the agreement into the manifest of the bundle in `directory`."""
    if agreement is None:
        return
    with edited_manifest(directory) as manifest:
        manifest["shortlist"]["agreement"] = asdict(agreement)
