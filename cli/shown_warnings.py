"""Shows warnings of translations on standard error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from dragoman.client import TranslationWarning

_WORDS = {
    "missing": "lost",
    "added": "added",
    "place": "at the end, as its place is not known",
    "quotes": "quotation marks lost or added",
    "signs": "signs lost or added",
    "character": "an invalid character",
    "repetition": "repeats itself",
    "length": "much too short or long",
    "untranslated": "not translated",
}


def show_warnings(warnings: Sequence[TranslationWarning], most: int | None = None) -> None:
    """A line for each warning, or for the first ones, and how many more there are."""
    for warning in warnings[:most]:
        what = _WORDS.get(warning.kind, warning.kind)
        about = f" ({warning.text})" if warning.text else ""
        typer.echo(f"warning: {what}{about}: {warning.sentence}", err=True)
    if most is not None and len(warnings) > most:
        typer.echo(f"... and {len(warnings) - most:,} more warnings", err=True)
