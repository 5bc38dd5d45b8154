"""A real Chromium for the tests of the page; they are skipped, and say so, where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.conftest import bundle, runner, tokenizer

if TYPE_CHECKING:
    from playwright.async_api import Browser

__all__ = ["bundle", "runner", "tokenizer"]  # fixtures

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def _missing(reason: str) -> None:
    if os.environ.get("DRAGOMAN_REQUIRE_TOOLS"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        _missing("playwright is not installed: `make test-page` installs it")
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        _missing("there is no Chromium: on Debian, `apt-get install chromium`")
    # As root, and in containers, Chromium's own sandbox can't start.
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=path, args=flags)
        yield started
        await started.close()


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    """Where screenshots go: DRAGOMAN_SCREENSHOTS, to look at them, or a temporary folder."""
    folder = Path(os.environ.get("DRAGOMAN_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
