"""The page while it computes, after an error, and with unusual texts."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from export.bundle_writer import ExportOptions, write_bundle
from model.bundle.tokenizer import Tokenizer
from tests.factories import export_source, random_model, tiny_config
from tests.fake_runner import FakeRunner
from tests.integration.servers import running_bundle
from tests.integration.test_going_away import until_inside
from tests.page.pages import echoing, opened, until

if TYPE_CHECKING:
    from playwright.async_api import Browser

    from model.bundle.bundle import Bundle

pytestmark = pytest.mark.page

_BUSY = "() => [...document.querySelectorAll('.card')].filter(e => e.ariaBusy === 'true').length"


async def test_what_belongs_to_an_older_text_is_dimmed(
    browser: Browser, tokenizer: Tokenizer, runner: FakeRunner, screenshots: Path
) -> None:
    async with echoing(tokenizer, runner) as (server, url), opened(browser, url) as page:
        focused = "() => document.activeElement.id === 'source'"
        await page.wait_for_function(focused)
        await page.locator("#source").fill("A dog is running.")
        await page.wait_for_selector("#alternatives .choice")
        await page.wait_for_function(f"() => ({_BUSY})() === 0")
        runner.hold()
        await page.locator("#source").fill("Two men.")
        assert await page.evaluate(_BUSY) == 3
        assert await page.locator("#output.stale").count() == 1
        assert await page.locator("#copy").is_disabled()
        await page.screenshot(path=screenshots / "busy.png", full_page=True)
        await until_inside(server, 1)
        runner.release()
        await until(page, "#alternatives", "Two men.")
        await page.wait_for_function(f"() => ({_BUSY})() === 0")
        assert await page.locator("#output.stale").count() == 0
        assert await page.locator("#copy").is_enabled()


async def test_an_error_goes_with_its_text(
    browser: Browser, tokenizer: Tokenizer, screenshots: Path
) -> None:
    async with (
        echoing(tokenizer, max_characters=2000) as (_, url),
        opened(browser, url) as page,
    ):
        await page.locator("#source").fill("A dog is running.")
        await page.wait_for_selector("#alternatives .choice")
        await page.locator("#source").fill("word\n" * 401)
        await until(page, "#status", "The text is too long.")
        assert await page.locator("#details").is_hidden()
        assert await page.locator("#copy").is_disabled()
        screens = await page.evaluate("document.documentElement.scrollHeight / innerHeight")
        assert screens <= 2
        await page.screenshot(path=screenshots / "too-long.png", full_page=True)
        await page.locator("#source").fill("Two men.")
        assert await page.locator("#status").inner_text() == ""
        await until(page, "#output", "Two men.")
        await page.locator("#source").fill("a\0")
        await until(page, "#status", "the character NUL")
        assert await page.locator("#output.stale").count() == 1
        assert await page.locator("#details").is_hidden()
        assert await page.locator("#copy").is_disabled()


async def test_a_copied_text_is_called_so(
    browser: Browser, tokenizer: Tokenizer, screenshots: Path
) -> None:
    async with echoing(tokenizer) as (_, url), opened(browser, url, {"text": "12 🎉"}) as page:
        await until(page, "#status", "Copied, not translated")
        assert await page.locator("#output").inner_text() == "12 🎉"
        assert await page.locator("#details").is_hidden()
        swap = page.locator("#swap")
        assert await swap.is_disabled()
        assert "No model of this server" in (await swap.get_attribute("title") or "")
        await page.screenshot(path=screenshots / "copied.png", full_page=True)


async def test_the_small_maps_are_one_group_of_arrow_keys(browser: Browser, bundle: Bundle) -> None:
    async with running_bundle(bundle.path, http_port=0) as server:
        url = f"http://127.0.0.1:{server.server.http_port}/"
        async with opened(browser, url, {"text": "A dog is running."}) as page:
            await page.wait_for_selector("#heads button")
            stops = page.locator('#heads [tabindex="0"]')
            assert await stops.count() == 1
            await stops.focus()
            for key, name in (
                ("ArrowRight", "Layer 0, head 1"),
                ("ArrowDown", "Layer 1, head 1"),
                ("ArrowLeft", "Layer 1, head 0"),
                ("ArrowDown", "Layer 1, head 0"),
                ("Home", "Layer 0, head 0"),
            ):
                await page.keyboard.press(key)
                assert await page.evaluate("() => document.activeElement.title") == name
                assert await stops.count() == 1
            await page.keyboard.press("Enter")
            await page.wait_for_selector('#heads [aria-pressed="true"]')
            assert await page.locator("#layer").input_value() == "0"


async def test_invisible_characters_have_names(browser: Browser, tokenizer: Tokenizer) -> None:
    async with echoing(tokenizer) as (_, url), opened(browser, url) as page:
        named = """async () => {
            const { visible } = await import("/characters.js");
            return ["\\u200d", "\\u200b\\u00ad", "\\ufe0f", "a\\u200db", "", "</s>"].map(visible);
        }"""
        assert await page.evaluate(named) == [
            *("⟨zero-width joiner⟩", "⟨zero-width space⟩⟨soft hyphen⟩", "⟨U+FE0F⟩"),
            *("a\u200db", "", "</s>"),
        ]


async def test_a_model_with_a_beam_and_without_attention_graph(
    browser: Browser, tmp_path: Path, screenshots: Path
) -> None:
    source = export_source(random_model(tiny_config(), 0), tmp_path / "source")
    path = tmp_path / "bundle"
    path.mkdir()
    search = {"beam_size": 3, "length_penalty": 1.0}
    write_bundle(dataclasses.replace(source, search=search), ExportOptions(), path)
    manifest = json.loads((path / "bundle.json").read_text(encoding="utf-8"))
    del manifest["graphs"]["attention"], manifest["sha256"]["attention.onnx"]
    (path / "bundle.json").write_text(json.dumps(manifest), encoding="utf-8")
    (path / "attention.onnx").unlink()
    async with running_bundle(path, http_port=0) as server:
        url = f"http://127.0.0.1:{server.server.http_port}/"
        async with opened(browser, url, {"text": "A dog is running."}) as page:
            await until(page, "#attention-message", "import the model again, or export")
            await until(page, "#greedy", "with a beam of 3")
            await page.screenshot(path=screenshots / "beam.png", full_page=True)
