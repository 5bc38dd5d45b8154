"""The page in a real browser: `make test-page`."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from export.bundle_writer import ExportOptions, write_bundle
from model.bundle.tokenizer import Tokenizer
from service.models.registry import Registry
from service.observability.metrics import ServerMetrics
from tests.factories import export_source, random_model, tiny_config
from tests.integration.servers import (
    any_ports,
    fake_runner,
    running,
    running_bundle,
    served,
    server_process,
)
from tests.integration.test_going_away import until_inside
from tests.page.pages import DRAWN, TEXT, echoing, num_rows, opened, row_sums, until

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page


pytestmark = pytest.mark.page
_UNNAMED = """() => [...document.querySelectorAll("button, select, input, textarea, canvas[role]")]
    .filter(each => each.checkVisibility() &&
        !(each.labels?.length || each.ariaLabel || each.textContent.trim() ||
          each.getAttribute("aria-labelledby")))
    .map(each => each.outerHTML)"""
_OVERFLOW = "() => document.documentElement.scrollWidth - innerWidth"


async def test_the_shipped_model(browser: Browser, screenshots: Path) -> None:
    async with server_process("--http-port", "0") as server:
        url = server.log[-1]["http"]
        async with opened(browser, url, viewport={"width": 1280, "height": 900}) as page:
            await page.locator("#source").press_sequentially(TEXT)
            await until(page, "#output", "Buch.")
            await page.wait_for_selector("#alternatives .choice:nth-child(5)")
            await page.wait_for_selector("#attention-view:not([hidden])")
            await _check_words(page)
            await _check_heads(page)
            await _check_map(page)
            await _check_exports(page)
            assert await page.evaluate(_UNNAMED) == []
            await page.locator("#sentences .choice:nth-child(2) input").check()
            await until(page, "#row-words", "liest")
            await page.locator("#alternatives .choice:nth-child(2) input").check()
            link = page.url
        for name, options in _LOOKS.items():
            async with opened(browser, url, **options) as page:
                await page.goto(link)
                await page.locator("#shade").check()
                await page.wait_for_selector("#output .rated")
                await page.wait_for_selector("#attention-view:not([hidden])")
                await page.wait_for_selector("#alternatives .choice")
                await page.locator("#heads").scroll_into_view_if_needed()
                await page.wait_for_function(DRAWN)
                await page.hover("#row-words .word:nth-child(2)")
                assert await page.evaluate(_OVERFLOW) <= 0
                await page.screenshot(path=screenshots / f"{name}.png", full_page=True)


_LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 900}},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 320, "height": 700}, "device_scale_factor": 2},
}
# The heading of the column with the largest weight, by the table.
_LARGEST_OF_SECOND_ROW = """() => {
    const headings = [...document.querySelectorAll("#table thead th")];
    const row = document.querySelectorAll("#table tbody tr")[1];
    const cells = [...row.querySelectorAll("td")].map(cell => cell.textContent);
    const weights = cells.filter(text => !text.endsWith("%")).map(Number);
    const columns = headings.slice(headings.length - weights.length);
    return columns[weights.indexOf(Math.max(...weights))].textContent.trim();
}"""


async def _check_words(page: Page) -> None:
    """By pointer and by keys."""
    second = page.locator("#row-words .word:nth-child(2)")
    word = (await second.text_content() or "").strip()
    most = await page.evaluate(_LARGEST_OF_SECOND_ROW)
    await second.hover()
    await until(page, "#readout", f"{word} attends to {most}")
    await page.locator("#row-words .word:first-child").focus()
    await page.keyboard.press("ArrowRight")
    focused = "() => document.activeElement.ariaLabel"
    label = await page.evaluate(focused)
    assert label.startswith(f"{word}: attends to {most}")
    assert "probability" in label
    await page.keyboard.press("End")
    assert (await page.evaluate(focused)).startswith("⟨end⟩")


async def _check_heads(page: Page) -> None:
    """Each head can be chosen, and is in the link; each kind that there is can be shown."""
    num_layers = await page.locator("#layer option").count() - 1  # without the mean
    num_heads = await page.locator("#head option").count() - 1
    assert await page.locator("#heads button").count() == num_layers * num_heads > 1
    await page.get_by_role("button", name="Layer 1, head 2").click()
    await page.wait_for_selector('#heads button[aria-pressed="true"]')
    assert "layer=1" in page.url
    assert "head=2" in page.url
    assert await page.locator("#layer").input_value() == "1"
    # A recurrent decoder has no weights of its own: the page shows others, and says why.
    await page.locator("#kind").select_option("decoder")
    await until(page, "#attention-message", "DECODER_SELF has no matrix of weights")
    assert await page.locator("#kind").input_value() == "cross"
    for kind, column in (("encoder", "agreement"), ("cross", "agreement")):
        await page.locator("#kind").select_option(kind)
        await until(page, "#column-words", column)
        assert await row_sums(page) == pytest.approx([1.0] * await num_rows(page), abs=0.1)
    await page.locator("#unit").select_option("token")
    assert await row_sums(page) == pytest.approx([1.0] * await num_rows(page), abs=0.1)
    await page.locator("#unit").select_option("word")


async def _check_map(page: Page) -> None:
    first, second = (await page.locator("#row-words .word").all_text_contents())[:2]
    await page.locator("#heatmap").focus()
    await page.keyboard.press("ArrowDown")
    await until(page, "#readout", f"{first.strip()} → The: ")
    await page.keyboard.press("ArrowRight")
    await until(page, "#readout", f"{first.strip()} → agreement: ")
    await page.keyboard.press("Escape")
    await until(page, "#readout", "")
    await page.locator("summary").click()
    assert second.strip() in await page.locator("#table").inner_text()


async def _check_exports(page: Page) -> None:
    async with page.expect_download() as download:
        await page.locator("#png").click()
    path = await (await download.value).path()
    assert path.read_bytes().startswith(b"\x89PNG\r\n")
    await page.locator("#link").click()
    await page.wait_for_function("() => document.querySelector('#done').textContent !== 'Saved.'")
    assert "text=The+agreement" in page.url


_SUMS = """async () => {
    const { byWords, matrixOf, mean } = await import("/matrix.js");
    const labels = (count) => Array.from({ length: count }, (_, i) => ({ text: `${i}` }));
    const random = (count) => Array.from({ length: count }, () => Math.random() + 0.01);
    const words = (count) => {
        let word = 0;
        return random(count).map((chance) => (word += Math.round(chance)));
    };
    const wrong = [];
    for (let round = 0; round < 200; round += 1) {
        const [rows, columns] = [1 + (round % 7), 1 + (round % 11)];
        const normalised = () => Array.from({ length: rows }, () => random(columns))
            .flatMap((row) => row.map((weight) => weight / row.reduce((a, b) => a + b)));
        const all = Array.from({ length: 1 + (round % 3) }, () =>
            matrixOf(labels(rows), labels(columns), normalised()));
        const found = byWords(mean(all), words(rows), words(columns));
        const sums = found.weights.map((row) => row.reduce((a, b) => a + b));
        if (found.rows.length !== sums.length) wrong.push(found);
        if (sums.some((sum) => Math.abs(sum - 1) > 1e-9)) wrong.push(found);
        const text = (all) => all.map((label) => label.text).join("");
        if (text(found.columns) !== text(labels(columns))) wrong.push(found);
    }
    return wrong;
}"""


async def test_rows_of_words_and_means_sum_to_one(browser: Browser, tokenizer: Tokenizer) -> None:
    async with echoing(tokenizer) as (_, url), opened(browser, url) as page:
        assert await page.evaluate(_SUMS) == []


async def test_typing_on_aborts_the_call_before(browser: Browser, tokenizer: Tokenizer) -> None:
    runner = fake_runner(tokenizer)
    async with echoing(tokenizer, runner) as (server, url), opened(browser, url) as page:
        runner.hold()
        await page.locator("#source").fill("A dog is running.")
        await until_inside(server, 1)
        await page.locator("#source").press_sequentially(" It")
        while not server.metric(
            "dragoman_requests_total", method="StreamTranslate", code="CANCELLED"
        ):
            await asyncio.sleep(0.01)
        runner.release()
        await until(page, "#output", "A dog is running. It")


async def test_an_overloaded_server_is_asked_again(browser: Browser, tokenizer: Tokenizer) -> None:
    runner = fake_runner(tokenizer)
    async with (
        echoing(tokenizer, runner, max_concurrent_requests=1) as (server, url),
        opened(browser, url) as page,
    ):
        await page.wait_for_selector("#from option", state="attached")
        runner.hold()
        other = asyncio.ensure_future(server.client.translate(["The children."]))
        await until_inside(server, 1)
        await page.locator("#source").fill("A dog is running.")
        await until(page, "#status", "The server is busy. Trying again in 1 s.")
        runner.release()
        await other
        await until(page, "#output", "A dog is running.")
        await until(page, "#status", "")


async def test_without_a_network(browser: Browser, tokenizer: Tokenizer) -> None:
    async with echoing(tokenizer) as (_, url), opened(browser, url) as page:
        await page.wait_for_selector("#from option", state="attached")
        await page.context.set_offline(True)
        await page.locator("#source").fill("A dog is running.")
        await until(page, "#status", "The server can't be reached.")
        await page.get_by_role("button", name="Try again").is_visible()
        await page.context.set_offline(False)  # asks again by itself
        await until(page, "#output", "A dog is running.")


async def test_text_from_right_to_left(
    browser: Browser, tokenizer: Tokenizer, screenshots: Path
) -> None:
    metrics, settings = ServerMetrics(), any_ports(http_port=0)
    models = [
        served(
            fake_runner(tokenizer), tokenizer, settings, metrics,
            name=f"{source}-{target}", source=source, target=target,
        )
        for source, target in (("ar", "en"), ("en", "de"), ("en", "ar"))
    ]  # fmt: skip
    async with running(settings, metrics, Registry(models)) as server:
        url = f"http://127.0.0.1:{server.server.http_port}/"
        async with opened(browser, url, {"from": "ar", "to": "en", "text": "Two men."}) as page:
            await until(page, "#output", "Two men.")
            assert await page.locator("#source").get_attribute("dir") == "rtl"
            assert await page.locator("#output").get_attribute("dir") == "ltr"
            await page.locator("#swap").click()
            await page.wait_for_function("() => document.querySelector('#output').dir === 'rtl'")
            await until(page, "#output", "Two men.")
            # German and Arabic have no model of their own, but two.
            await page.locator("#from").select_option("ar")
            group = page.locator("#to optgroup option")
            assert await group.get_attribute("value") == "de"
            await page.screenshot(path=screenshots / "rtl.png", full_page=True)


async def test_a_heat_map_from_right_to_left(
    browser: Browser, tmp_path: Path, screenshots: Path
) -> None:
    source = export_source(random_model(tiny_config(), 0), tmp_path / "source")
    path = tmp_path / "bundle"
    path.mkdir()
    write_bundle(dataclasses.replace(source, source_language="ar"), ExportOptions(), path)
    async with running_bundle(path, http_port=0) as server:
        url = f"http://127.0.0.1:{server.server.http_port}/"
        async with opened(browser, url, {"text": "رجلان يلعبان الشطرنج"}) as page:
            await page.wait_for_selector("#attention-view:not([hidden])")
            assert await page.locator("#column-words").get_attribute("dir") == "rtl"
            await page.locator("#heatmap").focus()
            await page.keyboard.press("ArrowDown")
            await page.screenshot(path=screenshots / "rtl-map.png", full_page=True)
            first = await page.locator("#readout").inner_text()
            await page.keyboard.press("ArrowLeft")  # the next word is on the left
            second = await page.locator("#readout").inner_text()
            assert "→ رجلان" in first
            assert "→ يلعبان" in second
