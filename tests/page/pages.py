"""Opens the server's page in a browser."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from model.bundle.tokenizer import Tokenizer
from tests.fake_runner import FakeRunner
from tests.integration.servers import (
    Running,
    fake_runner,
    running_fake,
)

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

TEXT = "The agreement was signed in August. She is reading a book."
DRAWN = "() => document.querySelector('#heads canvas').width > 40"  # before, a pixel a cell


@contextlib.asynccontextmanager
async def opened(
    browser: Browser, url: str, state: dict[str, str] | None = None, **options: Any
) -> AsyncIterator[Page]:
    """A page; errors of its scripts and of its content security policy fail the test."""
    context = await browser.new_context(**options)
    page = await context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if is_bad(line.text) else None)
    await page.goto(f"{url}#{urlencode(state or {})}")
    yield page
    await context.close()
    assert not problems


def is_bad(line: str) -> bool:
    return "Content Security Policy" in line or "Uncaught" in line


async def until(page: Page, selector: str, text: str) -> None:
    """Wait until an element has a text."""
    await page.wait_for_function(
        "([selector, text]) => document.querySelector(selector).textContent.includes(text)",
        arg=[selector, text],
    )


@contextlib.asynccontextmanager
async def echoing(
    tokenizer: Tokenizer, runner: FakeRunner | None = None, **settings: Any
) -> AsyncIterator[tuple[Running, str]]:
    """A server whose translation is the text, and its address."""
    made = runner or fake_runner(tokenizer)
    async with running_fake(made, tokenizer, http_port=0, **settings) as server:
        yield server, f"http://127.0.0.1:{server.server.http_port}/"


async def num_rows(page: Page) -> int:
    rows: int = await page.locator("#table tbody tr").count()
    return rows


async def row_sums(page: Page) -> list[float]:
    """Of the table, whose weights have two digits."""
    sums: list[float] = await page.evaluate(
        """() => [...document.querySelectorAll("#table tbody tr")].map(row =>
            [...row.querySelectorAll("td")].map(cell => cell.textContent)
                .filter(text => !text.includes("%"))
                .reduce((sum, text) => sum + Number(text), 0))"""
    )
    return sums
