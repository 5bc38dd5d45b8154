"""Options of the stages above the sentence translator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TextOptions:
    """What to do with the texts of a request beside translating their sentences.

    A request without any of it has the defaults, and needs no stage.
    """
