"""Tools to replace the model of a server under a steady load."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from dragoman.client import AsyncClient, StreamEnd
from tests.factories import SENTENCES
from tests.integration.servers import running_bundle

NUM_CLIENTS = 3
TEXTS, NUM_TOKENS = SENTENCES[:3], 12


def change(directory: Path, **fields: Any) -> None:
    """Change the manifest of a bundle."""
    file = directory / "bundle.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def put(version: Path, place: Path) -> None:
    """Replace the bundle in a directory by renames, as operators should."""
    prepared = place.with_name(f"{place.name}.new")
    shutil.copytree(version, prepared)
    if place.exists():
        place.rename(place.with_name(f"{place.name}.old"))
        prepared.rename(place)
        shutil.rmtree(place.with_name(f"{place.name}.old"))
    else:
        prepared.rename(place)


async def texts_of(*models: Path, **pair: Any) -> list[str]:
    """Translations by a server of only these models; `pair` is for multilingual ones."""
    async with running_bundle(*models) as alone:
        batch = await alone.client.translate(list(TEXTS), max_new_tokens=NUM_TOKENS, **pair)
        return [translation.text for translation in batch.translations]


def model_processes(server: int) -> list[int]:
    """The model processes that a server has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            is_child = int(path.read_text().rpartition(")")[2].split()[1]) == server
            if is_child and b"\0service.worker\0" in (path.parent / "cmdline").read_bytes():
                found.append(int(path.parent.name))
    return found


class SteadyLoad:
    """Clients that call one after another: unary calls, streams, scores and attention weights.

    A call that fails fails the test.

    Args:
        pair: languages, `source` and `target`, for a server with several.
        can_score: whether a single model translates between them.

    Attributes:
        phase: phase of the calls that start now.
        answers: translations by the phase that their calls started in, a tuple for each call.
    """

    def __init__(self, pair: Mapping[str, Any], can_score: bool) -> None:
        self.phase = 0
        self.answers: dict[int, list[tuple[str, ...]]] = defaultdict(list)
        self._answered = asyncio.Event()
        self._pair = pair
        self._can_score = can_score
        self._is_over = False

    @classmethod
    @contextlib.asynccontextmanager
    async def on(
        cls, address: str, *, can_score: bool = True, **pair: Any
    ) -> AsyncIterator[SteadyLoad]:
        """Run the clients on the server at `address`."""
        load = cls(pair, can_score)
        async with AsyncClient(address, timeout=120) as client, asyncio.TaskGroup() as group:
            group.create_task(load._stream_and_score(client))
            for _ in range(NUM_CLIENTS - 1):
                group.create_task(load._translate(client))
            try:
                yield load
            finally:
                load._is_over = True

    async def next_phase(self) -> set[tuple[str, ...]]:
        """Begin another phase; returns the first answers of its calls of each kind."""
        self.phase += 1
        answers = self.answers[self.phase]
        while {len(texts) for texts in answers} != {1, len(TEXTS)}:
            self._answered.clear()
            await self._answered.wait()
        return set(answers)

    async def _stream_and_score(self, client: AsyncClient) -> None:
        while not self._is_over:
            phase = self.phase
            stream = client.stream(TEXTS[0], max_new_tokens=NUM_TOKENS, **self._pair)
            pieces = [piece async for piece in stream]
            assert isinstance(pieces[-1], StreamEnd)
            self._add(phase, "".join(str(piece) for piece in pieces[:-1]))
            if self._can_score:
                scores = await client.score([(TEXTS[0], SENTENCES[4])], **self._pair)
                assert scores.scores[0].error is None
                await client.attention(TEXTS[0], SENTENCES[4], **self._pair)

    async def _translate(self, client: AsyncClient) -> None:
        while not self._is_over:
            phase = self.phase
            batch = await client.translate(list(TEXTS), max_new_tokens=NUM_TOKENS, **self._pair)
            assert [each.error for each in batch.translations] == [None] * len(TEXTS)
            self._add(phase, *(each.text for each in batch.translations))

    def _add(self, phase: int, *texts: str) -> None:
        self.answers[phase].append(texts)
        self._answered.set()
