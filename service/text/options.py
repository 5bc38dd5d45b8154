"""Options of the stages above the sentence translator."""

from __future__ import annotations

from dataclasses import dataclass

from service.text.glossary import NO_GLOSSARY, Glossary
from service.text.things import Kind


@dataclass(frozen=True)
class TextOptions:
    """What to do with the texts of a request beside translating their sentences.

    A request without any of it has the defaults, and needs no stage.

    Attributes:
        verbatim: kinds of things that are kept as they are.
        adapt_letter_case: whether CAPITALS and Title Case are translated in another letter case.
        glossary: terms and their translations.
    """

    verbatim: frozenset[Kind] = frozenset()
    adapt_letter_case: bool = False
    glossary: Glossary = NO_GLOSSARY

    @property
    def needs_terms(self) -> bool:
        """Whether sentences need the stage for things, terms and letter case."""
        return bool(self.verbatim or self.adapt_letter_case or self.glossary)
