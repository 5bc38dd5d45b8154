"""A model in a foreign format, read whole: the result of every reader of an import."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from export.arithmetic import FixedSteps
from model.bundle.config import AlignmentHead, ModelConfig
from model.bundle.directions import Directions
from model.bundle.piece_tokenizer import PieceTokenizer
from model.bundle.shortlist import Shortlist
from model.network.transformer import Transformer

# Called with the stage, the number of finished sentences and of all sentences.
OnProgress = Callable[[str, int, int], None]


class Comparison(Protocol):
    """Runs another engine that reads the same files."""

    @property
    def engine(self) -> str:
        """The engine's name."""
        ...

    def is_possible(self) -> bool:
        """Whether the engine is installed."""
        ...

    def comparable(self, sentences: Sequence[str], more: bool = False) -> Sequence[str]:
        """The sentences that both read alike; with `more`, others of their words may be added."""
        ...

    def compare(self, sentences: Sequence[str], on_progress: OnProgress | None) -> Any:
        """The agreement, a dataclass with a text.

        Raises:
            ExportError: the network translates differently; names the sentence.
        """
        ...


@dataclass(frozen=True)
class ForeignModel:
    """A model as its files describe it.

    Attributes:
        architecture: common name of the architecture.
        config: sizes and options of the network.
        model: the network, in evaluation mode.
        tokenizer: the tokenizer of the first direction.
        directions: all imported directions.
        checksums: facts that identify the files.
        search: its authors' default search, fields of `SearchOptions` by name.
        comparison: comparison with an engine that reads the same files; None if there is none.
        alignment_head: the head that was trained to align, if one was.
        shortlist: the target tokens that a sentence may produce, if its files say so.
        steps: prescribed steps of 8-bit numbers, if any; see `export.weights.Weights`.
    """

    architecture: str
    config: ModelConfig
    model: Transformer
    tokenizer: PieceTokenizer
    directions: Directions
    checksums: Mapping[str, str] = field(default_factory=dict)
    search: Mapping[str, Any] = field(default_factory=dict)
    comparison: Comparison | None = None
    alignment_head: AlignmentHead | None = None
    shortlist: Shortlist | None = None
    steps: Mapping[str, FixedSteps] = field(default_factory=dict)
