"""Translates every example sentence of the documents, for when the shipped model changes.

    python -m bench.readme_examples [--bundle BUNDLE] [--write]

Example sentences are the quoted sentences in the code blocks of `PAGES`. It prints their
translations, and the sentences that a page gives as an answer but are none of these (any more).
The rows of the table in service/TEXT.md are printed as they have to be; `--write` puts them there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from bench.sentence_translator import sentence_translator

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "proto/README.md", "proto/SEARCH.md", "proto/HTTP.md", "proto/CLIENTS.md")
TABLE_PAGE = "service/TEXT.md"
TABLE_HEAD = "| text | translation by the included model |"
_CODE = re.compile(r"^```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SENTENCE = re.compile(r'"([A-Z][^"\n]*[.?!])"')
_ANSWER = re.compile(r"`([A-Z][^`]*[.?!])`")
_FIRST_CELL = re.compile(r"\| (`+) ?(.*?) ?\1 \|")


def example_sentences(page: str) -> list[str]:
    """The quoted sentences in a page's code blocks, each once, in order."""
    found = (text for block in _CODE.findall(page) for text in _SENTENCE.findall(block))
    return list(dict.fromkeys(found))


def outdated_answers(page: str, translations: Sequence[str]) -> list[str]:
    """The sentences in a page's prose, in backticks, that are no translation of an example."""
    prose = _CODE.sub("", page)
    answers = (" ".join(text.split()) for text in _ANSWER.findall(prose))
    return [answer for answer in answers if answer not in translations]


def table_texts(page: str) -> list[str]:
    """The texts of the table of `TABLE_HEAD`."""
    cells = (_FIRST_CELL.match(row) for row in _table_rows(page))
    return [cell[2] for cell in cells if cell]


def with_table(page: str, translations: Sequence[str]) -> str:
    """The page with these translations in its table."""
    for row, text, translation in zip(
        _table_rows(page), table_texts(page), translations, strict=True
    ):
        page = page.replace(row, f"| {_in_code(text)} | {_in_code(translation)} |")
    return page


def _table_rows(page: str) -> list[str]:
    lines = page.split("\n")
    rows = lines[lines.index(TABLE_HEAD) + 2 :]
    end = next(index for index, line in enumerate(rows) if not line.startswith("|"))
    return rows[:end]


def _in_code(text: str) -> str:
    """Text in backticks, or in pairs of them if it contains one; bars are escaped for a table."""
    text = text.replace("\n", " ").replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


async def translate(bundle: Path, texts: Sequence[str]) -> list[str]:
    """The translation of a server with this bundle, by an engine in this process."""
    async with sentence_translator(bundle) as translator:
        return [result.text for result in await translator.translate(texts)]


def main(
    bundle: Annotated[Path, typer.Option(help="The bundle that ships.")] = ROOT
    / "model/pretrained/en-de",
    write: Annotated[bool, typer.Option(help=f"Also put the table into {TABLE_PAGE}.")] = False,
) -> None:
    """Print what the bundle makes of every example sentence of the documents."""
    for name in PAGES:
        page = (ROOT / name).read_text(encoding="utf-8")
        texts = example_sentences(page)
        translations = asyncio.run(translate(bundle, texts))
        for text, translation in zip(texts, translations, strict=True):
            typer.echo(f"{name}: {text} -> {translation}")
        for answer in outdated_answers(page, translations):
            typer.echo(f"{name}: OUTDATED: {answer}")
    path = ROOT / TABLE_PAGE
    page = path.read_text(encoding="utf-8")
    changed = with_table(page, asyncio.run(translate(bundle, table_texts(page))))
    for row in _table_rows(changed):
        typer.echo(row)
    if write:
        path.write_text(changed, encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
