"""The page with weights of unusual models, of long pairs, and in links."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from model.bundle.tokenizer import Tokenizer
from tests.factories import tiny_bundle
from tests.integration.servers import running_bundle
from tests.page.pages import DRAWN, TEXT, echoing, num_rows, opened, row_sums, until

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = pytest.mark.page


@contextlib.asynccontextmanager
async def serving_tiny(folder: Path, **config: Any) -> AsyncIterator[str]:
    """The address of a server of a random tiny model."""
    bundle = tiny_bundle(folder / "model", **config)
    async with running_bundle(bundle.path, http_port=0) as server:
        yield f"http://127.0.0.1:{server.server.http_port}/"


async def test_columns_of_low_rank_attention_are_numbered(browser: Browser, tmp_path: Path) -> None:
    attention = {"encoder_attention": "linformer", "cross_attention": "linformer"}
    async with serving_tiny(tmp_path, **attention, attention_rank=6) as url:
        for kind in ("cross", "encoder"):
            for unit in ("token", "word"):
                state = {"text": TEXT, "kind": kind, "unit": unit}
                async with opened(browser, url, state) as page:
                    await until(page, "#attention-message", "attends to 6 weighted sums")
                    columns = await page.locator("#column-words .word").all_inner_texts()
                    assert columns == [*"123456"]
                    ones = [1.0] * await num_rows(page)
                    assert await row_sums(page) == pytest.approx(ones, abs=0.05)


async def test_a_kind_that_has_no_matrix_leaves_the_others(
    browser: Browser, tmp_path: Path
) -> None:
    lsh = {"encoder_attention": "lsh", "attention_window": 5}
    async with (
        serving_tiny(tmp_path, **lsh) as url,
        opened(browser, url, {"text": TEXT, "kind": "encoder"}) as page,
    ):
        for _ in range(2):  # from the link, then chosen
            await until(page, "#attention-message", "attends by hashing")
            assert await page.locator("#kind").input_value() == "cross"
            assert await page.locator("#layer option").count() == 3
            await page.locator("#kind").select_option("decoder")
            await until(page, "#column-words", "⟨start⟩")
            await until(page, "#attention-message", "")
            await page.locator("#kind").select_option("encoder")


_LOADED = """async ([text, chosen]) => {
    const { Attention } = await import("/attention.js");
    const languages = { sourceLanguageCode: "en", targetLanguageCode: "de" };
    const attention = new Attention({ sourceText: text, translatedText: text, ...languages });
    const { found, reason } = await attention.load(chosen);
    const { rows, weights } = attention.matrix(found, "token");
    const sums = weights.map((row) => row.reduce((a, b) => a + b));
    return [found, reason, rows.length, Math.max(...sums.map((sum) => Math.abs(sum - 1)))];
}"""
_MEAN = {"kind": "cross", "layer": "mean", "head": "mean"}


async def test_of_a_long_pair_there_is_one_layer(browser: Browser, tmp_path: Path) -> None:
    sizes = {"max_source_positions": 1100, "max_target_positions": 1100}
    async with (
        serving_tiny(tmp_path, **sizes, num_heads=8, d_model=64) as url,
        opened(browser, url) as page,
    ):
        found, reason, num_rows, error = await page.evaluate(_LOADED, ["w" * 1000, _MEAN])
        assert found == {**_MEAN, "layer": "0"}
        assert "before averages; the limit is 16,777,216" in reason
        assert num_rows > 1000
        assert error < 1e-3
        # Parts of a link that the model lacks are ignored without a message.
        for layer, head in (("7", "0"), ("x", "99"), ("-1", "")):
            wrong = {"kind": "no", "layer": layer, "head": head}
            found, _, _, error = await page.evaluate(_LOADED, ["A dog.", wrong])
            assert found == {**_MEAN, "head": "0" if head == "0" else "mean"}
            assert error < 1e-5


async def test_averages_come_first_and_all_heads_once_they_are_seen(
    browser: Browser, tmp_path: Path
) -> None:
    asked: list[dict[str, Any]] = []
    size = {"width": 1000, "height": 300}
    async with serving_tiny(tmp_path) as url, opened(browser, url, viewport=size) as page:

        def note(request: Any) -> None:
            if request.url.endswith("/v1/attention"):
                asked.append(request.post_data_json["options"])

        page.on("request", note)
        await page.locator("#source").fill(TEXT)
        await page.wait_for_selector("#attention-view:not([hidden])")
        mean = {"kinds": ["ATTENTION_KIND_CROSS"], "averageLayers": True, "averageHeads": True}
        assert asked == [mean]
        await page.locator("#layer").select_option("1")
        await until(page, "#attention-message", "")
        async with page.expect_response(lambda answer: answer.url.endswith("/v1/attention")):
            await page.locator("#heads").scroll_into_view_if_needed()
        await page.wait_for_function(DRAWN)
        one = {"kinds": mean["kinds"], "layers": [1], "averageHeads": True}
        assert asked == [mean, one, {"kinds": mean["kinds"]}]


async def test_a_link_has_the_text_where_no_server_sees_it(
    browser: Browser, tokenizer: Tokenizer
) -> None:
    async with echoing(tokenizer) as (_, url):
        paths: list[str] = []
        state = {"text": "A dog is running.", "shade": "1"}
        async with opened(browser, url) as page:
            page.on("request", lambda request: paths.append(request.url))
            await page.goto(f"{url}#{urlencode(state)}")
            await until(page, "#output", "A dog is running.")
            assert await page.locator("#shade").is_checked()
        assert not any("dog" in path.partition("#")[0] for path in paths)
