"""Numbers in words: found in sentences, recognised in translations, and read as digits."""
# ruff: noqa: E501 - cases are easier to read in one line each

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bench.number_words import LIMIT, in_english, in_german
from service.glossaries.glossary import Glossary
from service.things.number_reader import Number, number_of, numbers_in
from service.things.numbers_in_words import numbers_to_keep
from service.things.sentence_needs import thing_needs
from service.things.thing_forms import forms_of
from service.things.things import Form, find_things
from service.things.wanted import Candidate, Needs
from tests.unit.service.text.scripted_translator import FakeTranslator, stage

_numbers = st.integers(13, 99) | st.integers(13, LIMIT - 1)


def needs_of(sentence: str, source: str = "en", target: str = "de") -> Needs:
    return thing_needs(sentence, find_things(sentence, language=source), source, target)


@given(_numbers)
@example(100)
@example(1000)
@example(1001)
def test_every_number_is_found_where_it_stands(number: int) -> None:
    for language, said in (("en", in_english(number)), ("de", in_german(number))):
        for text in (f"Xa {said} xb.", f"({said.capitalize()}), xc"):
            [(span, found)] = numbers_to_keep(text, language)
            assert text[slice(*span)].lower() == said
            assert found == Number(number)
            [thing] = find_things(text, language=language)
            assert (thing.form, thing.span) == (Form.NUMBER_IN_WORDS, span)


@given(_numbers, _numbers)
def test_a_translation_may_have_it_in_words_or_in_digits(number: int, other: int) -> None:
    needs = needs_of(f"We saw {in_english(number)} dogs.")
    grouped = f"{number:,}".replace(",", ".") if number >= 10_000 else str(number)
    for form in (in_german(number), str(number), grouped):
        assert not needs.num_wrong(Candidate(f"Wir sahen {form} Hunde."))
    if other != number:
        lacking = Candidate(f"Wir sahen {in_german(other)} Hunde.")
        [(_, put)] = needs.missing(lacking)
        assert put == grouped


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("In nineteen eighty-four or twenty twenty-five.", {"nineteen eighty-four": 1984, "twenty twenty-five": 2025}),
        ("A hundred and one dogs", {"A hundred and one": 101}),
        ("twelve hundred men", {"twelve hundred": 1200}),
        ("It fell to minus five, then to minus fifty-two.", {"minus five": -5, "minus fifty-two": -52}),
        ("two point five percent", {"two point five": 2.5}),
        ("two point five million", {"two point five": 2.5}),
        ("A twenty-one-year-old man, thirteen to fifteen dogs", {"twenty-one": 21, "thirteen": 13, "fifteen": 15}),
        ("seventy five", {"seventy five": 75}),
        ("the ninth floor of forty", {"ninth": 9, "forty": 40}),
        # No numbers, or such as models know
        ("three dogs, the second one, two cats", {"three": 3}),
        ("five million people", {"five": 5}),
        ("forty-five million people, thirty billion euros", {"forty-five": 45, "thirty": 30}),
        ("One hundred fifty million kilometres", {"One hundred fifty": 150}),
        ("The PIN is four seven one nine.", {"four seven one nine": 4719}),
        ("Dial zero one seven one.", {"zero one seven one": 171}),
        ("The code is two two seven.", {"two two seven": 227}),
        ("The code is one two three.", {"one two three": 123}),
        ("Call five five five one two one two.", {"five five five one two one two": 5551212}),
        ("She counted one two three four five.", {"five": 5}),
        ("Five four three two one!", {}),
        ("He jumped two one two four times.", {}),
        ("The score is three two one.", {}),
        ("Just one one two four-year-old kids.", {}),
        ("a million dollars, a billion", {}),
        ("on the thirteenth of February, nineteen forty-five", {"thirteenth": 13, "nineteen forty-five": 1945}),
        ("thousands of people", {}),
        ("three to four hundred people", {"three": 3}),
        ("five or six hundred", {"five": 5}),
        ("between two and three hundred", {}),
        ("thirty to forty thousand", {"thirty": 30}),
        ("fifty to five hundred", {"fifty": 50, "five hundred": 500}),
        ("fifty-fifty", {}),
        ("The fifth point one one says no.", {}),
        ("Between fifty and five hundred people came.", {"fifty": 50, "five hundred": 500}),
        ("between one hundred and two thousand", {"one hundred": 100, "two thousand": 2000}),
        ("He turned twenty and one day he left.", {"twenty": 20}),
        ("All fifteen twenty-year-olds passed.", {}),
        ("Of the fifteen twenty were sick.", {}),
        ("the thirty-second video, a forty-second delay", {}),
        ("the forty-second president", {"forty-second": 42}),
        ("two hundredths, one hundredth of a second, the hundred millionth", {}),
        ("the seventh-largest city", {}),
        ("The Hundred Years' War, a few thousand dollars", {}),
        ("I said it a hundred times.", {}),
        ("Twenty\u2011one dogs", {"Twenty\u2011one": 21}),
        ("Twenty\u2013one dogs", {}),
        ("a million two hundred thousand", {"a million two hundred thousand": 1_200_000}),
        ("five hundred, 5 hundred", {"five hundred": 500}),
        ("three point one four one five nine two six five", {}),
        ("one and a half thousand", {}),
        ("a fifth of it, one twentieth, a third party", {}),
        ("one two three", {"three": 3}),
        ("two thousand, three hundred", {}),
        ("The point is: no city has a teen.", {}),
    ],
)  # fmt: skip
def test_english_numbers(text: str, kept: dict[str, float]) -> None:
    assert {text[slice(*span)]: n.value for span, n in numbers_to_keep(text, "en")} == kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Einhundertzwanzig und hundert und zwanzig", {"Einhundertzwanzig": 120, "hundert und zwanzig": 120}),
        ("minus fünf Grad, zwei Komma fünf Prozent", {"minus fünf": -5, "zwei Komma fünf": 2.5}),
        ("im einundzwanzigsten Jahrhundert", {"einundzwanzigsten": 21}),
        ("drei bis vierhundert, drei- bis vierhundert", {"drei": 3}),
        ("Zwischen fünf und zwanzig Leute kamen um zwanzig Uhr.", {"fünf": 5, "zwanzig": 20}),
        ("fünfundvierzig Millionen, dreißig Milliarden", {"fünfundvierzig": 45, "dreißig": 30}),
        ("Eins zwei drei vier Polizei.", {}),
        ("Wähle null eins sieben eins.", {"null eins sieben eins": 171}),
        ("Eine Million zweihunderttausend", {"Eine Million zweihunderttausend": 1_200_000}),
        ("fünfzehn Billion und Billion", {}),
        ("eins Komma fünfundzwanzig, tausend Dank", {}),
        ("Ich achte auf den dritten König.", {}),
    ],
)  # fmt: skip
def test_german_numbers(text: str, kept: dict[str, float]) -> None:
    assert {text[slice(*span)]: n.value for span, n in numbers_to_keep(text, "de")} == kept


@pytest.mark.parametrize(
    ("text", "source", "target", "right", "given"),
    [
        ("fifty-two", "en", "de", ("52",), "52"),
        ("three hundred thousand", "en", "de", ("300.000", "300000"), "300,000"),
        ("two point five", "en", "de", ("2,5", "2.5"), "2.5"),
        ("minus five", "en", "de", ("-5", "−5"), "-5"),
        ("twenty-first", "en", "de", ("21.", "21"), "21st"),
        ("zero one seven one", "en", "de", ("0171",), "0171"),
        ("einundzwanzigsten", "de", "en", ("21st",), "21."),
        ("dreihunderttausend", "de", "en", ("300,000",), "300.000"),
        ("zwei Komma fünf", "de", "en", ("2.5",), "2,5"),
        # In one word of most languages: the model reads it first.
        ("thirty", "en", "de", ("30",), None),
        # The words of the target language are not recognised.
        ("thirty", "en", "pl", ("30",), "30"),
    ],
)
def test_forms(
    text: str, source: str, target: str, right: tuple[str, ...], given: str | None
) -> None:
    [thing] = find_things(text, language=source)
    forms = forms_of(thing, source, target)
    assert set(right) <= set(forms.right)
    assert forms.right[0] == right[0]
    assert forms.given == given


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("The twenty-first house.", "Das einundzwanzigste Haus."),
        ("The ninth house.", "Im neunten Haus."),
        ("It is minus five.", "Es sind minus fünf."),
        ("It is minus five.", "Es sind −5."),
        ("A hundred dogs.", "Hundert Hunde."),
        ("Forty-five million.", "Fünfundvierzig Millionen."),
        ("In nineteen eighty-four.", "Im Jahr neunzehnhundertvierundachtzig."),
    ],
)
def test_german_words_are_recognised(source: str, text: str) -> None:
    assert not needs_of(source).num_wrong(Candidate(text))


@pytest.mark.parametrize(
    ("source", "right"),
    [
        (
            "Fifteen dogs and fifteen cats.",
            ["Fünfzehn Hunde und fünfzehn Katzen.", "15 Hunde und 15 Katzen."],
        ),
        ("Fifteen dogs and 15 cats.", ["Fünfzehn Hunde und 15 Katzen.", "15 Hunde und 15 Katzen."]),
        (
            "52 dogs and fifty-two cats.",
            ["52 Hunde und 52 Katzen.", "52 Hunde und zweiundfünfzig Katzen."],
        ),
        ("A hundred dogs, one hundred cats.", ["Hundert Hunde, einhundert Katzen."]),
        ("The 21st and the twenty-first.", ["Der 21. und der einundzwanzigste."]),
        ("Between five and twenty people.", ["Zwischen fünf und zwanzig Leuten."]),
    ],
)
def test_a_number_that_is_there_twice(source: str, right: list[str]) -> None:
    needs = needs_of(source)
    for text in right:
        assert not needs.num_wrong(Candidate(text)), text
    assert needs.num_wrong(Candidate("Nichts."))


_WORDS = (
    "one two fifteen twenty fifty hundred thousand million and between point minus first fifth ninth"
    " hundredth second - – , a the of 5"
)


@given(st.lists(st.sampled_from(_WORDS.split(" ")), max_size=9))
def test_whatever_is_found_has_forms(words: list[str]) -> None:
    text = " ".join(words).replace(" - ", "-")
    for target in ("de", "fr", "pl"):
        needs = needs_of(text, target=target)
        lacking = needs.missing(Candidate("Nichts."))
        assert bool(lacking) is bool(needs)
        full = Candidate(" ".join(put for _, put in lacking))
        assert not needs.missing(full), (text, full.text)


def test_an_ordinal_is_no_cardinal_and_a_minus_counts() -> None:
    assert needs_of("The twenty-first house.").missing(Candidate("Einundzwanzig Häuser."))
    assert needs_of("It is minus fifteen.").missing(Candidate("Es sind fünfzehn."))


def test_digits_have_the_endings_of_english() -> None:
    said = {"twenty-first": "21st", "twenty-second": "22nd", "forty-third": "43rd",
            "hundred and eleventh": "111th", "thirtieth": "30th"}  # fmt: skip
    for text, digits in said.items():
        number = number_of(text, "en")
        assert number is not None
        assert number.digits == digits


def test_numbers_that_a_person_reads_as_digits_are_none_in_words() -> None:
    assert numbers_in("52, 5 hundred and 1984", "en") == []


@pytest.mark.parametrize(
    ("source", "given", "put"),
    [
        ("In the nineteen eighties.", {"1980s"}, "1980er"),
        ("The roaring twenties were short.", {"20s"}, "20er"),
        ("He is in his late forties.", set(), "40ern"),
        ("They are in their sixties.", set(), "60ern"),
    ],
)
def test_decades(source: str, given: set[str], put: str) -> None:
    needs = needs_of(source)
    assert set(needs.given().values()) == given
    assert [form for _, form in needs.missing(Candidate("Nichts."))] == [put]


def test_decades_in_german_words_are_recognised() -> None:
    assert not needs_of("In the eighties.").num_wrong(Candidate("In den Achtzigern."))
    assert not needs_of("He is in his late forties.").num_wrong(Candidate("Er ist Ende vierzig."))
    assert not needs_of("In the eighties.", target="fr")


@pytest.mark.parametrize(
    "text",
    [
        "They won at ten to six.",
        "Prices fell by five to ten.",
        "The odds are at ten to one.",
        "The shares are at two fifty.",
    ],
)
def test_scores_and_prices_are_no_times(text: str) -> None:
    assert not [thing for thing in find_things(text) if thing.form is Form.TIME]


async def test_the_model_reads_digits_of_several_words_at_once() -> None:
    below = FakeTranslator(words={"fifty-two": "fifty", "thirty": "dreißig"})
    [result] = await stage(below, letter_case=False).translate(["They saw fifty-two dogs."])
    assert (result.text, result.warnings) == ("They saw 52 dogs.", [])
    assert [texts for texts, _ in below.calls] == [["They saw 52 dogs."]]
    [known] = await stage(below, letter_case=False).translate(["They saw thirty dogs."])
    assert (known.text, known.warnings) == ("They saw dreißig dogs.", [])


async def test_a_term_of_the_glossary_comes_before_a_number() -> None:
    below = FakeTranslator(words={"fifty-two": "fifty"})
    glossary = Glossary.of([("fifty-two", "LII")])
    [result] = await stage(below, letter_case=False, glossary=glossary).translate(
        ["They saw fifty-two dogs."]
    )
    assert (result.text, result.warnings) == ("They saw LII dogs.", [])


async def test_a_lost_number_of_one_word_is_read_as_digits_then() -> None:
    below = FakeTranslator(words={"thirty": "dreizig"})
    [result] = await stage(below, letter_case=False).translate(["They saw thirty dogs."])
    assert (result.text, result.warnings) == ("They saw 30 dogs.", [])
    assert [texts for texts, _ in below.calls] == [["They saw thirty dogs."], ["They saw 30 dogs."]]
