"""A glossary that a client made: what is known of it, and what of it is kept in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from service.text.glossaries.entries import MAX_ENTRIES, read_entries
from service.text.glossaries.glossary import Glossary

Pair = tuple[str, str]
"""The codes of a source and a target language, in lower case."""


@dataclass(frozen=True)
class GlossaryText:
    """A dictionary as a client sends it.

    Attributes:
        source, target: languages, BCP-47 codes in lower case.
        entries: as text.
        form: of the text: tsv or csv.
        field: for messages.
    """

    source: str
    target: str
    entries: str
    form: str = "tsv"
    field: str = "entries"

    def read(self) -> dict[str, str]:
        """The entries. Raises InvalidArgumentError: one is wrong; names it."""
        entries = read_entries(self.entries, self.form, self.field)
        Glossary.of(entries.items(), field=self.field, max_entries=MAX_ENTRIES)
        return entries


@dataclass(frozen=True)
class StoredDictionary:
    """What is known of a dictionary.

    Attributes:
        source, target: its languages.
        num_entries: how many it has.
    """

    source: str
    target: str
    num_entries: int


@dataclass(frozen=True)
class StoredGlossary:
    """What is known of a glossary.

    Attributes:
        id: which nobody can guess.
        name: that its owner gave it.
        created: seconds since the epoch.
        dictionaries: by languages.
    """

    id: str
    name: str
    created: float
    dictionaries: tuple[StoredDictionary, ...]


@dataclass(frozen=True)
class StoreLimits:
    """How much a store holds.

    Attributes:
        max_bytes: of all entries.
        max_owner_bytes: of those of one owner.
        max_kept_entries: of dictionaries that were read for translations.
    """

    max_bytes: int = 64 * 2**20
    max_owner_bytes: int = 16 * 2**20
    max_kept_entries: int = 50_000


@dataclass
class KeptGlossaries:
    """Dictionaries that were read for translations, within a number of entries.

    Attributes:
        max_entries: the limit; one dictionary is kept in any case.
        glossaries: by the id and the languages, the last used one last.
        num_entries: of all.
    """

    max_entries: int
    glossaries: OrderedDict[tuple[str, Pair], Glossary] = field(default_factory=OrderedDict)
    num_entries: int = 0

    def get(self, key: tuple[str, Pair], read: Callable[[], Glossary]) -> Glossary:
        """A dictionary, which is read if it is not kept."""
        if (found := self.glossaries.get(key)) is None:
            found = self.glossaries[key] = read()
            self.num_entries += len(found.entries)
        self.glossaries.move_to_end(key)
        while self.num_entries > self.max_entries and len(self.glossaries) > 1:
            self._drop(next(iter(self.glossaries)))
        return found

    def forget(self, glossary_id: str) -> None:
        """Drop all dictionaries of a glossary."""
        for key in [key for key in self.glossaries if key[0] == glossary_id]:
            self._drop(key)

    def _drop(self, key: tuple[str, Pair]) -> None:
        self.num_entries -= len(self.glossaries.pop(key).entries)
