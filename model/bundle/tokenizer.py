"""Text to token ids and back: a joint SentencePiece vocabulary.

Kudo and Richardson (2018), "SentencePiece"; the unigram model is Kudo (2018), "Subword
Regularization". Every byte is a piece of last resort, so no input is unknown. Free of torch.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import sentencepiece

from model.bundle.spans import Span as Span

TOKENIZER_FILE = "tokenizer.model"
PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
MAX_SENTINELS = 100
_NUM_BEST = 8  # segmentations that one is drawn from: the l of Kudo (2018)


class TokenizerError(ValueError):
    """A tokenizer file cannot be read, or a vocabulary cannot be trained. Names the file."""


class MissingPackageError(TokenizerError):
    """A tokenizer needs a package that is not installed; the message names it."""


class Tokenizer:
    """A trained SentencePiece vocabulary.

    `decode(encode(text))` is the text as SentencePiece normalises it: NFKC, control characters
    removed and runs of white space made one space.
    """

    def __init__(self, serialized: bytes) -> None:
        self._processor = sentencepiece.SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(serialized)
        self.vocab_size: int = self._processor.get_piece_size()
        self.pad_id: int = self._processor.pad_id()
        self.unk_id: int = self._processor.unk_id()
        self.bos_id: int = self._processor.bos_id()
        self.eos_id: int = self._processor.eos_id()
        self._hidden = frozenset((self.pad_id, self.bos_id, self.eos_id))
        self._piece_scores = np.array(
            [self._processor.get_score(i) for i in range(self.vocab_size)], np.float64
        )

    @classmethod
    def load(cls, path: Path, read: Callable[[Path], bytes] = Path.read_bytes) -> Tokenizer:
        """Read a SentencePiece model file.

        Raises:
            TokenizerError: the file is missing, unreadable or not a SentencePiece model.
        """
        try:
            return cls(read(path))
        except OSError as exc:
            raise TokenizerError(f"cannot read the tokenizer {path}: {exc.strerror}") from exc
        except RuntimeError as exc:
            raise TokenizerError(f"{path} is not a SentencePiece model") from exc

    @property
    def num_hidden(self) -> tuple[int, int]:
        """Tokens of languages at the beginning of a source and of a target, which don't count."""
        return len(self.prefix_ids), len(self.target.start_ids)

    @property
    def prefix_ids(self) -> tuple[int, ...]:
        """Language tokens that `encode` puts before every text that isn't blank."""
        return ()

    @property
    def start_ids(self) -> tuple[int, ...]:
        """Tokens that every translation into this language begins with, given to the search."""
        return ()

    @property
    def target(self) -> Tokenizer:
        """The tokenizer of the target language: this one, where both languages share it."""
        return self

    @functools.cached_property
    def sentinels(self) -> tuple[str, ...]:
        """Characters that the model copies, in place of what it must not change; often none."""
        found = []
        for number in range(1, MAX_SENTINELS + 1):
            if self.piece_to_id(sentinel(number)) == self.unk_id:
                break
            found.append(sentinel(number))
        return tuple(found)

    def serialized(self) -> bytes:
        """The bytes that `load` reads."""
        return bytes(self._processor.serialized_model_proto())

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, without BOS and EOS."""
        return list(self._processor.encode(text, out_type=int))

    def encoded_spans(self, text: str) -> list[Span]:
        """The span in `text` of each token of `encode(text)`.

        White space before a token is not part of it. A token without a character of its own has an
        empty span. Of the tokens that spell a character in bytes, only the last has its span.
        """
        found = self._processor.encode(text, return_type="offset_mapping")
        return text_spans(text, found["offsets"])

    def decoded_spans(self, token_ids: Sequence[int]) -> list[Span]:
        """The span of each token in `decode(token_ids)`.

        Padding, BOS and EOS have empty spans.
        """
        spans = iter(text_spans(*self._decoded_offsets(token_ids)))
        end = 0
        placed = []
        for token_id in token_ids:
            span = Span(end, end) if token_id in self._hidden else next(spans)
            placed.append(span)
            end = span.end
        return placed

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of every text, on one thread, so that callers choose their parallelism."""
        return [list(ids) for ids in self._processor.encode(list(texts), out_type=int)]

    def sample_batch(self, texts: Sequence[str], *, alpha: float, seed: int) -> list[list[int]]:
        """One random segmentation of every text (Kudo, 2018, section 3.1).

        It is drawn from the eight likeliest ones, each with its probability to the power
        `alpha`. SentencePiece can sample too, but its draws differ from one process to the next
        whatever its seed, and a training run has to be repeatable.

        Args:
            alpha: smoothing; 0 makes all candidates equally likely.
        """
        generator = np.random.default_rng(seed)
        sampled: list[list[int]] = []
        for text, draw in zip(texts, generator.random(len(texts)), strict=True):
            candidates = self._processor.nbest_encode(text, nbest_size=_NUM_BEST, out_type=int)
            log_weights = alpha * np.array([self._piece_scores[ids].sum() for ids in candidates])
            cumulative = np.exp(log_weights - log_weights.max()).cumsum()
            sampled.append(list(candidates[int((cumulative < draw * cumulative[-1]).sum())]))
        return sampled

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of `token_ids`; padding, BOS and EOS are skipped."""
        return str(self._processor.decode(self._visible(token_ids)))

    def is_unfinished(self, token_ids: Sequence[int]) -> bool:
        """Whether further tokens can change the text of these.

        They can where a character, spelt in pieces such as <0xC3>, lacks bytes.
        """
        run = []
        for token_id in reversed(self._visible(token_ids)):  # hidden ones end no character
            if token_id not in self._bytes_of_ids:
                break
            run.append(self._bytes_of_ids[token_id])
        try:
            bytes(reversed(run)).decode("utf-8")
        except UnicodeDecodeError:
            return True
        return False

    @functools.cached_property
    def _bytes_of_ids(self) -> dict[int, int]:
        ids = {self.piece_to_id(f"<0x{byte:02X}>"): byte for byte in range(256)}
        ids.pop(self.unk_id, None)  # a vocabulary without byte pieces
        return ids

    def id_to_piece(self, token_id: int) -> str:
        """The piece with this id, "\u2581" standing for a space."""
        return str(self._processor.id_to_piece(token_id))

    def piece_to_id(self, piece: str) -> int:
        """The id of a piece, `unk_id` when there is no such piece."""
        return int(self._processor.piece_to_id(piece))

    def _decoded_offsets(self, token_ids: Iterable[int]) -> tuple[str, list[tuple[int, int]]]:
        """The text, and where each token in it stands, white space before it included."""
        found = self._processor.decode(self._visible(token_ids), return_type="offset_mapping")
        return found["text"], found["offsets"]

    def _visible(self, token_ids: Iterable[int]) -> list[int]:
        return [int(i) for i in token_ids if i not in self._hidden]


def sentinel(number: int) -> str:
    """The private character that stands for the thing with this number, from 1 on.

    As the sentinels of T5 (Raffel et al., 2020, section 3.1.4), but to be copied.
    """
    return chr(0xE000 + number)


def text_spans(text: str, offsets: Iterable[tuple[int, int]]) -> list[Span]:
    """Spans without the white space that they begin with."""
    return [
        Span(end - len(text[start:end].lstrip()), end) if start < end else Span(start, end)
        for start, end in offsets
    ]


def train_tokenizer(
    sentences: Iterator[str],
    destination: Path,
    *,
    vocab_size: int,
    kind: Literal["unigram", "bpe"] = "unigram",
    character_coverage: float = 0.9999,
    normalization: str = "nmt_nfkc",
    sentinels: int = 0,
    num_threads: int = 1,
) -> Tokenizer:
    """Train a vocabulary on `sentences` (both languages) and write it to `destination`.

    Args:
        sentences: the text, one sentence an item.
        destination: the model file to write; it appears whole or not at all.
        vocab_size: pieces, the 4 special ones and 256 bytes included.
        kind: "unigram" (Kudo, 2018) or "bpe" (Sennrich et al., 2016).
        character_coverage: share of the characters that get a piece of their own; bytes spell
            the others.
        normalization: a rule set that SentencePiece knows.
        sentinels: number of sentinels, each a piece.
        num_threads: the result of the unigram training depends on it in the last digits, so it
            is not taken from the machine.

    Raises:
        TokenizerError: the text is too small for this vocabulary, or an option is refused.
    """
    temporary = destination.with_suffix(".partial")
    destination.parent.mkdir(parents=True, exist_ok=True)
    try:
        with temporary.open("wb") as writer:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=sentences,
                model_writer=writer,
                vocab_size=vocab_size,
                model_type=kind,
                character_coverage=character_coverage,
                normalization_rule_name=normalization,
                byte_fallback=True,
                split_digits=True,
                pad_id=PAD_ID,
                unk_id=UNK_ID,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                user_defined_symbols=[sentinel(n + 1) for n in range(sentinels)],
                num_threads=num_threads,
                minloglevel=2,
            )
    except (RuntimeError, OSError) as exc:
        temporary.unlink(missing_ok=True)
        # SentencePiece's messages begin with a place in its C++ source.
        reason = re.sub(r"^\w+: \S+\.cc\(\d+\) (\[.*?\] )?", "", str(exc))
        raise TokenizerError(
            f"cannot train a vocabulary of {vocab_size} pieces (vocabulary.vocab_size) on this "
            f"text: {reason}"
        ) from exc
    temporary.replace(destination)
    return Tokenizer.load(destination)
