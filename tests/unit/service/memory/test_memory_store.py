"""Memories in SQLite: their owners', bounded, and whole after the server was killed."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.common import database
from service.errors import (
    InvalidArgumentError,
    NotFoundError,
    StartupError,
    UnavailableError,
)
from service.memory import pairs as limits
from service.memory import store as memory_store
from service.memory import tables
from service.memory.pairs import MemoryUse, TextPair, languages_key
from service.memory.store import TranslationMemories
from service.translation.results import MemoryMatch


def german(source: str, target: str) -> TextPair:
    return TextPair(source, target, "en", "de")


@contextlib.asynccontextmanager
async def opened(path: Path) -> AsyncIterator[TranslationMemories]:
    store = TranslationMemories(str(path / "memories.db"))
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


async def exact(
    store: TranslationMemories, text: str, owner: str = "a", name: str = "m"
) -> str | None:
    use = MemoryUse(await store.find(owner, name), "en", "de")
    found = await store.search("client", use, lambda search: search.exact(text))
    return found.target if found else None


async def similar(
    store: TranslationMemories, text: str, owner: str = "a", least: float = 0.6
) -> list[MemoryMatch]:
    use = MemoryUse(await store.find(owner, "m"), "en", "de", least)
    return await store.search("client", use, lambda search: search.similar(text))


async def test_memories_are_still_there_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.create("a", "m")
        assert (
            await store.add("a", "m", [german("A dog.", "Hund."), german("A cat.", "Katze.")]) == 2
        )
        assert await store.add("a", "m", [german(" A  dog. ", "Köter.")]) == 0
    async with opened(tmp_path) as store:
        [memory] = await store.memories("a")
        assert (memory.name, memory.num_pairs) == ("m", 2)
        assert await exact(store, "A dog.") == "Köter."
        found = [pair async for some in store.pairs("a", "m") for pair in some]
        assert found == [german("A dog.", "Köter."), german("A cat.", "Katze.")]


async def test_owners_do_not_see_each_others_memories(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for owner in ("a", "b"):
            await store.create(owner, "m")
        await store.add("a", "m", [german("A dog runs.", "Hund.")])
        assert await exact(store, "A dog runs.", "b") is None
        assert await similar(store, "A dog runs!", "b") == []
        assert [each.source for each in await similar(store, "A dog runs!")] == ["A dog runs."]
        for work in (store.find("c", "m"), store.delete("c", "m"), store.add("c", "m", [])):
            if asyncio.iscoroutine(work):
                with contextlib.suppress(NotFoundError):
                    assert await work == 0  # nothing to add
        await store.delete("b", "m")
        assert await exact(store, "A dog runs.") == "Hund."


async def test_languages_are_kept_apart(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.create("a", "m")
        await store.add("a", "m", [TextPair("Yes.", "Oui.", "en", "fr")])
        assert await exact(store, "Yes.") is None
        await store.add("a", "m", [TextPair("Yes.", "Ja.", "en-US", "de-AT")])
        assert await exact(store, "Yes.") == "Ja."
        assert (await store.find("a", "m")).num_pairs == 2


def test_a_region_does_not_count_and_a_script_does() -> None:
    assert languages_key("EN-us", "de") == languages_key("en", "de-AT")
    assert (
        languages_key("en", "zh-TW") == languages_key("en", "zh-Hant") != languages_key("en", "zh")
    )
    assert languages_key("en", "zh-CN") == languages_key("en", "zh-Hans-SG")


async def test_a_deleted_memory_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_store, "BATCH_PAIRS", 10)
    async with opened(tmp_path) as store:
        for owner in ("a", "b"):
            await store.create(owner, "m")
            await store.add(owner, "m", [german(f"Line number {i}.", "x") for i in range(25)])
        await store.delete("a", "m")
        await store.create("a", "m")
        assert await exact(store, "Line number 1.") is None
        assert store._cleaning is not None
        await store._cleaning
        assert await exact(store, "Line number 1.", "b") == "x"
    with contextlib.closing(sqlite3.connect(tmp_path / "memories.db")) as database:
        assert database.execute("SELECT count(*), min(memory) FROM pairs").fetchone() == (25, 2)
        found = database.execute("SELECT count(*) FROM features WHERE features MATCH 'f*'")
        assert found.fetchone() == (25,)


async def test_deletion_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.create("a", "m")
        await store.add("a", "m", [german("A dog.", "Hund.")])
    with contextlib.closing(sqlite3.connect(tmp_path / "memories.db")) as database:
        tables.delete_memory(database, 1)
        database.commit()
    async with opened(tmp_path) as store:
        assert store._cleaning is not None
        await store._cleaning
    with contextlib.closing(sqlite3.connect(tmp_path / "memories.db")) as database:
        assert database.execute("SELECT count(*) FROM pairs").fetchone() == (0,)


async def test_similar_pairs_come_in_order(tmp_path: Path) -> None:
    known = [
        german("The quick brown fox jumps over the lazy dog.", "1"),
        german("The quick brown fox jumps over the dog.", "2"),
        german("A quick fox jumped over lazy dogs.", "3"),
        german("Nothing of the kind.", "4"),
    ]
    async with opened(tmp_path) as store:
        await store.create("a", "m")
        await store.add("a", "m", known)
        found = await similar(store, "The quick brown fox jumps over the lazy cat.")
        assert [each.target for each in found] == ["1", "2", "3"]
        assert [each.score for each in found] == sorted((e.score for e in found), reverse=True)
        found = await similar(store, "THE QUICK BROWN FOX JUMPS OVER THE DOG!")
        assert found[0].target == "2"
        assert found[0].score < 1
        chinese = TextPair("我喜欢读书和写字。", "5", "zh", "de")
        await store.add("a", "m", [chinese])
        use = MemoryUse(await store.find("a", "m"), "zh", "de", 0.6)
        [one] = await store.search("c", use, lambda search: search.similar("我喜欢读书和画画。"))
        assert one.target == "5"


async def test_sentences_of_common_words_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.memory.similar._COMMON", 4)
    async with opened(tmp_path) as store:
        await store.create("a", "m")
        await store.add("a", "m", [german(f"Good morning, {word}!", "x") for word in "abcdefgh"])
        for _ in range(3):  # what is common is remembered
            assert await similar(store, "Good morning, z!")


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (german(" ", "x"), "source_text: is empty"),
        (german("x", "\n"), "translated_text: is empty"),
        (german("x" * 2001, "x"), "source_text: 2,001 characters, the limit is 2,000"),
        (
            german("x", "y" * 205),
            "translated_text: 205 characters, the limit for a text of 1 is 204",
        ),
        (german("x", "a\x00"), r"translated_text: contains the control character U\+0000"),
        (german("\ud800", "x"), r"source_text: contains the control character U\+D800"),
        (TextPair("x", "x", "english", "de"), "source_language_code: is no language code"),
    ],
)
async def test_bad_pairs(tmp_path: Path, pair: TextPair, message: str) -> None:
    async with opened(tmp_path) as store:
        await store.create("a", "m")
        with pytest.raises(InvalidArgumentError, match=message):
            await store.add("a", "m", [german("good", "gut"), pair])
        assert (await store.find("a", "m")).num_pairs == 0


async def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_store, "MAX_MEMORIES", 2)
    monkeypatch.setattr(tables, "MAX_PAIRS", 3)
    monkeypatch.setattr(tables, "MAX_OWNER_CHARACTERS", 100)
    async with opened(tmp_path) as store:
        for name in ("m", "n"):
            await store.create("a", name)
        with pytest.raises(InvalidArgumentError, match="name: there are 2 memories, the limit"):
            await store.create("a", "o")
        await store.create("b", "m")
        with pytest.raises(InvalidArgumentError, match="more than 3 pairs, the limit"):
            await store.add("a", "m", [german(word, "x") for word in "abcd"])
        await store.add("a", "m", [german("a", "x" * 90)])
        with pytest.raises(
            InvalidArgumentError, match="would have 106 characters, the limit is 100"
        ):
            await store.add("a", "n", [german("aaaaa", "x" * 10)])
        await store.add("a", "m", [german("a", "x")])
        await store.add("a", "n", [german("aaaaa", "x" * 10)])


@pytest.mark.parametrize("name", ["", "a b", "-a", "x" * 101, "a/b", "ä"])
async def test_bad_names(tmp_path: Path, name: str) -> None:
    async with opened(tmp_path) as store:
        with pytest.raises(InvalidArgumentError, match="name: must have"):
            await store.create("a", name)
        await store.create("a", "m")
        with pytest.raises(InvalidArgumentError, match="there is a memory 'm' already"):
            await store.create("a", "m")


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "memories.db").write_text(
        "not a database, but long enough to be taken for one" * 20
    )
    with pytest.raises(StartupError, match="--memory-store"):
        await TranslationMemories(str(tmp_path / "memories.db")).start()


async def test_the_largest_pair_fits(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.create("a", "m")
        text = "ab " * (limits.MAX_CHARACTERS // 3)
        await store.add("a", "m", [german(text, text)])
        assert await exact(store, text) == text.strip()
        assert await similar(store, text) == []  # too long to be compared


_WRITER = """
import asyncio, sys
from service.memory.pairs import TextPair
from service.memory.store import TranslationMemories

async def main():
    store = TranslationMemories(sys.argv[1])
    await store.start()
    await store.create("a", "m")
    for number in range(100_000):
        texts = [f"Text {number} of {i} words here" for i in range(5)]
        pairs = [TextPair(text, f"x{number}", "en", "de") for text in texts]
        await store.add("a", "m", pairs)
        print(number, flush=True)

asyncio.run(main())
"""


async def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "memories.db"
    for round_ in range(2):
        path = tmp_path / f"{round_}.db"
        with subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            last = -1
            for line in writer.stdout:
                last = int(line)
                if last == 20 + 7 * round_:
                    writer.send_signal(signal.SIGKILL)
            assert writer.wait() == -signal.SIGKILL
        store = TranslationMemories(str(path))
        await store.start()
        [memory] = await store.memories("a")
        assert memory.num_pairs in (5 * (last + 1), 5 * (last + 2))  # the last one not yet said
        found = [pair async for some in store.pairs("a", "m") for pair in some]
        assert len(found) == memory.num_pairs
        for number in (0, last):
            assert await exact(store, f"Text {number} of 3 words here") == f"x{number}"
            assert await similar(store, f"Text {number} of many words here")
        await store.stop()
        with contextlib.closing(sqlite3.connect(path)) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_an_export_of_a_memory_that_is_deleted_meanwhile_fails(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.create("a", "m")
        count = memory_store.BATCH_PAIRS + 1
        await store.add("a", "m", [german(f"Text {n}.", f"Wort {n}.") for n in range(count)])
        pages = store.pairs("a", "m")
        assert len(await anext(pages)) == memory_store.BATCH_PAIRS
        await store.delete("a", "m")
        with pytest.raises(NotFoundError, match="name: no such memory"):
            await anext(pages)


async def test_a_database_that_another_server_writes_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_SHARED_LOCK_SECONDS", 0.05)
    monkeypatch.setattr(memory_store, "_CLEANING_RETRY_SECONDS", 0.01)
    async with opened(tmp_path) as store:
        await store.create("a", "m")
        await store.add("a", "m", [german("A dog.", "Hund.")])
        with contextlib.closing(sqlite3.connect(tmp_path / "memories.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(UnavailableError, match="another server is writing"):
                await store.add("a", "m", [german("A cat.", "Katze.")])
            other.execute("ROLLBACK")
        await store.add("a", "m", [german("A cat.", "Katze.")])
        assert await exact(store, "A cat.") == "Katze."


async def test_cleaning_goes_on_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory_store, "_CLEANING_RETRY_SECONDS", 0.01)
    async with opened(tmp_path) as store:
        await store.create("a", "m")
        await store.add("a", "m", [german("A dog.", "Hund.")])
        with monkeypatch.context() as broken:

            def full(*arguments: object, **named: object) -> int:
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR
                raise error

            broken.setattr(memory_store, "remove_some", full)
            await store.delete("a", "m")
            while "not removed yet" not in caplog.text:
                await asyncio.sleep(0.001)
        with contextlib.closing(sqlite3.connect(tmp_path / "memories.db")) as other:
            while other.execute("SELECT count(*) FROM pairs").fetchone() != (0,):
                await asyncio.sleep(0.001)
