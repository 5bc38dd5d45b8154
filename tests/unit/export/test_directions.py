"""Which directions an import takes of what a model's files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from export.errors import ExportError
from export.huggingface.directions import read_directions
from export.huggingface.directory import ModelDirectory
from export.huggingface.vocabularies import Vocabularies
from model.bundle.directions import Directions
from model.bundle.piece_tokenizer import PieceVocabulary

NONE = PieceVocabulary(b"", [])
NLLB = Vocabularies(
    NONE, NONE, 3, {"eng_Latn": 7, "deu_Latn": 8, "zho_Hans": 9, "zho_Hant": 10}, True
)
OPUS = Vocabularies(NONE, NONE, 1, {">>deu<<": 4, ">>fra<<": 5, ">>pt_BR<<": 6})
PLAIN = Vocabularies(NONE, NONE, 1)


def directory(
    source: str | None = None, target: str | None = None, name: str = "m"
) -> ModelDirectory:
    return ModelDirectory(
        Path(name), {}, {}, {"source_lang": source, "target_lang": target} if source else {}
    )


def test_models_between_all_languages() -> None:
    everything = read_directions(directory(), NLLB)
    languages = ("en", "de", "zh-Hans", "zh-Hant")
    assert (everything.sources, everything.targets) == (languages, languages)
    assert everything.prefix_ids("en", "zh-Hant") == (7,)
    assert everything.start_ids("zh-Hant") == (10,)
    some = read_directions(directory(), NLLB, ["deu_Latn", "en", "zh-TW"])
    assert some.sources == some.targets == ("de", "en", "zh-Hant")
    assert read_directions(directory(), NLLB, ["en", "de"]) == Directions.one("en", "de")


def test_marian_with_several_targets() -> None:
    everything = read_directions(directory("eng", "mul"), OPUS)
    assert (everything.sources, everything.targets) == (("en",), ("de", "fr", "pt"))
    assert (everything.prefix_ids("en", "fr"), everything.start_ids("fr")) == ((5,), ())
    named = read_directions(directory(name="opus-mt-en-mul"), OPUS)
    assert named == everything
    some = read_directions(directory("eng", "mul"), OPUS, ["fr", "en", "de"])
    assert (some.sources, some.targets) == (("en",), ("fr", "de"))


def test_marian_with_several_sources() -> None:
    assert read_directions(directory("roa", "eng"), PLAIN) == Directions.one("roa", "en")
    some = read_directions(directory("roa", "eng"), PLAIN, ["fr", "es", "en"])
    assert (some.sources, some.targets, some.token_ids) == (("fr", "es"), ("en",), {})
    both = read_directions(directory("roa", "mul"), OPUS, ["es", "it", "de", "fr"])
    assert (both.sources, both.targets) == (("es", "it"), ("de", "fr"))
    among = read_directions(directory("gmw", "mul"), OPUS, ["de", "fr", "pt-BR"])
    assert among.sources == among.targets == ("de", "fr", "pt")


IBERIAN = ("ca", "oc", "es")


@pytest.mark.parametrize("joined", ["cat+oci+spa", "cat_oci_spa"])
def test_marian_with_listed_languages(joined: str) -> None:
    """Names such as opus-mt-tc-big-en-cat_oci_spa; their tokenizers' files have a plus sign."""
    vocabularies = Vocabularies(NONE, NONE, 1, {">>cat<<": 4, ">>spa<<": 5})
    to = read_directions(directory("en", joined), vocabularies)
    assert (to.sources, to.targets) == (("en",), ("ca", "es"))
    out_of = read_directions(directory(joined, "en"), PLAIN)
    assert (out_of.sources, out_of.targets, out_of.source_prefix) == (IBERIAN, ("en",), "")
    assert read_directions(directory(name="opus-mt-tc-big-cat_oci_spa-en"), PLAIN) == out_of
    some = read_directions(directory(joined, "eng"), PLAIN, ["es", "ca", "en"])
    assert (some.sources, some.targets) == (("es", "ca"), ("en",))
    many = read_directions(directory(joined, "mul"), OPUS)
    assert (many.sources, many.targets) == (IBERIAN, ("de", "fr", "pt"))
    few = read_directions(directory("deu+eng+fra", "mul"), OPUS, ["en", "de", "fr"])
    assert (few.sources, few.targets) == (("de", "en", "fr"), ("de", "fr"))
    with pytest.raises(ExportError, match="no tokens for its targets, ca, oc, es; give --languag"):
        read_directions(directory("en", joined), PLAIN)


@pytest.mark.parametrize("code", ["multiple languages", "", "en+"])
def test_codes_that_are_no_languages(code: str) -> None:
    with pytest.raises(ExportError, match="is no BCP-47 code; give --languages"):
        read_directions(directory("en", code), PLAIN)


@pytest.mark.parametrize(
    ("name", "languages"),
    [
        ("opus-mt-en-de", ("en", "de")),
        ("opus-mt_tiny_eng-fra", ("en", "fr")),
        ("opus-mt-tc-big-gmw-en", ("gmw", "en")),
        ("opus-mt-roa-eng", ("roa", "en")),
        ("marian-en-de", ("en", "de")),
        ("marian-deu-en", ("de", "en")),
        ("my.model_2-en-de", ("en", "de")),
        ("tatoeba-challenge-zho-eng", ("zh", "en")),
        ("en-de", ("en", "de")),
    ],
)
def test_languages_of_a_name(name: str, languages: tuple[str, str]) -> None:
    assert read_directions(directory(name=name), PLAIN) == Directions.one(*languages)
    published = ModelDirectory(Path("m"), {"_name_or_path": f"somebody/{name}"}, {}, {})
    assert read_directions(published, PLAIN) == Directions.one(*languages)


@pytest.mark.parametrize(
    "name", ["the-big-new", "model-en-xx", "marian", "opus-mt-en", "marian-en-de-2", "-de"]
)
def test_names_that_say_nothing_of_languages(name: str) -> None:
    with pytest.raises(ExportError, match=r"does not say which languages.*--languages"):
        read_directions(directory(name=name), PLAIN)


@pytest.mark.parametrize(
    ("vocabularies", "source", "wanted", "message"),
    [
        (NLLB, None, ["en", "zh", "de"], "'zh' could be any of zh-Hans, zh-Hant.*--languages"),
        (NLLB, None, ["en", "ja", "de"], "no language 'ja'"),
        (NLLB, None, ["en", "en", "en"], "two languages or more"),
        (OPUS, "en", ["en", "de", "ja"], "no language 'ja'"),
        (PLAIN, "roa", ["fr", "es", "it"], "no language 'en'"),
        (OPUS, "roa", ["ja", "ko", "es"], "into none of ja, ko, es"),
        (PLAIN, None, None, "does not say which languages"),
        (PLAIN, None, ["en", "eng"], "one language twice: en and eng"),
        (OPUS, "en", ["de", "en", "deu"], "one language twice: de and deu"),
        (NLLB, None, ["en", "en-GB"], "one language twice: en and en-GB"),
    ],
)
def test_languages_that_there_are_not(
    vocabularies: Vocabularies, source: str | None, wanted: list[str] | None, message: str
) -> None:
    target = "en" if vocabularies is PLAIN else "mul"
    with pytest.raises(ExportError, match=message):
        read_directions(directory(source, target), vocabularies, wanted)


def test_bart_has_one_direction() -> None:
    bart = ModelDirectory(Path("m"), {"model_type": "bart"}, {}, {})
    assert read_directions(bart, PLAIN, ["en", "de"]) == Directions.one("en", "de")
    with pytest.raises(ExportError, match="has to name two, not 3"):
        read_directions(bart, PLAIN, ["en", "fr", "de"])
