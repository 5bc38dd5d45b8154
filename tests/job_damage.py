"""Damage to the files of a `dragoman batch` job, as people, disks and other commands cause it."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

_NO_RECORDS = (b"", b"{}", b"[]", b"null", b"7", b'"', b"\xff\xfe", b"[" * 20_000, b'{"rows": 3}')


def damage(rng: random.Random, state: Path, other: Path) -> str:
    """Damage a job's folder at random.

    Args:
        rng: decides what happens.
        state: the folder.
        other: the folder of another job, whose files have the same names.

    Returns:
        What was done, in words.
    """
    files = sorted(path for path in state.glob("*") if path.is_file())
    if not files:
        return "nothing is there"
    done = rng.choice(_KINDS)(rng, files, other)
    return f"{done} (of {len(files)} files)"


def _delete(rng: random.Random, files: list[Path], _: Path) -> str:
    file = rng.choice(files)
    file.unlink()
    return f"{file.name} deleted"


def _delete_all_but_one(rng: random.Random, files: list[Path], _: Path) -> str:
    kept = rng.choice(files)
    for file in files:
        if file != kept:
            file.unlink()
    return f"only {kept.name} left"


def _truncate(rng: random.Random, files: list[Path], _: Path) -> str:
    file = rng.choice(files)
    content = file.read_bytes()
    file.write_bytes(content[: rng.randrange(len(content) + 1)])
    return f"{file.name} truncated"


def _overwrite(rng: random.Random, files: list[Path], _: Path) -> str:
    file = rng.choice(files)
    content = bytearray(file.read_bytes() or b" ")
    for _number in range(rng.randrange(1, 4)):
        content[rng.randrange(len(content))] = rng.randrange(256)
    file.write_bytes(content)
    return f"{file.name} overwritten"


def _replace(rng: random.Random, files: list[Path], _: Path) -> str:
    file = rng.choice(files)
    content = rng.choice(_NO_RECORDS)
    file.write_bytes(content)
    return f"{file.name} replaced by {content[:12]!r}"


def _repeat_rows(rng: random.Random, files: list[Path], _: Path) -> str:
    file = rng.choice(files)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines + lines[: rng.randrange(1, 3)]))
    return f"{file.name} with more rows"


def _swap(rng: random.Random, files: list[Path], _: Path) -> str:
    one, two = rng.choice(files), rng.choice(files)
    _exchange(one, two)
    return f"{one.name} and {two.name} swapped"


def _swap_parts(rng: random.Random, files: list[Path], _: Path) -> str:
    parts = [file for file in files if file.suffix == ".part"]
    if not parts:
        return "no part is there"
    one, two = rng.choice(parts), rng.choice(parts)
    for suffix in (".part", ".json"):
        if two.with_suffix(suffix).exists() and one.with_suffix(suffix).exists():
            _exchange(one.with_suffix(suffix), two.with_suffix(suffix))
    return f"{one.name} and {two.name} swapped with their records"


def _exchange(one: Path, two: Path) -> None:
    contents = one.read_bytes(), two.read_bytes()
    two.write_bytes(contents[0])
    one.write_bytes(contents[1])


def _take_other(rng: random.Random, files: list[Path], other: Path) -> str:
    theirs = sorted(other.glob("*"))
    if not theirs:
        return "no other job is there"
    chosen = rng.choice([theirs, [rng.choice(theirs)], [f for f in theirs if f.stem != "plan"]])
    for file in chosen:
        shutil.copy(file, files[0].parent)
    return f"{', '.join(file.name for file in chosen)} of another job"


def _change_value(rng: random.Random, files: list[Path], _: Path) -> str:
    records = [file for file in files if file.suffix == ".json"]
    if not records:
        return "no record is there"
    file = rng.choice(records)
    try:
        record = json.loads(file.read_bytes())
    except ValueError:
        return f"{file.name} is damaged already"
    what = _change(rng, record)
    file.write_text(json.dumps(record))
    return f"{what} of {file.name} changed"


def _change(rng: random.Random, value: Any) -> str:
    """Change a number or text somewhere in a JSON value; returns where it is."""
    if not isinstance(value, dict | list) or not value:
        return "nothing"
    keys = list(value) if isinstance(value, dict) else range(len(value))
    key = rng.choice(keys)
    if isinstance(value[key], dict | list) and value[key]:
        return f"{key}.{_change(rng, value[key])}"
    if isinstance(value[key], int):
        value[key] += rng.choice([-1, 1])
    else:
        value[key] = "other"
    return str(key)


def _leave_unfinished(rng: random.Random, files: list[Path], _: Path) -> str:
    file = rng.choice(files)
    for suffix in (".dragoman-unfinished", ".writing", ".json"):
        (file.parent / f"{file.name}{suffix}").write_bytes(file.read_bytes()[:10])
    return f"an unfinished {file.name} left"


_KINDS: tuple[Callable[[random.Random, list[Path], Path], str], ...] = (
    _delete,
    _delete_all_but_one,
    _truncate,
    _overwrite,
    _replace,
    _repeat_rows,
    _swap,
    _swap_parts,
    _take_other,
    _change_value,
    _leave_unfinished,
)
