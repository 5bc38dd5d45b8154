"""Documents over the wire, with the bundle that ships and with the command."""

from __future__ import annotations

from pathlib import Path

from tests.client_errors import error_of
from tests.integration.servers import running_bundle

PAGE = '<p class="x">The <b>red</b> house &amp; <code>a &lt; b</code> are old.</p>\n<!-- end -->'


async def test_a_page_keeps_its_markup(bundle_path: Path) -> None:
    async with running_bundle(bundle_path) as server:
        batch = await server.client.translate([PAGE, "<hr>"], mime_type="text/html")
        first, second = (translation.text for translation in batch.translations)
        xml = await server.client.translate(
            ["The <x>red</x> house"], mime_type="application/xml", ignore_tags=["x"]
        )
        error = await error_of(server.client.translate(["a"], mime_type="text/rtf"))
        plain = await error_of(server.client.translate(["a"], ignore_tags=["x"]))
    assert first.startswith('<p class="x">')
    assert first.endswith("</p>\n<!-- end -->")
    for part in ("<b>", "</b>", "<code>a &lt; b</code>"):
        assert first.count(part) == 1
    assert second == "<hr>"
    assert xml.translations[0].text.count("<x>red</x>") == 1
    assert (error.field, plain.field) == ("mime_type", "options.ignore_tags")
