"""Carriers: strings that a model copies, and that stand in for what it would damage.

The server writes a carrier in place of a code, and the code in place of the carrier in the
translation. Which carriers a model copies is measured at its import or export, and recorded in its
bundle: `carriers`, best first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from model.bundle.tokenizer import MAX_SENTINELS, sentinel

SENTINELS = "sentinels"
"""The form of carriers that are single characters, and single pieces of the vocabulary."""
MAX_CARRIERS = 8
MAX_FORM = 16
_NUMBER = "%d"


@dataclass(frozen=True)
class Carrier:
    """A kind of carriers, which are numbered from 1 in the order of the sentence.

    Attributes:
        form: the string, with %d for the number; `SENTINELS` for the characters from U+E001 on.
        count: number of sentinels; None for other forms, which have no limit.
        kept: the share of measured sentences in which each came back exactly once; None if
            nothing was measured.
    """

    form: str
    count: int | None = None
    kept: float | None = None

    def written(self, number: int) -> str | None:
        """The carrier with a number; None if there are fewer."""
        if self.count is None:
            return self.form.replace(_NUMBER, str(number))
        return sentinel(number) if number <= self.count else None

    def to_dict(self) -> dict[str, Any]:
        """The entry of a manifest."""
        fields = {"form": self.form, "count": self.count, "kept": self.kept}
        return {name: value for name, value in fields.items() if value is not None}

    @classmethod
    def parse(cls, entry: Any) -> Carrier:
        """The carrier of an entry.

        Raises:
            ValueError: a field is missing or wrong; names it.
        """
        if not isinstance(entry, dict):
            raise ValueError(" is not an object")
        form, count, kept = entry.get("form"), entry.get("count"), entry.get("kept")
        if form == SENTINELS:
            if type(count) is not int or not 1 <= count <= MAX_SENTINELS:
                raise ValueError(f".count is not between 1 and {MAX_SENTINELS}")
        elif not isinstance(form, str) or not _is_form(form):
            raise ValueError(
                f'.form is neither "{SENTINELS}" nor 3 to {MAX_FORM} printable characters with %d '
                "once"
            )
        elif count is not None:
            raise ValueError(f'.count is for "{SENTINELS}" only')
        if kept is not None and (type(kept) not in (int, float) or not 0 <= kept <= 1):
            raise ValueError(".kept is not between 0 and 1")
        return cls(form, count, kept)


DEFAULT_CARRIERS = (Carrier("{%d}"), Carrier("%%d"), Carrier("XX%d"))
"""Carriers for bundles without recorded ones. Most models copy these, as they copy placeholders."""


def parse_carriers(entries: Any) -> tuple[Carrier, ...]:
    """The carriers of a manifest, best first.

    Raises:
        ValueError: the entries are wrong; the message begins after the name of the field.
    """
    if not isinstance(entries, list) or len(entries) > MAX_CARRIERS:
        raise ValueError(f" is not a list of {MAX_CARRIERS} entries at most")
    found: list[Carrier] = []
    for index, entry in enumerate(entries):
        try:
            carrier = Carrier.parse(entry)
        except ValueError as exc:
            raise ValueError(f"[{index}]{exc}") from exc
        if any(carrier.form == other.form for other in found):
            raise ValueError(f"[{index}].form is there twice")
        found.append(carrier)
    return tuple(found)


def in_common(first: Sequence[Carrier], second: Sequence[Carrier]) -> tuple[Carrier, ...]:
    """The carriers that two models copy, in the first one's order: for a translation by both.

    If there are none, carriers of one model that the other may copy too, since bundles record only
    the best.
    """
    if not first or not second:
        return ()
    others = {carrier.form: carrier for carrier in second}
    shared = []
    for carrier in first:
        if (other := others.get(carrier.form)) is not None:
            shared.append(min(carrier, other, key=lambda each: each.count or 0))
    return tuple(shared or (each for each in (*first, *second) if each.count is None))


def _is_form(form: str) -> bool:
    rest = form.replace(_NUMBER, "", 1)
    return (
        form.count(_NUMBER) == 1
        and 1 <= len(rest) <= MAX_FORM - len(_NUMBER)
        and rest.isprintable()
        and not any(character.isspace() or character.isdigit() for character in rest)
    )
