"""Finds phrases that a reader has to read twice, in docstrings, comments and Markdown.

    python -m tests.plain_english [PATH ...]

Each finding is printed as FILE:LINE with advice; the exit status is 1 if there are any. Without
paths, all files of the repository are checked.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent

# Generated files, reports of programs, and the phrases themselves.
_EXCLUDED = re.compile(r"_pb2(_grpc)?\.py$|^bench/reports/|plain_english\.py$")


class Passage(NamedTuple):
    """A docstring, a block of comments, or a Markdown file."""

    line: int
    text: str


class Rule(NamedTuple):
    """A pattern, in which a space matches any white space, and advice.

    Attributes:
        place: pattern of the text before it, `BEGINNING` or `ARGUMENT`; "" for anywhere.
    """

    pattern: str
    advice: str
    place: str = ""


class Finding(NamedTuple):
    """A phrase that a rule has found."""

    line: int
    phrase: str
    advice: str


# Before the description of an argument or attribute; before the first word of that, of a docstring
# or of a comment.
ARGUMENT = r"\n +[*\w`., ]{1,60}: "
BEGINNING = rf"(?:\A\s*|{ARGUMENT})"
RULES = (
    Rule(r"\b[Ll]ikewise\b", "say it in full"),
    Rule(r"\b(as given|as it stands|as they stand)\b", "name the thing"),
    Rule(r"\b(what there is|what is there|that there is not|there is to do)\b", "name the thing"),
    Rule(r"\b(whom|whose (it is|they are)|nobody's|somebody('s)?)\b", "make things the subject"),
    Rule(r"\bWho (asks|comes|holds|joins|leaves|sends|waits|wants)\b", "make things the subject"),
    Rule(r"\b(all the same|of its own accord|none of this kind|has it that)\b", "use plain words"),
    Rule(
        r"(What|Whose|Whom|That of|Those of|So many|So much)\b",
        "begin with a noun or a verb",
        BEGINNING,
    ),
    Rule(r"(Its|Their|Theirs)\b", "name the owner", BEGINNING),
    Rule(
        r"(of (a|an|all|each|it|the|this)|whose)\b",
        "write a whole noun phrase, or leave the line out",
        ARGUMENT,
    ),
)
_COMPILED = [
    (re.compile(rule.place + "(" + rule.pattern.replace(" ", r"\s+") + ")"), rule) for rule in RULES
]
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def passages(path: Path) -> Iterator[Passage]:
    """The prose of a Python or Markdown file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield Passage(1, _without_code(text))
    else:
        yield from _docstrings(ast.parse(text))
        yield from _comments(text)


def findings(passage: Passage, *, is_markdown: bool) -> Iterator[Finding]:
    """The phrases of a passage that a rule matches; Markdown may begin with any word."""
    for pattern, rule in _COMPILED:
        if is_markdown and rule.place:
            continue
        for found in pattern.finditer(passage.text):
            line = passage.line + passage.text.count("\n", 0, found.start(1))
            yield Finding(line, " ".join(found[1].split()), rule.advice)


def _docstrings(tree: ast.Module) -> Iterator[Passage]:
    """Docstrings of modules, classes, functions, and of attributes and constants."""
    for node in ast.walk(tree):
        body = node.body if isinstance(node, _DOCUMENTED) else []
        for statement in body:
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield Passage(statement.lineno, value.value)


def _comments(text: str) -> Iterator[Passage]:
    """Comments; those on lines of their own, one after another, are one passage."""
    block: list[str] = []
    end = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, comment = token.start[0], token.string.lstrip("#! ")
        stands_alone = not token.line[: token.start[1]].strip()
        if block and (line != end + 1 or not stands_alone):
            yield Passage(end + 1 - len(block), "\n".join(block))
            block = []
        if stands_alone:
            block.append(comment)
        else:
            yield Passage(line, comment)
        end = line
    if block:
        yield Passage(end + 1 - len(block), "\n".join(block))


def _without_code(text: str) -> str:
    """A Markdown text without fenced and inline code, with the same line breaks."""

    def blank(code: re.Match[str]) -> str:
        return "\n" * code[0].count("\n")

    text = re.sub(r"^ *(```|~~~).*?^ *\1 *$", blank, text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", blank, text, flags=re.DOTALL)


def _files() -> list[str]:
    """The Python and Markdown files of the repository, also those not committed yet."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = sorted(set(listed.stdout.splitlines()))
    return [name for name in names if not _EXCLUDED.search(name) and (ROOT / name).is_file()]


def main(names: Sequence[str]) -> int:
    """Print the findings in some files; returns the exit status."""
    status = 0
    for name in names or _files():
        path = ROOT / name
        is_markdown = path.suffix == ".md"
        for found in sorted(
            f for p in passages(path) for f in findings(p, is_markdown=is_markdown)
        ):
            print(f'{name}:{found.line}: "{found.phrase}": {found.advice}')
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
