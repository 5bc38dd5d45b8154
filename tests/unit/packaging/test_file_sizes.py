"""A file of more than 400 lines does more than one thing. The contract has short lines."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MOST_LINES = 400


def test_no_python_file_has_more_than_400_lines() -> None:
    sizes: dict[str, int] = {}
    for folder in ("service", "model", "export", "bench", "cli", "proto/dragoman", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            if "_pb2" not in path.name:
                text = path.read_text(encoding="utf-8")
                sizes[path.relative_to(ROOT).as_posix()] = text.count("\n")
    assert len(sizes) > 800
    too_long = {name: size for name, size in sizes.items() if size > MOST_LINES}
    assert not too_long, f"divide by what belongs together: {too_long}"


def test_lines_of_the_contract_have_at_most_120_characters() -> None:
    for path in (ROOT / "proto" / "dragoman").rglob("*.proto"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert max(map(len, lines)) <= 120, path
