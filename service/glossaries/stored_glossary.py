"""The types of clients' glossaries, and a cache of their dictionaries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from service.glossaries.entries import MAX_ENTRIES, read_entries
from service.glossaries.glossary import Glossary

Pair = tuple[str, str]
"""The codes of a source and a target language, in lower case."""


@dataclass(frozen=True)
class GlossaryText:
    """A dictionary in a client's request.

    Attributes:
        source, target: languages, BCP-47 codes in lower case.
        entries: text of the entries.
        form: format of the text: tsv or csv.
        field: name of the field, for messages.
    """

    source: str
    target: str
    entries: str
    form: str = "tsv"
    field: str = "entries"

    def read(self) -> dict[str, str]:
        """Read the entries. Raises InvalidArgumentError, which names an invalid entry."""
        entries = read_entries(self.entries, self.form, self.field)
        Glossary.of(entries.items(), field=self.field, max_entries=MAX_ENTRIES)
        return entries


@dataclass(frozen=True)
class StoredDictionary:
    """Description of a stored dictionary.

    Attributes:
        source, target: languages.
        num_entries: number of entries.
    """

    source: str
    target: str
    num_entries: int


@dataclass(frozen=True)
class StoredGlossary:
    """Description of a stored glossary.

    Attributes:
        id: random id, which cannot be guessed.
        name: name that the owner chose.
        created: time of creation, in seconds since the epoch.
        dictionaries: descriptions of the dictionaries, in the order of their languages.
    """

    id: str
    name: str
    created: float
    dictionaries: tuple[StoredDictionary, ...]


@dataclass(frozen=True)
class StoreLimits:
    """Limits of a store.

    Attributes:
        max_bytes: most bytes of all entries.
        max_owner_bytes: most bytes of one owner's entries.
        max_kept_entries: most entries of cached dictionaries.
    """

    max_bytes: int = 64 * 2**20
    max_owner_bytes: int = 16 * 2**20
    max_kept_entries: int = 50_000


@dataclass
class KeptGlossaries:
    """A cache of dictionaries that were read for translations.

    Attributes:
        max_entries: most entries; one dictionary is always kept.
        glossaries: dictionaries by id and languages, the most recently used last.
        num_entries: number of entries of all dictionaries.
    """

    max_entries: int
    glossaries: OrderedDict[tuple[str, Pair], Glossary] = field(default_factory=OrderedDict)
    num_entries: int = 0

    def get(self, key: tuple[str, Pair], read: Callable[[], Glossary]) -> Glossary:
        """A dictionary, which is read if it is not cached."""
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
