"""Several models in one server: directions, defaults and a pivot, as a client sees them."""

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.client import Search, TranslationError
from export.bundle_writer import ExportOptions, write_bundle
from model.bundle.bundle import Bundle
from service.settings import shipped_models
from tests.client_errors import error_of, refused
from tests.factories import export_source, random_model, tiny_config
from tests.integration.servers import (
    NO_HURRY,
    Running,
    done,
    needs_two_cores,
    running_bundle,
    server_process,
    streamed,
)

TEXTS = [
    "She is reading a book. Two men are playing chess.",
    "",
    "A dog is running.\n\n  - I am tired.\n  - https://example.org\n",
]


OPTIONAL = Path(__file__).parents[2] / "model/optional"  # not in distributions


@pytest.fixture(scope="session")
def german_french(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of a random model, German to French."""
    folder = tmp_path_factory.mktemp("french")
    source = export_source(random_model(tiny_config(), seed=1), folder / "source")
    source = dataclasses.replace(
        source,
        source_language="de",
        target_language="fr",
        provenance={"imported_from": {"hub": "example/opus-mt-de-fr", "revision": "0123abc"}},
    )
    (folder / "de-fr").mkdir()
    write_bundle(source, ExportOptions(precision="fp32", top_k=8), folder / "de-fr")
    return folder / "de-fr"


@pytest.fixture
async def both(german_french: Path) -> AsyncIterator[Running]:
    """A server of the included model, English to German, and of the German-French one."""
    async with serving(*shipped_models(), german_french) as made:
        yield made


def serving(*models: Path, **settings: Any) -> Any:
    return running_bundle(*models, in_process=True, **settings)


async def test_a_text_goes_through_both_models_if_none_translates_directly(both: Running) -> None:
    client = both.client
    pivoted = await client.translate(TEXTS, source="en", target="fr")
    assert (pivoted.model, pivoted.pivot_model, pivoted.pivot_language) == ("de-fr", "en-de", "de")
    german = await client.translate(TEXTS, source="en", target="de")
    assert (german.model, german.pivot_model, german.pivot_language) == ("en-de", "", "")
    for text, middle, result in zip(TEXTS, german.translations, pivoted.translations, strict=True):
        french = await client.translate([middle.text], source="de", target="fr")
        # A line without words in the second translation is copied from the original text.
        lines = (each.split("\n") for each in (text, middle.text, french.translations[0].text))
        expected = [own if last == first else last for own, first, last in zip(*lines, strict=True)]
        assert result.text.split("\n") == expected
        assert result.num_source_tokens == middle.num_source_tokens
        streamed_text, end = await streamed(client, text, source="en", target="fr")
        assert streamed_text == result.text
        assert (end.model, end.pivot_model, end.pivot_language) == ("de-fr", "en-de", "de")
    assert pivoted.translations[2].text.count("\n") == TEXTS[2].count("\n")
    assert "https://example.org" in pivoted.translations[2].text
    pair = {"pivot_model": "en-de", "model": "de-fr"}
    assert both.metric("dragoman_pivoted_calls_total", **pair) == 1 + len(TEXTS)


@pytest.mark.skipif(not OPTIONAL.exists(), reason="a distribution has no optional models")
async def test_trained_models_translate_back_and_through_each_other() -> None:
    async with serving(*shipped_models(), OPTIONAL / "de-en", OPTIONAL / "en-fr") as running:
        english = ["The dog is very tired."]
        german = await texts(running, english, source="en", target="de")
        assert await texts(running, german, source="de", target="en") == english
        [french] = await texts(running, ["Wo ist der Bahnhof?"], source="de", target="fr")
        assert "gare" in french


async def texts(running: Running, contents: list[str], source: str, target: str) -> list[str]:
    batch = await running.client.translate(contents, source=source, target=target)
    return [item.text for item in batch.translations]


async def test_languages_are_listed_with_those_through_a_third_one(both: Running) -> None:
    found = [
        (group.source_languages, group.target_languages, group.models, group.pivot_language)
        for group in await both.client.list_languages()
    ]
    assert found == [
        (("en",), ("de",), ("en-de",), ""),
        (("de",), ("fr",), ("de-fr",), ""),
        (("en",), ("fr",), (), "de"),
    ]


async def test_what_a_pivot_can_do_and_what_it_refuses(
    both: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dragoman.access")
    client = both.client
    pair: dict[str, Any] = {"source": "en", "target": "fr"}
    batch = await client.translate(
        TEXTS[:1], **pair, search=Search(beam_size=2), num_hypotheses=2, return_tokens=True
    )
    sentences = batch.translations[0].sentences
    assert [s.source_text for s in sentences] == [
        "She is reading a book.",
        "Two men are playing chess.",
    ]
    assert all(len(s.hypotheses) == 2 and s.hypotheses[0].tokens for s in sentences)
    error = await error_of(client.translate(TEXTS, **pair, return_alignments="hard"))
    assert error.field == "options.return_alignments"
    await refused(
        client.translate(TEXTS, **pair, allow_pivot=False),
        "NOT_FOUND",
        "it translates: de to fr, en to de",
    )
    await refused(client.score([("A dog.", "Un chien.")], **pair), "NOT_FOUND")
    with pytest.raises(TranslationError, match=r"it translates: de to fr, en to de$"):
        await client.translate(TEXTS, source="fr", target="en")
    with pytest.raises(TranslationError, match=r"'A dog\.' is not a language code"):
        await client.translate(TEXTS, source="A dog.", target="de")
    calls = [vars(record) for record in caplog.records if record.message == "call"]
    assert [(call["source_language"], call["target_language"]) for call in calls] == [
        *([("en", "fr")] * 4),
        ("fr", "en"),
        ("invalid", "de"),
    ]


async def test_a_model_says_where_it_is_from(both: Running) -> None:
    shipped, french = await both.client.list_models()
    recipe = Bundle.load(shipped_models()[0]).manifest["provenance"]["recipe"]
    assert shipped.origin == f"trained with the recipe {recipe}"
    assert french.origin == "imported from example/opus-mt-de-fr (revision 0123abc)"


async def test_the_server_may_choose_defaults_and_switch_the_pivot_off(
    german_french: Path, bundle: Bundle
) -> None:
    models = (*shipped_models(), german_french, bundle.path)
    async with serving(*models, default=("en-de=tiny",), no_pivot=True) as made:
        batch = await made.client.translate(["A dog."], source="en", target="de")
        assert batch.model == "tiny"
        with pytest.raises(TranslationError, match="--no-pivot"):
            await made.client.translate(["A dog."], source="en", target="fr", allow_pivot=True)


@needs_two_cores
async def test_two_models_with_a_process_each_serve_a_pivot_from_the_command_line(
    german_french: Path,
) -> None:
    models = [
        argument for path in (*shipped_models(), german_french) for argument in ("--model", path)
    ]
    async with server_process(*models, "--pivot-languages", "de", *NO_HURRY) as server:
        pair = ("--server", server.address, "--from", "en", "--to", "fr", "--timeout", "250")
        status, output, _ = await done("translate", *pair, "A dog is running.")
        assert (status, output.count("\n")) == (0, 1)
        server.terminate()
        assert await server.end() == 0
    (call,) = (entry for entry in server.log if entry["message"] == "call")
    assert (call["model"], call["pivot_model"], call["pivot_language"]) == ("de-fr", "en-de", "de")
