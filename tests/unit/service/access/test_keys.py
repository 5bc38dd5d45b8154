"""API keys and their file."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from cli.keys import keys_app
from service.access import keys
from service.access.key_file import KeyFileError, locked, read_keys, write_keys
from service.access.key_store import KeyStore
from service.observability.metrics import ServerMetrics

names = st.text(string.ascii_letters + string.digits, min_size=1, max_size=20)
limits = st.none() | st.integers(0, keys.MAX_LIMIT)
described = st.fixed_dictionaries(
    {"name": names},
    optional={
        "tenant": names,
        "models": st.lists(names, max_size=3),
        "calls": st.lists(names, max_size=3),
        "max_priority": st.sampled_from(["low", "normal", "high"]),
        "requests_per_minute": limits,
        "characters_per_day": limits,
        "characters_per_month": limits,
        "expires": st.datetimes().map(lambda moment: moment.isoformat()),
    },
)


@given(described)
def test_a_line_holds_a_key_and_not_the_key(values: dict[str, Any]) -> None:
    key, stored = keys.new_key(keys.principal_of(values))
    line = keys.to_line(stored)
    assert key not in line
    assert keys.from_line(line) == stored
    assert keys.find({stored.id: keys.to_line(stored)}, key) == stored.principal


# Not a new key for each example: examples may depend on nothing but what Hypothesis draws.
KEY, STORED = keys.new_key(keys.principal_of({"name": "me"}))


@given(st.integers(0, len(KEY) - 1), st.characters(), st.text())
@example(0, KEY[0], KEY[1:])
def test_another_key_is_nobody_s(place: int, letter: str, other: str) -> None:
    stored = {STORED.id: keys.to_line(STORED)}
    changed = KEY[:place] + letter + KEY[place + 1 :]
    found = STORED.principal if letter == KEY[place] else None
    assert keys.find(stored, changed) == found
    assert keys.find(stored, KEY + letter) is None
    assert keys.find(stored, other) is None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "no spaces"}, "name"),
        ({"name": 7}, "name"),
        ({"sha256": "00"}, "sha256"),
        ({"models": "en-de"}, "models"),
        ({"calls": [1]}, "calls"),
        ({"max_priority": "highest"}, "max_priority"),
        ({"requests_per_minute": -1}, "requests_per_minute"),
        ({"characters_per_day": True}, "characters_per_day"),
        ({"characters_per_month": 1.5}, "characters_per_month"),
        ({"expires": "soon"}, "expires"),
        ({"expires": 7}, "expires"),
        ({"modells": []}, "modells"),
    ],
)
def test_an_error_names_file_line_and_field(
    tmp_path: Path, change: dict[str, Any], field: str
) -> None:
    path = tmp_path / "keys.jsonl"
    _, good = keys.new_key(keys.principal_of({"name": "good"}))
    _, bad = keys.new_key(keys.principal_of({"name": "bad"}))
    line = json.dumps({**json.loads(keys.to_line(bad)), **change})
    path.write_text(f"{keys.to_line(good)}\n\n{line}\n")
    with pytest.raises(KeyFileError, match=rf"keys\.jsonl, line 3: .*{field}"):
        read_keys(path)


@pytest.mark.parametrize("line", ["{", "[]", "7", "[" * 100_000, '"x"', "null"])
def test_a_line_that_is_none_is_an_error_and_is_not_repeated(tmp_path: Path, line: str) -> None:
    path = tmp_path / "keys.jsonl"
    path.write_text(line)
    with pytest.raises(KeyFileError, match=r"line 1: not a JSON object$"):
        read_keys(path)


def test_a_hash_as_a_field_is_not_repeated() -> None:
    _, stored = keys.new_key(keys.principal_of({"name": "me"}))
    values = json.loads(keys.to_line(stored))
    with pytest.raises(ValueError, match="there is no field") as caught:
        keys.from_line(json.dumps({**values, values["sha256"]: 1}))
    assert values["sha256"] not in str(caught.value)


def test_a_name_is_there_once(tmp_path: Path) -> None:
    path = tmp_path / "keys.jsonl"
    lines = [keys.to_line(keys.new_key(keys.principal_of({"name": "me"}))[1]) for _ in range(2)]
    path.write_text("\n".join(lines))
    with pytest.raises(KeyFileError, match="line 2"):
        read_keys(path)


def _add(path: Path, name: str) -> None:
    with locked(path):
        found = read_keys(path) if path.exists() else {}
        _, stored = keys.new_key(keys.principal_of({"name": name}))
        found[stored.id] = stored
        write_keys(path, found)


def test_writers_wait_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / "keys.jsonl"
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.starmap(_add, [(path, f"key-{number}") for number in range(20)])
    assert {key.principal.name for key in read_keys(path).values()} == {
        f"key-{number}" for number in range(20)
    }
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    target, link = tmp_path / "target.jsonl", tmp_path / "keys.jsonl"
    target.touch()
    link.symlink_to(target)
    _add(link, "me")
    assert link.is_symlink()
    assert len(read_keys(target)) == 1


async def test_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.jsonl"
    key, stored = keys.new_key(keys.principal_of({"name": "last"}))
    line = keys.to_line(stored)
    with path.open("w") as file:
        for number in range(99_999):
            made = line.replace('"last"', f'"key-{number}"').replace(stored.id, f"{number:016x}")
            file.write(made + "\n")
        file.write(line)
    seen: list[int] = []
    store = KeyStore(path, ServerMetrics(), lambda found: seen.append(len(found)))
    await store.load()
    assert seen == [100_000]
    assert await store.authenticate(key) == stored.principal


async def test_a_file_that_vanishes_leaves_its_keys(tmp_path: Path) -> None:
    path, metrics = tmp_path / "keys.jsonl", ServerMetrics()
    key, stored = keys.new_key(keys.principal_of({"name": "me"}))
    write_keys(path, {stored.id: stored})
    store = KeyStore(path, metrics, lambda found: None)
    await store.load()
    path.unlink()
    await store.refresh()
    assert metrics.registry.get_sample_value("dragoman_keys_last_reload_successful") == 0
    assert await store.authenticate(key) == stored.principal
    write_keys(path, {})
    await store.refresh()
    assert metrics.registry.get_sample_value("dragoman_keys_last_reload_successful") == 1
    assert await store.authenticate(key) is None


async def test_a_file_that_could_not_be_opened_is_read_again(tmp_path: Path) -> None:
    path, metrics = tmp_path / "keys.jsonl", ServerMetrics()
    key, stored = keys.new_key(keys.principal_of({"name": "me"}))
    write_keys(path, {stored.id: stored})
    store = KeyStore(path, metrics, lambda found: None)
    await store.load()
    write_keys(path, {})
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))  # no descriptor is free
    try:
        await store.refresh()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert metrics.registry.get_sample_value("dragoman_keys_last_reload_successful") == 0
    assert await store.authenticate(key) == stored.principal
    await store.refresh()  # the file is the same as before
    assert metrics.registry.get_sample_value("dragoman_keys_last_reload_successful") == 1
    assert await store.authenticate(key) is None


def test_the_file_keeps_its_permissions_and_links(tmp_path: Path) -> None:
    (link := tmp_path / "keys").symlink_to(file := tmp_path / "file")
    write_keys(link, {})
    assert file.stat().st_mode & 0o7777 == 0o600
    file.chmod(0o640)  # for a server of the group
    write_keys(link, {STORED.id: STORED})
    assert (link.is_symlink(), file.stat().st_mode & 0o7777) == (True, 0o640)
    assert list(read_keys(file)) == [STORED.id]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize("is_linked", [False, True])
def test_what_is_no_file_is_never_replaced(
    tmp_path: Path, make: Callable[[Path], None], is_linked: bool
) -> None:
    make(path := tmp_path / "keys")
    if is_linked:
        (tmp_path / "link").symlink_to(path)
    before, given = path.stat(), tmp_path / ("link" if is_linked else "keys")
    with pytest.raises(KeyFileError, match="Is not a regular file"), locked(given):
        pass
    with pytest.raises(KeyFileError, match="Is not a regular file"):
        write_keys(given, {})
    # Reading a pipe would wait for ever.
    done = CliRunner().invoke(keys_app, ["add", "me", "--keys", str(given)])
    assert (done.exit_code, "Is not a regular file" in done.output) == (1, True)
    assert path.stat().st_ino == before.st_ino
    assert {file.name for file in tmp_path.iterdir()} <= {"keys", "link"}
