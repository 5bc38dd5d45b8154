"""Translations of the memory with other things: none is lost or invented, or there is none."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.memory.adaptation import adapted
from service.memory.pairs import TextPair
from service.memory.wording import Wording, normalised

numbers = st.one_of(
    st.integers(0, 99_999).map(str),
    st.integers(0, 99_999).map("{:,}".format),
    st.floats(0, 999).map("{:.2f}".format),
    st.sampled_from(
        ["$5", "$7.50", "3 km", "4 pm", "5:30 pm", "{name}", "%s", "https://a.de", "2nd", "A-17"]
    ),
)
words = st.lists(
    st.sampled_from(["Order", "was", "shipped", "for", "at", "to"]), min_size=1, max_size=3
)


def given_by(source: str, target: str, text: str) -> str | None:
    pair = TextPair(source, target, "en", "de")
    return adapted(pair, Wording.of(text, "en"), "en", "de")


SHIPPED = ("Order 17 was shipped.", "Bestellung 17 ging raus.")


@pytest.mark.parametrize(
    ("pair", "text", "wanted"),
    [
        (SHIPPED, " Order  17\twas shipped.", "Bestellung 17 ging raus."),
        (SHIPPED, "Order 23 was shipped.", "Bestellung 23 ging raus."),
        (SHIPPED, "ORDER 23 WAS SHIPPED.", "BESTELLUNG 23 GING RAUS."),
        (SHIPPED, "Order 1,250.50 was shipped.", "Bestellung 1.250,50 ging raus."),
        (SHIPPED, "Order 7.5 was shipped.", None),  # 7,5 as a number, 7.5 as a version
        (SHIPPED, "order 17 was shipped.", None),  # "bestellung" would be wrong
        (SHIPPED, "Order 17 was shipped!", None),
        (SHIPPED, "Order A-17 was shipped.", None),
        (("the dog", "der Hund"), "The dog", "Der Hund"),
        (("The Dog", "Der Hund"), "The dog", None),
        (
            ("It is 3.5 m wide.", "Es ist 3,5 m breit."),
            "It is 4.25 m wide.",
            "Es ist 4,25 m breit.",
        ),
        (("At 5 pm.", "Um 17 Uhr."), "At 4:30 pm.", "Um 16:30 Uhr."),
        (("It costs $5.", "Es kostet 5 $."), "It costs $8.", "Es kostet 8 $."),
        (("Hi {name}, see %s.", "Hi {name}, siehe %s."), "Hi {x}, see %d.", "Hi {x}, siehe %d."),
        (("Page 1 of 1", "Seite 1 von 1"), "Page 2 of 3", None),  # which is which?
        (("I have 2 dogs", "Ich habe zwei Hunde"), "I have 3 dogs", None),
        (("I have 2 dogs", "Ich habe Hunde"), "I have 3 dogs", None),
        (("I have 2 dogs", "Ich habe 2 Hunde, nicht 4"), "I have 3 dogs", None),
        (("I have 2 dogs", "2 Hunde, 2 Katzen"), "I have 3 dogs", None),
        (("I have 2 dogs", "Ich habe {name}: 2 Hunde"), "I have 3 dogs", None),
    ],
)
def test_examples(pair: tuple[str, str], text: str, wanted: str | None) -> None:
    assert given_by(*pair, text) == wanted


@given(words, st.lists(numbers, max_size=3), st.lists(numbers, max_size=3), st.data())
def test_no_number_is_lost_or_invented(
    between: list[str], known: list[str], other: list[str], data: st.DataObject
) -> None:
    source = " ".join(_joined(between, known))
    written = data.draw(st.permutations(known)) if known else []
    target = " ".join(_joined(["Bestellung", "ging"], written))
    text = " ".join(_joined(between, other))
    found = given_by(source, target, text)
    if found is None:
        return
    if normalised(source) == normalised(text):
        assert found == target
        return
    assert _digits(found) == _digits(text) or any("pm" in each for each in other)
    for each in other:
        if not re.search(r"\d", each):
            assert found.count(each) == text.count(each)


def _joined(pieces: list[str], things: list[str]) -> list[str]:
    """Words with things between them, in turn."""
    joined = []
    for index in range(max(len(pieces), len(things))):
        joined += pieces[index : index + 1] + things[index : index + 1]
    return joined


def _digits(text: str) -> list[str]:
    """The numbers of a text, without separators and times of day."""
    return sorted(re.sub(r"[.,]", "", number) for number in re.findall(r"\d[\d.,]*", text))


@given(st.text(max_size=60))
def test_any_text_has_a_wording(text: str) -> None:
    wording = Wording.of(text, "en")
    assert wording.text == normalised(text)
    assert Wording.of(wording.text, "en") == wording
    assert len(set(wording.features())) == len(list(wording.features()))


@given(st.text(max_size=60))
def test_a_text_is_its_own_match(text: str) -> None:
    pair = TextPair(normalised(text), "x", "en", "de")
    assert adapted(pair, Wording.of(text, "en"), "en", "de") == "x"
