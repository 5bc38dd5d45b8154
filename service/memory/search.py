"""Searches a memory for a request, within a thread that reads."""

from __future__ import annotations

import sqlite3

from service.memory.adaptation import adapted
from service.memory.pairs import MAX_CHARACTERS, MemoryUse, TextPair, languages_key
from service.memory.similar import SimilarPairs
from service.memory.tables import PAIR, hash_of
from service.memory.wording import Wording
from service.translation.results import MemoryMatch

# Pairs of one shape that are tried for a sentence, the newest first.
_MAX_TRIED = 8


class MemorySearch:
    """Searches of a request.

    Args:
        connection: connection of the running thread.
    """

    def __init__(
        self, connection: sqlite3.Connection, similar_pairs: SimilarPairs, use: MemoryUse
    ) -> None:
        self._connection = connection
        self._similar = similar_pairs
        self._use = use
        self._languages = languages_key(use.source, use.target)

    def exact(self, text: str) -> MemoryMatch | None:
        """The pair that translates a text; None without one."""
        if len(text) > MAX_CHARACTERS:
            return None
        use, wording = self._use, Wording.of(text, self._use.source)
        for field, written in (("wording", wording.text), ("shape", wording.shape)):
            rows = self._connection.execute(
                f"SELECT {PAIR} FROM pairs WHERE {field} = ? AND +memory = ? "
                "ORDER BY id DESC LIMIT ?",
                (hash_of(use.memory.id, self._languages, written), use.memory.id, _MAX_TRIED),
            )
            for row in rows:
                pair = TextPair(*row)
                translated = adapted(pair, wording, use.source, use.target)
                if translated is not None:
                    return MemoryMatch(text, pair.source, translated, 1.0, use.memory.name)
        return None

    def similar(self, text: str) -> list[MemoryMatch]:
        """The pairs that are similar to a text, the best first."""
        use = self._use
        if use.threshold >= 1.0:
            return []
        wording = Wording.of(text, use.source)
        found = self._similar.find(
            self._connection, use.memory.id, self._languages, wording, use.threshold
        )
        return [
            MemoryMatch(text, source, target, score, use.memory.name)
            for score, source, target in found
        ]
