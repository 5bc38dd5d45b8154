"""`dragoman memory import` says which file it can't read."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.memory import memory_app


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('<?xml version="1.0" encoding="foo"?><tmx/>', "unknown encoding"),
        ('<?xml version="1.0" encoding="shift_jis"?><tmx/>', "multi-byte encodings"),
        ("<tmx><body>", "is no well-formed XML"),
        ("<html/>", "its first tag is not <tmx>"),
        (None, "No such file"),
    ],
)
def test_a_file_that_can_t_be_read_is_named(content: str | None, said: str, tmp_path: Path) -> None:
    file = tmp_path / "pairs.tmx"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    # Nothing is sent: no server is there.
    found = CliRunner().invoke(memory_app, ["import", "ours", str(file), "--server", "127.0.0.1:1"])
    assert found.exit_code == 1
    assert str(file) in found.output.replace("\n", "")
    assert said in found.output.replace("\n", " ")
