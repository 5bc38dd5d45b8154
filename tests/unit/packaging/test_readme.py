"""The commands, links and names in README.md and in the folders' pages exist."""

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperGroup

from cli.main import app

ROOT = Path(__file__).parents[3]
README = ROOT / "README.md"
PAGES = [
    README,
    *sorted(
        page
        for page in ROOT.glob("[a-z]*/**/*.md")
        if not {"reports", "runs", "build", "node_modules"} & set(page.relative_to(ROOT).parts)
    ),
]
MAP = ROOT / "service" / "README.md"


def shell_commands(page: Path) -> Iterator[list[str]]:
    """The words of each command of a page's shell examples, comments left out."""
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        # A quoted argument may go over several lines: shlex reads them as one word. Of a comment it
        # would take the end of the line with it, and a continued line it would cut in two.
        lines = re.sub(r"(?m)(^|\s+)# .*$", "", block).replace("\\\n", " ")
        lexer = shlex.shlex(lines, posix=True, punctuation_chars="<>\n")
        lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
        words: list[str] = []
        for word in [*lexer, "\n"]:
            if word.strip("\n"):
                words.append(word)
                continue
            if words:
                yield words
            words = []


def calls_of(program: str, *pages: Path) -> list[list[str]]:
    """The arguments of each call of `program` on these pages."""
    calls = []
    for words in itertools.chain.from_iterable(map(shell_commands, pages)):
        for position, word in enumerate(words):
            if Path(word).name == program and (
                position == 0 or "=" in words[position - 1] or words[position - 1] == "|"
            ):
                calls.append(words[position + 1 :])
    return calls


@pytest.mark.parametrize("arguments", calls_of("dragoman", *PAGES), ids=" ".join)
def test_subcommands_have_these_options(arguments: list[str]) -> None:
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    name, *rest = arguments
    found = command.commands[name]
    if isinstance(found, TyperGroup) and rest[0] in found.commands:
        found = found.commands[rest[0]]
    known = {option for parameter in found.params for option in parameter.opts}
    assert {word for word in rest if word.startswith("--")} <= known


def test_the_readme_shows_every_subcommand() -> None:
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    assert {arguments[0] for arguments in calls_of("dragoman", README)} == set(command.commands)


def test_make_has_these_targets() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wanted = {arguments[0] for arguments in calls_of("make", *PAGES)}
    assert {"serve", "test", "check"} <= wanted <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", page.read_text(encoding="utf-8"))
    assert links or page.name != "README.md"
    for path, heading in links:
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not heading or heading in headings(target), f"{path}#{heading}"


def headings(page: Path) -> set[str]:
    """How links name the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def section(page: Path, title: str) -> str:
    """The text under a second-level heading."""
    text = page.read_text(encoding="utf-8")
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def test_the_map_of_the_service_has_every_package_once() -> None:
    table = section(MAP, "The path of a request")
    packages = [path.parent.name for path in MAP.parent.glob("*/__init__.py")]
    assert sorted(re.findall(r"^\| \[`(\w+)/`\]", table, re.MULTILINE)) == sorted(packages)
    for package, modules in re.findall(r"^\| \[`(\w+)/`\]\S* \| (.*) \|$", table, re.MULTILINE):
        for module in re.findall(r"`([\w/]+\.py)`", modules):
            assert (MAP.parent / package / module).is_file(), module


def test_where_to_look_names_what_is_there() -> None:
    rows = re.findall(
        r"^\| [^|]* \| \[`[^|]*`\]\(([^)]*)\)[^|]* \| ([^|]*) \|$",
        section(MAP, "Where to look"),
        re.MULTILINE,
    )
    assert len(rows) > 9
    for path, names in rows:
        code = (MAP.parent / path).read_text(encoding="utf-8")
        found = re.findall(r"`([\w.]+)`", names)
        assert found, names
        for name in itertools.chain.from_iterable(name.split(".") for name in found):
            assert re.search(rf"^ *(async )?(def|class) {name}\b", code, re.MULTILINE), name


# Generated, or a log of what was tried.
LONG = {"RECIPES.md", "MODEL_CARD.md", "NOTES.md"}
GENERATED = re.compile(r"<!-- (table|benchmark): .*?<!-- (end of table|benchmark: end)", re.DOTALL)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in LONG], ids=lambda page: page.name
)
def test_a_page_is_read_in_ten_minutes(page: Path) -> None:
    text = GENERATED.sub("", page.read_text(encoding="utf-8"))
    assert len(text.split()) < 2200


def test_the_readme_leads_to_every_page_for_its_readers() -> None:
    table = section(README, "Documents")
    linked = {(ROOT / path).resolve() for path in re.findall(r"\]\(([^)#:]*)\)", table)}
    folders = ("proto", "service", "model", "export", "docker")
    pages = {page for folder in folders for page in (ROOT / folder).glob("*.md")}
    assert pages <= linked


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) < 250
