"""Finds the pairs whose source is similar to a sentence, by features that both have.

An index of SQLite (FTS5) has the pairs of each feature: a word, or two neighbours. A sentence asks
for its own features, and those that few pairs have say the most. The best candidates are compared
letter by letter.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Sequence

from rapidfuzz import fuzz, process

from service.memory.wording import Wording

MAX_FOUND = 3
"""Most pairs that are found for a sentence."""

TABLE = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS features "
    "USING fts5(names, content = '', detail = 'none', columnsize = 0)"
)
# Longer sentences have no similar ones.
_MAX_CHARACTERS = 500
# A feature of this many pairs says little, and the index is read no further.
_COMMON = 256
_MAX_FEATURES = 32  # of a sentence that are looked up
_MAX_RARE = 16  # of these, most that are not common
_MAX_TOGETHER = 3  # common features, where a sentence has no others
_MAX_COMPARED = 64
_SECONDS = 0.1
_MAX_KNOWN_COMMON = 100_000
# Other letter case, or other things: similar, but not the same.
_MOST_SCORE = 0.99


class SimilarPairs:
    """The similar pairs of a database. Its methods run in the threads of the store.

    It remembers common features: a feature that is common stays so.
    """

    def __init__(self) -> None:
        self._common: set[str] = set()

    def find(
        self,
        connection: sqlite3.Connection,
        memory: int,
        languages: str,
        wording: Wording,
        least: float,
    ) -> list[tuple[float, str, str]]:
        """The most similar pairs, the best first: score, source and translation.

        Args:
            connection: connection to the database.
            memory: id of the memory.
            languages: name of the pair of languages.
            wording: the sentence.
            least: least score.
        """
        if len(wording.text) > _MAX_CHARACTERS:
            return []
        counts = self._counts(connection, feature_names(memory, languages, wording))
        ids = [pair for pair, _ in counts.most_common(_MAX_COMPARED)]
        marks = ",".join("?" * len(ids))
        sources = dict(
            connection.execute(
                f"SELECT id, source FROM pairs WHERE id IN ({marks}) AND +memory = ?",
                (*ids, memory),
            )
        )
        folded = {pair: source.casefold() for pair, source in sources.items()}
        found = process.extract(
            wording.folded, folded, scorer=fuzz.ratio, score_cutoff=100 * least, limit=MAX_FOUND
        )
        query, pairs = "SELECT target FROM pairs WHERE id = ?", []
        for _, score, pair in found:
            for (target,) in connection.execute(query, (pair,)):  # none if deleted meanwhile
                pairs.append((min(_MOST_SCORE, score / 100), sources[pair], target))
        return pairs

    def _counts(self, connection: sqlite3.Connection, names: Sequence[str]) -> Counter[int]:
        """The number of rare features that each pair has.

        For a sentence with common features only, it returns some pairs with the first of them.
        """
        counts: Counter[int] = Counter()
        ends, num_rare = time.monotonic() + _SECONDS, 0
        for name in [name for name in names if name not in self._common][:_MAX_FEATURES]:
            pairs = _pairs_with(connection, name)
            if len(pairs) == _COMMON:
                self._remember(name)
                continue
            counts.update(pairs)
            num_rare += 1
            if num_rare == _MAX_RARE or time.monotonic() > ends:
                break
        if not counts:
            for name in names[:_MAX_TOGETHER]:
                counts.update(_pairs_with(connection, name))
        return counts

    def _remember(self, name: str) -> None:
        if len(self._common) >= _MAX_KNOWN_COMMON:
            self._common.clear()  # they are found again; several threads may do this
        self._common.add(name)


def _pairs_with(connection: sqlite3.Connection, name: str) -> list[int]:
    rows = connection.execute(
        "SELECT rowid FROM features WHERE features MATCH ? LIMIT ?", (name, _COMMON)
    )
    return [pair for (pair,) in rows]


def feature_names(memory: int, languages: str, wording: Wording) -> list[str]:
    """The names in the index of a text's features, which no other memory shares."""
    return [_name(f"{memory} {languages} {feature}") for feature in wording.features()]


def add(connection: sqlite3.Connection, pair: int, names: Iterable[str]) -> None:
    """Add a pair to the index."""
    connection.execute("INSERT INTO features (rowid, names) VALUES (?, ?)", (pair, " ".join(names)))


def remove(connection: sqlite3.Connection, pair: int, names: Iterable[str]) -> None:
    """Remove a pair, which was added with the same names."""
    connection.execute(
        "INSERT INTO features (features, rowid, names) VALUES ('delete', ?, ?)",
        (pair, " ".join(names)),
    )


def _name(feature: str) -> str:
    return "f" + hashlib.blake2b(feature.encode(), digest_size=6).hexdigest()
