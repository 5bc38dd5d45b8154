"""The commands in README.md exist, with their options, and its links lead somewhere."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperGroup

from cli.main import app

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def shell_commands() -> Iterator[list[str]]:
    """The words of each command of the shell examples, comments left out."""
    for block in re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL):
        # A quoted argument may go over several lines: shlex reads them as one word.
        lexer = shlex.shlex(block, posix=True, punctuation_chars="<>\n")
        lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
        words: list[str] = []
        for word in [*lexer, "\n"]:
            if word.strip("\n"):
                words.append(word)
                continue
            if words:
                yield words[: words.index("#")] if "#" in words else words
            words = []


def calls_of(program: str) -> list[list[str]]:
    """The arguments of each call of `program`."""
    calls = []
    for words in shell_commands():
        for position, word in enumerate(words):
            if Path(word).name == program and (position == 0 or "=" in words[position - 1]):
                calls.append(words[position + 1 :])
    return calls


@pytest.mark.parametrize("arguments", calls_of("dragoman"), ids=" ".join)
def test_subcommands_have_these_options(arguments: list[str]) -> None:
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    name, *rest = arguments
    known = {option for parameter in command.commands[name].params for option in parameter.opts}
    assert {word for word in rest if word.startswith("--")} <= known


def test_the_readme_shows_every_subcommand() -> None:
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    assert {arguments[0] for arguments in calls_of("dragoman")} == set(command.commands)


def test_make_has_these_targets() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wanted = {arguments[0] for arguments in calls_of("make")}
    assert {"serve", "test", "check"} <= wanted <= targets


def test_links_within_the_repository_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert links
    assert not [link for link in links if not (ROOT / link).exists()]
