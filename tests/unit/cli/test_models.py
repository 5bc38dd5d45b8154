"""`dragoman models --model DIR`: bundle directories, without a server."""

import json
from pathlib import Path

from typer.testing import CliRunner

from cli.main import app
from service.settings import shipped_models


def run(*arguments: str, **environment: str) -> str:
    result = CliRunner().invoke(app, ["models", *arguments], env={"COLUMNS": "200", **environment})
    assert result.exit_code == 0, result.output
    return result.output


def test_directories_are_described_without_a_server() -> None:
    [path] = shipped_models()
    table = run("--model", str(path), "--model", str(path))
    heading, *lines = table.splitlines()
    assert heading.split() == [
        "model",
        "version",
        "languages",
        "precision",
        "disk",
        "memory",
        "origin",
    ]
    assert len(lines) == 2
    mib = -(-sum(file.stat().st_size for file in path.iterdir()) // 2**20)
    for word in ("en-de", "en to de", "int8", f"{mib} MiB", "trained with the recipe en-de"):
        assert word in lines[0]


def test_on_a_narrow_screen_a_model_has_several_lines() -> None:
    [path] = shipped_models()
    piped = run("--model", str(path), COLUMNS="40")
    assert piped == run("--model", str(path))
    shown = run("--model", str(path), COLUMNS="60", FORCE_COLOR="1")
    assert all(len(line) <= 60 for line in shown.splitlines())
    name, *lines = shown.splitlines()
    assert (name, lines[1].split()) == ("en-de", ["languages", "en", "to", "de"])


def test_as_json_there_is_all_of_it() -> None:
    [path] = shipped_models()
    [facts] = json.loads(run("--model", str(path), "--json"))
    assert facts["path"] == str(path)
    assert (facts["source_languages"], facts["target_languages"]) == (["en"], ["de"])
    assert facts["memory_mib"] < facts["max_memory_mib"]


def test_a_hugging_face_directory_says_what_to_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    result = CliRunner().invoke(app, ["models", "--model", str(tmp_path)])
    assert result.exit_code == 1
    assert f"dragoman import {tmp_path} --output DIR" in result.output
