"""Languages of texts: the detector's answer in the server's codes, and what follows from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py3langid.langid import MODEL_FILE, LanguageIdentifier

from service.text.detection import (
    MAX_LANGUAGES,
    UNDETERMINED,
    LanguageDetector,
    LanguageGuess,
    _rank,
    chosen,
    ranked,
)

DUTCH = "Dit is een Nederlandse zin over het weer."
LABELS = ("en", "de", "fr", "nl", "zh", "yue", "sr", "no", "nn", "zxx")
CODES = ("en", "en-GB", "de", "fr-CA", "zh-Hans", "zh-Hant", "nb", "sr")

_DETECTOR = LanguageDetector()

probabilities = st.dictionaries(st.sampled_from(LABELS), st.floats(0.0, 1.0), min_size=1).map(
    lambda found: {label: value / (sum(found.values()) or 1) for label, value in found.items()}
)


@given(probabilities, st.lists(st.sampled_from(CODES), unique=True, min_size=1))
def test_languages_are_the_servers_own_codes_once_each_and_the_likeliest_first(
    found: dict[str, float], codes: list[str]
) -> None:
    languages = ranked(found, tuple(codes))
    confidences = [language.confidence for language in languages]
    assert confidences == sorted(confidences, reverse=True)
    assert sum(confidences) <= 1 + 1e-9
    names = [language.code for language in languages]
    assert len(set(names)) == len(names)
    for language in languages:
        assert language.is_served == (language.code in codes)


@given(probabilities, st.lists(st.sampled_from(CODES), unique=True, min_size=1))
def test_only_a_clear_language_is_refused(found: dict[str, float], codes: list[str]) -> None:
    languages = ranked(found, tuple(codes))
    best = chosen(languages)
    if best.code != UNDETERMINED and not best.is_served:
        others = sum(language.confidence for language in languages if language.is_served)
        assert best.confidence >= 0.5 or others < 0.01 * best.confidence or not others


@pytest.mark.parametrize(
    ("served", "code"), [("en zh-Hans", "zh-Hans"), ("en", "zh"), ("zh-Hant zh-Hans", "zh-Hant")]
)
def test_kinds_of_a_language_count_as_the_one_that_is_served(served: str, code: str) -> None:
    found = {"yue": 0.6, "zh": 0.3, "wuu": 0.05, "ja": 0.05}
    best = ranked(found, tuple(served.split()))[0]
    assert (best.code, best.is_served) == (code, "zh" in served)
    assert best.confidence == pytest.approx(0.95)
    assert ranked(found, ("yue", "zh"))[0] == LanguageGuess("yue", 0.6, True)
    assert ranked({"no": 0.7, "nn": 0.2, "da": 0.1}, ("nb",))[0].code == "nb"


async def test_sentences_in_three_languages() -> None:
    texts = [
        "A dog is running across the field.",
        "Ein Hund rennt über die Wiese.",
        "Un chien court à travers le champ.",
        "Good morning",
        "<p class='x'>Guten <b>Morgen</b></p>",
        "NEW YORK IS BIG",
    ]
    found = [chosen(each) for each in await _DETECTOR.detect(texts, ("en", "de", "fr"))]
    assert [each.code for each in found] == ["en", "de", "fr", "en", "de", "en"]
    assert found[0].confidence > 0.5 > found[3].confidence > 0


SHORT = {
    "en": "Hello|World|Yes|Thank you|Open|Save|Cancel|Where are you?|Log out|Two men|on|Error",
    "de": "Hallo|Welt|Danke|Ja|Öffnen|Abbrechen|Hund|Wo bist du?|Bitte warten|Datei löschen",
    "fr": "Bonjour|Merci|Oui|Annuler|Chien|Où es-tu ?|Le monde|Bonne nuit|Mot de passe|Aide",
}
# The probability of most in Cyrillic and Arabic letters is shared by several languages.
NOT_SERVED = (
    "Привет, мир|Доброе утро|Добро утро|Здравейте|Как дела?|Спасибо|Дякую|سلام دنیا|صبح بخیر|"
    "مرحبا بالعالم|Buenos días|¿Dónde estás?|Buongiorno a tutti|Dzień dobry|Dziękuję bardzo|Děkuji|"
    "Tack så mycket|Hyvää huomenta|Günaydın|Teşekkür ederim|你好世界|こんにちは|안녕하세요|שלום|"
    "Καλημέρα|नमस्ते|สวัสดี|Xin chào|Привіт|Добрый вечер"
)


@pytest.mark.parametrize("served", [("en",), ("en", "de"), ("en", "de", "fr")])
async def test_short_texts_of_served_languages_are_taken_and_others_refused(
    served: tuple[str, ...],
) -> None:
    for code in served:
        texts = SHORT[code].split("|")
        for text, found in zip(texts, await _DETECTOR.detect(texts, served), strict=True):
            assert not found or chosen(found).is_served, text
    texts = NOT_SERVED.split("|")
    for text, found in zip(texts, await _DETECTOR.detect(texts, served), strict=True):
        assert not chosen(found).is_served, text


async def test_a_clear_language_that_is_not_served_is_named() -> None:
    [found] = await _DETECTOR.detect([DUTCH], ("en",))
    assert chosen(found).code == "nl"
    assert not chosen(found).is_served


@pytest.mark.parametrize("text", ["", " \n", "123", "12345 67890", "1,250.50", ":-)", "xq"])
async def test_a_text_that_shows_nothing_is_undetermined(text: str) -> None:
    [found] = await _DETECTOR.detect([text], ("en", "de"))
    assert chosen(found) == LanguageGuess(UNDETERMINED, 0.0, False)


@given(st.text(max_size=200))
def test_any_text_has_an_answer(text: str) -> None:
    languages = _rank(text, ("en", "de"))
    assert 0.0 <= chosen(languages).confidence <= 1.0 + 1e-6


@pytest.mark.parametrize("text", ["a" + "\u0301\u0316" * 500_000, "<a" * 500_000, "中" * 1_000_000])
async def test_only_the_beginning_of_a_long_text_is_read(text: str) -> None:
    [found] = await _DETECTOR.detect([text], ("en", "de"))
    [short] = await _DETECTOR.detect([text[:8000]], ("en", "de"))
    assert found == short


async def test_the_model_is_read_as_the_library_reads_it() -> None:
    library = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    texts = [DUTCH, "A dog is running.", "天气很好。", "Сегодня хорошая погода."]
    assert await _DETECTOR.detect(texts, CODES) == [
        ranked(dict(library.rank(text)), CODES) for text in texts
    ]


async def test_few_languages_of_a_text_are_kept_and_all_that_are_served() -> None:
    served = ("en", "de", "zu")
    [languages] = await _DETECTOR.detect([DUTCH], served)
    assert len(languages) <= MAX_LANGUAGES + len(served)
    assert {language.code for language in languages} >= set(served)
