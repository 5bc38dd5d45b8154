"""Texts with parts that a translation has to keep, and the check of their translations.

Placeholders, addresses, numbers, emoji and code have to come back verbatim; a text in capitals as
one in capitals; a text without a full stop without one. None of these texts is made by
`model.data.augmentation`, which makes such text for training.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_FRAMES = (
    "Please send {} to me.",
    "We could not find {} anywhere.",
    "Do you know what {} means?",
    "The new value is {}.",
    "I have seen {} before.",
    "Click on {} and then wait.",
    "Why is {} missing?",
    "{} was changed yesterday.",
)
_EMOJI_FRAMES = ("Good morning! {}", "I love this song {}", "{} See you soon!", "That is bad {}.")
_VERBATIM = {
    "placeholders": [
        "{name}",
        "{count}",
        "{0}",
        "%s",
        "%d",
        "%1$s",
        "%(user)s",
        "${HOME}",
        "{{item}}",
        "<br>",
    ],
    "web addresses": [
        "https://example.com",
        "http://www.wetter.de/berlin",
        "https://docs.python.org/3/library/re.html",
        "www.example.org/a?b=1&c=2",
        "https://en.wikipedia.org/wiki/Berlin#History",
    ],
    "e-mail addresses": [
        "anna@example.com",
        "john.smith@mail.co.uk",
        "info@stadt-koeln.de",
        "a_b+c@x.org",
        "support@firma.eu",
    ],
    "numbers": ["7", "42", "1969", "8080", "123456", "3.11.4", "2024-03-15", "192.168.0.1", "007"],
    "code": ["`git pull`", "`x = 1`", "`--force`", "`foo_bar()`", "`/etc/hosts`", "`print(a, b)`"],
}
_EMOJI = ("😀", "❤️", "👍🏽", "🎉🎉", "🚀", "😂")
_SENTENCES = (
    "The children are playing in the garden",
    "I would like a cup of coffee",
    "My brother lives in a small town",
    "She is reading a book",
    "The train leaves in ten minutes",
    "We have no time for this today",
    "Two men are standing on the street",
    "He did not answer my question",
    "It is very cold outside",
    "The door is open",
)


@dataclass(frozen=True)
class RobustInput:
    """A text, and the part that its translation has to keep.

    Attributes:
        kind: kind of the part, for the report.
        text: the source.
        part: string that has to come back verbatim; "" for a rule about the whole text.
    """

    kind: str
    text: str
    part: str = ""

    def is_kept(self, translation: str) -> bool:
        """Whether the translation has kept the part, or follows the rule."""
        if self.part:
            part = re.escape(self.part)
            # A number inside another one is not kept.
            pattern = rf"(?<![\w.,]){part}(?!\w)" if self.kind == "numbers" else part
            return re.search(pattern, translation) is not None
        if self.kind == "capitals":
            return translation.isupper()
        return bool(translation.strip()) and not translation.rstrip().endswith(".")


def robust_inputs() -> list[RobustInput]:
    """All texts, by kind."""
    return [*_with_parts(), *_whole()]


def _with_parts() -> Iterator[RobustInput]:
    for kind, parts in _VERBATIM.items():
        yield from (
            RobustInput(kind, frame.format(part), part) for part in parts for frame in _FRAMES
        )
    yield from (
        RobustInput("emoji", frame.format(part), part) for part in _EMOJI for frame in _EMOJI_FRAMES
    )


def _whole() -> Iterator[RobustInput]:
    yield from (RobustInput("capitals", f"{sentence.upper()}.") for sentence in _SENTENCES)
    yield from (RobustInput("no full stop", sentence) for sentence in _SENTENCES)


def kept_shares(
    inputs: Sequence[RobustInput], translations: Sequence[str]
) -> dict[str, tuple[int, int]]:
    """For each kind, the number of texts that were kept, and the number of all."""
    counts: dict[str, tuple[int, int]] = {}
    for one, translation in zip(inputs, translations, strict=True):
        kept, total = counts.get(one.kind, (0, 0))
        counts[one.kind] = kept + one.is_kept(translation), total + 1
    return counts
