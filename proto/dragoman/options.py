"""Options of the client's requests, free of protobuf: how to search for a translation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike


@dataclass(frozen=True)
class Sampling:
    """Options of random sampling: the contract's `Sampling`, which has ranges and defaults.

    Attributes:
        temperature: below 1, likely tokens become likelier still.
        top_k: the number of best tokens to draw from.
        top_p: share of these tokens' probability: the fewest that reach it are drawn from.
        seed: the same seed draws the same translation of the same sentence; with None, each draw is
            independent, also of the same text within one call.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None


@dataclass(frozen=True)
class VerbatimKinds:
    """Kinds of things that a translation keeps as they are; None leaves a kind to the server.

    The contract's `VerbatimOptions` says what belongs to each kind.
    """

    placeholders: bool | None = None
    urls: bool | None = None
    emails: bool | None = None
    code: bool | None = None
    emoji: bool | None = None
    symbols: bool | None = None
    numbers: bool | None = None
    identifiers: bool | None = None
    foreign_words: bool | None = None

    @classmethod
    def none(cls) -> VerbatimKinds:
        """Switch off all kinds, so that only the model decides what is kept."""
        return cls(*[False] * 9)


@dataclass(frozen=True)
class Glossary:
    """Terms and the translations that they are to have: the contract's `Glossary`.

    Attributes:
        entries: a translation, or several accepted ones as "Hund|Hundes|Hunde", for each term.
        name: name of a glossary of the server; for the same term, `entries` take precedence.
    """

    entries: Mapping[str, str] = field(default_factory=dict)
    name: str = ""

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Glossary:
        """The glossary in a file of tab-separated values, in UTF-8.

        Blank lines, and lines that begin with `#`, are skipped. Of two lines with the same term,
        the first counts.

        Raises:
            OSError, UnicodeDecodeError: the file can't be read.
            ValueError: a line has not two columns; names the line.
        """
        entries: dict[str, str] = {}
        with open(path, encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if not line.strip() or line.startswith("#"):
                    continue
                cells = line.rstrip("\r\n").split("\t")
                if len(cells) != 2:
                    raise ValueError(
                        f"{path}, line {number}: needs two columns with a tab between them, "
                        f"has {len(cells)}"
                    )
                entries.setdefault(*cells)
        return cls(entries)


@dataclass(frozen=True)
class Search:
    """Options of the search for a translation; None leaves a field to the server.

    The contract's `SearchOptions` has the ranges and the defaults.

    Attributes:
        beam_size: hypotheses searched in parallel; 1 is greedy search.
        length_penalty: the exponent alpha.
        length_penalty_kind: "power" or "gnmt".
        early_stopping: "heuristic", "first" or "never".
        min_new_tokens: the least number of tokens before the end.
        suppressed_tokens: pieces of the vocabulary that are never generated.
        repetition_penalty: multiplies the log-probabilities of tokens generated before.
        no_repeat_ngram_size: no sequence of this many tokens repeats.
        target_prefix: the beginning of each text's translation.
        sampling: draw tokens at random.
        exact: search the whole vocabulary, where the model has a shortlist.
    """

    beam_size: int | None = None
    length_penalty: float | None = None
    length_penalty_kind: str | None = None
    early_stopping: str | None = None
    min_new_tokens: int | None = None
    suppressed_tokens: Sequence[str] = ()
    repetition_penalty: float | None = None
    no_repeat_ngram_size: int | None = None
    target_prefix: str | None = None
    sampling: Sampling | None = None
    exact: bool | None = None

    def __post_init__(self) -> None:
        if isinstance(self.suppressed_tokens, str):
            raise TypeError("suppressed_tokens: must be several pieces, not one text")

    @classmethod
    def ctranslate2(cls, beam_size: int = 2, length_penalty: float = 1.0) -> Search:
        """The beam search of CTranslate2's `translate_batch`, which stops at the first k that end.

        With one difference: CTranslate2 generates at least one token (`min_decoding_length=1`) and
        rescales the probabilities of the first for that. Here, `replace(..., min_new_tokens=1)`
        forbids the empty translation, without rescaling.
        """
        return cls(beam_size, length_penalty, "power", "first")

    @classmethod
    def hugging_face(
        cls, beam_size: int = 4, length_penalty: float = 1.0, early_stopping: str = "heuristic"
    ) -> Search:
        """The beam search of Hugging Face's `generate` with `num_beams=beam_size`.

        Its `early_stopping` False is "heuristic" here, True is "first", and "never" is "never".
        """
        return cls(beam_size, length_penalty, "power", early_stopping)

    @classmethod
    def gnmt(cls, beam_size: int = 4, length_penalty: float = 0.6) -> Search:
        """A beam search with the length penalty of Wu et al. (2016, equation 14)."""
        return cls(beam_size, length_penalty, "gnmt", "heuristic")
