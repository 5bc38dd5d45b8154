"""Which sentences are copied: those without a word of the source language."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.bundle.directions import Directions
from model.bundle.languages import language_tags
from service.translation.verbatim import is_translatable

SENTENCES = [
    line
    for file in ("tests/parity/sentences.en", "docker/load.en.txt")
    for line in Path(file).read_text(encoding="utf-8").splitlines()
]

CODE = (
    "https://example.com/a?b=1&c=%20#d",
    "http://localhost:8080",
    "ftp://user:secret@example.com/~tom/",
    "www.example.com",
    "example.com",
    "example.com/path",
    "mailto:tom@example.com",
    "tom@example.com",
    "first.last+tag@sub.example.co.uk",
    "@tom",
    "/etc/hosts",
    "~/notes",
    "./run.sh",
    "../up",
    "C:\\Windows\\temp",
    "temp\\file",
    "src/main.py",
    "README.md",
    "os.path.join",
    "localhost.localdomain:80",
    "foo_bar",
    "MAX_ROWS",
    "getName",
    "run()",
    "Path.open()",
    "std::string",
    "--help",
    "--port=80",
    "{name}",
    "{{name}}",
    "${HOME}",
    "$HOME",
    "%s",
    "%1$s",
    "%d",
    "v1.2.3",
    "ISO-8859-1",
    "AB-1234",
    "A4",
    "3fa85f64-5717-4562-b3fc-2c963f66afa6",
    "d670460b4b4aece5915caf5c68d12f560a9fe3e4",
)
WORDS = (
    *("Yes", "yes.", "OK", "NASA", "I", "a", "(Yes)", "don't", "and/or", "e.g.", "U.S.", "a.m."),
    *("1st", "2nd", "5pm", "5PM", "12kg", "3D", "COVID", "T-shirt", "self-made", "word(s)", "No.5"),
    *(
        "Hello...world",
        "well,then",
        "Yes/No",
        "km/h",
        "YouTube",
        "24-hour",
        "wow!",
        "_yes_",
        "*yes*",
        # Without the space that belongs there, and labels.
        "Hey.there",
        "Stop.it",
        "STEP-1",
        "ROOM101",
        "GATE-5",
        "facade1",
    ),
    *("<b>Start</b>", "[Home](https://example.com)", "What?!", "“Stop”", "ＡＢＣ", "naïve", "Éire"),
)
# Characters that can't be letters of a Latin word, not even wide or decorated ones.
NO_LATIN = st.characters(codec="utf-8", exclude_categories=["L"]) | st.sampled_from("яδ你あ한ไ")


@pytest.mark.parametrize("word", CODE)
def test_code_is_copied_alone_and_among_its_like(word: str) -> None:
    assert not is_translatable(word, "en")
    assert not is_translatable(f"({word}), “{word}” 12 – 😀 {word}.", "en")


@pytest.mark.parametrize("word", CODE)
def test_code_among_words_is_translated_with_them(word: str) -> None:
    assert is_translatable(f"See {word}", "en")
    assert is_translatable(f"{word} is new", "en")


@pytest.mark.parametrize("word", WORDS)
def test_words_are_translated(word: str) -> None:
    assert is_translatable(word, "en")


@pytest.mark.parametrize("sentence", SENTENCES)
def test_sentences_are_translated(sentence: str) -> None:
    assert is_translatable(sentence, "en")


@given(text=st.text(NO_LATIN))
def test_without_a_letter_of_the_language_nothing_is_translated(text: str) -> None:
    assert not is_translatable(text, "en")
    assert not is_translatable(text, "de-CH")


@given(text=st.text(), language=st.sampled_from(["", "x", "xx", "tlh", "zz-Zzzz", "uz", "ja-Jpan"]))
def test_of_an_unknown_language_any_letter_counts(text: str, language: str) -> None:
    has_letter = any(unicodedata.category(character).startswith("L") for character in text)
    if text.isalpha() and text == text.lower():  # "aAa" is an identifier
        assert is_translatable(text, language)
    if not has_letter:
        assert not is_translatable(text, language)


@pytest.mark.parametrize(
    ("language", "own", "foreign"),
    [
        ("en-GB", "Hello", "Привет"),
        ("de", "Öl", "你好，世界。"),
        ("ru", "Привет", "Hello, world"),
        ("EL", "Γειά", "Hello"),
        ("ar", "مرحبا", "Hello"),
        ("hi", "नमस्ते", "Hello"),
        ("th", "สวัสดี", "Hello"),
        ("ja", "こんにちは", "Hello"),
        ("ja", "漢字", "한국어"),
        ("ja", "テスト", "Привет"),
        ("ko", "안녕", "Hello"),
        ("zh-Hant", "你好", "Hello"),
        ("sr-Latn", "Zdravo", "Здраво"),
        ("ar-Latn", "Marhaban ya sadiqi.", "مرحبا يا صديقي."),
        ("sr-Cyrl", "Здраво", "Zdravo"),
    ],
)
def test_another_script_is_copied(language: str, own: str, foreign: str) -> None:
    assert is_translatable(own, language)
    assert is_translatable(f"{foreign} {own}", language)
    assert not is_translatable(foreign, language)


def test_a_url_ends_where_another_script_begins() -> None:
    assert is_translatable("https://example.com。请看", "zh")


@pytest.mark.parametrize("others", [["arb_Arab"], []])
@pytest.mark.parametrize("asked", ["ar-Latn", "ar-latn", "arb_Latn"])
def test_latin_text_is_translated_from_a_language_that_a_model_has_in_latin_script_too(
    asked: str, others: list[str]
) -> None:
    tags = language_tags([*others, "arb_Latn", "eng_Latn"])
    ids = {tag: number for number, tag in enumerate(tags)}
    source, _ = Directions(tuple(tags), tuple(tags), ids, "source", "target").choose(asked, "en")
    assert source == "ar-Latn"
    assert is_translatable("Marhaban ya sadiqi.", source)
