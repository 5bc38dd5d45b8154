"""Measures look-ups in a large translation memory.

    python -m bench.memory_search --text train.en --pairs 1000000 --store /tmp/memories.db

The pairs have the lines of the text as their sources; a store that has the memory already is not
filled again. Looked up are stored lines (exact), stored lines with a word less and another one
changed (similar), and lines that are not stored. It prints times of look-ups, with the way to
the thread and back, how many of the changed lines that are similar enough find the line that they
were made from, and the longest pause of the event loop meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import operator
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from rapidfuzz import fuzz

from service.memory.pairs import MAX_CHARACTERS, MemoryUse, StoredMemory, TextPair
from service.memory.search import MemorySearch
from service.memory.store import TranslationMemories
from service.memory.wording import normalised

_NAME, _OWNER = "measured", ""
_LEAST_WORDS, _MOST_WORDS = 6, 40
_PORTION = 10_000
_TICK_SECONDS = 0.001
_IDLE_SECONDS = 3.0

T = TypeVar("T")


def _lines(paths: Sequence[Path]) -> Iterator[str]:
    """Different lines, in the order of the files."""
    seen: set[int] = set()
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in file:
                text = normalised(line)
                if text and len(text) <= MAX_CHARACTERS and hash(text) not in seen:
                    seen.add(hash(text))
                    yield text


async def _filled(store: TranslationMemories, lines: Iterator[str], num_pairs: int) -> StoredMemory:
    """The memory with this many pairs, which are added if it does not exist."""
    known = {memory.name: memory for memory in await store.memories(_OWNER)}
    if _NAME in known:
        return known[_NAME]
    await store.create(_OWNER, _NAME)
    began = time.perf_counter()
    taken = itertools.islice(lines, num_pairs)
    while portion := list(itertools.islice(taken, _PORTION)):
        pairs = [TextPair(text, text, "en", "de") for text in portion]
        await store.add(_OWNER, _NAME, pairs)
    memory = await store.find(_OWNER, _NAME)
    print(f"{memory.num_pairs:,} pairs added in {time.perf_counter() - began:,.0f} s")
    return memory


def _changed(text: str, rng: random.Random) -> str:
    """A line with a word less, and another word in place of a second one."""
    words = text.split()
    del words[rng.randrange(len(words))]
    words[rng.randrange(len(words))] = rng.choice(("something", "however", "these"))
    return " ".join(words)


async def _timed(
    store: TranslationMemories, use: MemoryUse, work: Callable[[MemorySearch], T]
) -> tuple[float, T]:
    began = time.perf_counter()
    found = await store.search("bench", use, work)
    return 1000 * (time.perf_counter() - began), found


class _Pauses:
    """The longest pause of the event loop."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            began = time.perf_counter()
            await asyncio.sleep(_TICK_SECONDS)
            self.longest = max(self.longest, time.perf_counter() - began - _TICK_SECONDS)


def _shown(name: str, times: Sequence[float], rest: str = "") -> None:
    cuts = statistics.quantiles(times, n=100)
    print(
        f"{name}: median {statistics.median(times):.2f} ms, 95 % {cuts[94]:.2f} ms, "
        f"longest {max(times):.2f} ms{rest}"
    )


async def _measure(arguments: argparse.Namespace) -> None:
    store = TranslationMemories(str(arguments.store))
    await store.start()
    lines = _lines(arguments.text)
    memory = await _filled(store, lines, arguments.pairs)
    use = MemoryUse(memory, "en", "de", arguments.threshold)
    rng = random.Random(1)
    known, new = list[str](), list[str]()
    for number, text in enumerate(_lines(arguments.text)):
        if _LEAST_WORDS <= len(text.split()) <= _MOST_WORDS:
            (known if number < memory.num_pairs else new).append(text)
    known = rng.sample(known, arguments.queries)
    pauses = _Pauses()
    watching = asyncio.create_task(pauses.watch())
    await asyncio.sleep(_IDLE_SECONDS)
    idle, pauses.longest = pauses.longest, 0.0
    for _ in range(2):  # the first round fills the caches
        exact, similar, none = list[float](), list[float](), list[float]()
        num_found = num_similar = 0
        for text in known:
            exact.append((await _timed(store, use, operator.methodcaller("exact", text)))[0])
            varied = _changed(text, rng)
            milliseconds, found = await _timed(store, use, operator.methodcaller("similar", varied))
            similar.append(milliseconds)
            if fuzz.ratio(varied.casefold(), text.casefold()) >= 100 * use.threshold:
                num_similar += 1
                num_found += any(match.source == text for match in found)
        for text in rng.sample(new, min(len(new), arguments.queries)):
            none.append((await _timed(store, use, operator.methodcaller("similar", text)))[0])
    watching.cancel()
    size = arguments.store.stat().st_size / 2**20
    print(f"{memory.num_pairs:,} pairs, {size:,.0f} MiB, {len(known)} look-ups of each kind")
    _shown("exact", exact)
    _shown("similar", similar, f"; {num_found} of {num_similar} found their line")
    if len(none) > 1:
        _shown("similar, of a line that is not stored", none)
    print(
        f"longest pause of the event loop: {1000 * pauses.longest:.1f} ms; before, without "
        f"look-ups: {1000 * idle:.1f} ms"
    )
    await store.stop()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--text", type=Path, nargs="+", required=True, help="files of sentences")
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--threshold", type=float, default=0.75)
    parser.add_argument("--store", type=Path, required=True, help="database, made if missing")
    asyncio.run(_measure(parser.parse_args()))


if __name__ == "__main__":
    main()
