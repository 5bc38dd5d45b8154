"""The largest request that is taken, in texts and characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.errors import InvalidArgumentError

NORMALISED = " after normalisation (NFKC)"


@dataclass(frozen=True)
class TranslatorLimits:
    """The largest request that is taken.

    Attributes:
        max_texts: texts, or pairs of a text and its translation, in one request.
        max_characters: characters (code points) in one text; also after normalisation (NFKC), by
            which a character can become 18.
        max_request_characters: characters in all texts of one request, likewise.
    """

    max_texts: int = 1024
    max_characters: int = 100_000
    max_request_characters: int = 1_000_000

    def check_count(self, field: str, count: int, unit: str) -> None:
        """Whether so many are taken.

        Raises:
            InvalidArgumentError: from all methods: they are not; names the field and the limit.
        """
        if count > self.max_texts:
            raise InvalidArgumentError(field, f"{count:,} {unit}, the limit is {self.max_texts:,}")

    def check_lengths(
        self, field: str, names: Sequence[str], lengths: Sequence[int], note: str = ""
    ) -> None:
        """Whether texts of these lengths are taken.

        Args:
            field: of all texts together.
            names: of each.
            lengths: characters of each.
            note: of what they are characters.
        """
        for name, length in zip(names, lengths, strict=True):
            self.check_length(name, length, note)
        total, limit = sum(lengths), self.max_request_characters
        if total > limit:
            raise InvalidArgumentError(
                field, f"{total:,} characters{note} in all texts, the limit is {limit:,}"
            )

    def check_length(self, field: str, length: int, note: str = "") -> None:
        """Whether one text of so many characters is taken."""
        if length > self.max_characters:
            raise InvalidArgumentError(
                field, f"{length:,} characters{note}, the limit is {self.max_characters:,}"
            )
