"""Things, glossaries and letter case through a server with the included model, for any weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dragoman.client import Glossary, Search, VerbatimKinds
from service.settings import shipped_models
from tests.client_errors import refused
from tests.integration.servers import running_bundle, streamed

TEXTS = (
    "Write to tom@example.com or see https://example.com/a?b=c, please.",
    "- The file {name} has %d lines. I am tired.\n- It costs 1,250.50 €, 👩‍👩‍👧!",
    "THE DOG {name} READS.",
)
KEPT = ("tom@example.com", "https://example.com/a?b=c", "{name}", "%d", "€", "👩‍👩‍👧")
TERMS = {"file": "Datensammlung", "dog": "Köter|Köters"}


async def test_things_and_terms_through_a_server(tmp_path: Path) -> None:
    (tmp_path / "animals.en-de.tsv").write_text("dog\tHündchen\n")
    async with running_bundle(*shipped_models(), glossary_dir=(tmp_path,)) as running:
        client = running.client
        batch = await client.translate(TEXTS, source="en", target="de", glossary=Glossary(TERMS))
        for text, translation in zip(TEXTS, batch.translations, strict=True):
            for thing in KEPT:
                assert translation.text.count(thing) == text.count(thing)
        _, table, capitals = batch.translations
        assert "1.250,50" in table.text
        assert capitals.text.replace("{name}", "").isupper()
        assert [(term.source, term.num_found) for term in table.terms] == [("file", 1)]
        if capitals.terms[0].num_applied:
            assert "KÖTER" in capitals.text

        for text, translation in zip(TEXTS, batch.translations, strict=True):
            options: dict[str, Any] = {"source": "en", "target": "de", "glossary": Glossary(TERMS)}
            streamed_text, end = await streamed(client, text, **options)
            assert streamed_text == translation.text
            assert end.terms == translation.terms

        named = await client.translate(["The dog reads."], glossary=Glossary(TERMS, name="animals"))
        assert [term.target for term in named.translations[0].terms] == ["Köter"]
        named = await client.translate(["The dog reads."], glossary=Glossary(name="animals"))
        assert [term.target for term in named.translations[0].terms] == ["Hündchen"]

        document = await client.translate_document(
            b"The dog reads.\n", "a.txt", source="en", target="de", glossary=Glossary(TERMS)
        )
        batch = await client.translate(["The dog reads."], glossary=Glossary(TERMS))
        [alone] = batch.translations
        assert document.content.decode() == f"{alone.text}\n"
        assert ("Köter" in alone.text) == (alone.terms[0].num_applied > 0)

        plain = await client.translate(
            [TEXTS[2]], verbatim=VerbatimKinds.none(), adapt_letter_case=False
        )
        raw = await client.translate([TEXTS[2]], num_hypotheses=1, verbatim=VerbatimKinds.none())
        assert plain.translations[0].text == raw.translations[0].sentences[0].hypotheses[0].text

        html = await client.translate(
            ["<p>The <b>dog</b> costs 1,250.50 €.</p>"], mime_type="text/html"
        )
        assert html.translations[0].text.count("<b>") == 1
        assert "1.250,50" in html.translations[0].text


@pytest.mark.parametrize(
    ("glossary", "search", "code", "message"),
    [
        (
            Glossary({"dog": "Hund", "cat": " "}),
            None,
            "INVALID_ARGUMENT",
            r"glossary\.entries\[1\]\.target_term: is empty",
        ),
        (
            Glossary({"dog": "Hund"}),
            Search(target_prefix="Der"),
            "INVALID_ARGUMENT",
            "glossary: not together with options.search.target_prefix",
        ),
        (
            Glossary({str(number): "x" for number in range(1001)}),
            None,
            "INVALID_ARGUMENT",
            "glossary.entries: more than 1,000",
        ),
        (
            Glossary(name="animals"),
            None,
            "NOT_FOUND",
            "glossary.name: there is no glossary 'animals'; there are: none",
        ),
    ],
)
async def test_a_bad_glossary_is_refused(
    bundle_path: Path, glossary: Glossary, search: Search | None, code: str, message: str
) -> None:
    async with running_bundle(bundle_path) as running:
        call = running.client.translate(["A dog."], glossary=glossary, search=search)
        await refused(call, code, message)
