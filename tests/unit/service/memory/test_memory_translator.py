"""The stage of a memory, and the adaptation of its translations to other things."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.requests import FinishReason
from service.errors import InvalidArgumentError
from service.memory.adaptation import adapted
from service.memory.memory_translator import LookUp, MemoryTranslator
from service.memory.pairs import MAX_ALTERNATIVES, MemoryUse, StoredMemory, TextPair
from service.memory.wording import Wording, normalised
from service.things.joined_results import MAX_SHOWN_MATCHES
from service.translation.options import TranslateOptions, TranslatorLimits
from service.translation.results import MemoryMatch, TextResult
from service.translation.translator import StreamDelta

USE = MemoryUse(StoredMemory(1, "m", 1), "en", "de", 0.75)


class ScriptedSearch:
    """A search that knows some texts, and finds one similar pair for all others."""

    def __init__(self, *known: str) -> None:
        self.known = known

    def exact(self, text: str) -> MemoryMatch | None:
        found = text in self.known
        return MemoryMatch(text, text, f"<{text}>", 1.0, "m") if found else None

    def similar(self, text: str) -> list[MemoryMatch]:
        return [MemoryMatch(text, "source", "target", 0.8, "m")]


class ScriptedStore:
    def __init__(self, *known: str) -> None:
        self._search = ScriptedSearch(*known)

    async def search(self, client: str, use: MemoryUse, search: Any) -> Any:
        return search(self._search)


class Below:
    """A translator that writes its texts in capitals; "bad" is refused."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def enter(self, options: Any = None, **shared: Any) -> None:
        pass

    async def translate(
        self, texts: Sequence[str], options: Any = None, **shared: Any
    ) -> list[TextResult]:
        self.texts += texts
        for index, text in enumerate(texts):
            if "refused" in text:
                raise InvalidArgumentError(f"contents[{index}]", "refused")
        return [
            TextResult("", None, error=InvalidArgumentError(f"contents[{index}]", "is bad"))
            if "bad" in text
            else TextResult(text.upper(), FinishReason.EOS, 3, 3)
            for index, text in enumerate(texts)
        ]

    async def stream(
        self, text: str, options: Any = None, **shared: Any
    ) -> AsyncGenerator[StreamDelta | TextResult, None]:
        [result] = await self.translate([text])
        if result.error:
            raise InvalidArgumentError("content", "is bad")
        yield StreamDelta(result.text)
        yield result


def stage(below: Below, *known: str) -> MemoryTranslator:
    return MemoryTranslator(below, ScriptedStore(*known), USE, TranslatorLimits())


async def test_texts_without_a_match_reach_the_stage_below_unchanged() -> None:
    texts = ["One. Two.\n\n- Three. ", "", " \n", "a\0b", "\ud800"]
    below = Below()
    results = await stage(below, "Four.").translate(texts)
    assert below.texts == texts
    assert [result.text for result in results] == [text.upper() for text in texts]
    assert len(results[0].alternatives) == 3


async def test_only_what_is_between_matches_is_translated() -> None:
    below = Below()
    [first, second] = await stage(below, "Two.", "Five. Six.").translate(
        ["One. Two. Three.\nFour. Two.\n* Five. Six.", "Two."]
    )
    assert below.texts == ["One.", " Three.\nFour."]
    assert first.text == "ONE. <Two.> THREE.\nFOUR. <Two.>\n* <Five. Six.>"
    assert [match.sentence for match in first.memory_matches] == ["Two.", "Two.", "Five. Six."]
    assert [match.sentence for match in first.alternatives] == ["One.", "Three.", "Four."]
    assert (first.num_memory_matches, first.num_source_tokens) == (3, 6)
    assert (second.text, second.num_source_tokens) == ("<Two.>", 0)


async def test_errors_name_the_text_of_the_request() -> None:
    [good, bad] = await stage(Below(), "Two.").translate(["Two. Fine.", "Two. It is bad."])
    assert good.error is None
    assert str(bad.error) == "contents[1]: is bad"
    assert not bad.memory_matches
    with pytest.raises(InvalidArgumentError, match=r"contents\[1\]: refused"):
        await stage(Below(), "Two.").translate(["Two.", "Two. Is refused."])


async def test_a_stream_is_the_translation() -> None:
    text = "One. Two. Three.\nFour. Two.\n"
    [whole] = await stage(Below(), "Two.").translate([text])
    events = [event async for event in stage(Below(), "Two.").stream(text)]
    *deltas, end = events
    assert "".join(delta.text for delta in deltas if isinstance(delta, StreamDelta)) == whole.text
    assert isinstance(end, TextResult)
    assert (end.text, end.memory_matches) == (whole.text, whole.memory_matches)
    with pytest.raises(InvalidArgumentError, match="content: is bad"):
        _ = [event async for event in stage(Below(), "Two.").stream("Two. It is bad.")]


async def test_a_stream_is_limited_by_its_normalised_length() -> None:
    limits = TranslatorLimits(max_characters=100)
    translator = MemoryTranslator(Below(), ScriptedStore("Two."), USE, limits)
    text = "Two. " + 40 * "\ufdfa"  # each is 18 characters when normalised
    with pytest.raises(InvalidArgumentError, match="content: 7"):
        _ = [event async for event in translator.stream(text)]


async def test_a_stream_that_is_closed_closes_the_stages_below() -> None:
    class Endless(Below):
        is_open = False

        async def stream(
            self, text: str, options: Any = None, **shared: Any
        ) -> AsyncGenerator[StreamDelta | TextResult, None]:
            self.is_open = True
            try:
                while True:
                    yield StreamDelta("more")
            finally:
                self.is_open = False

    below = Endless()
    events = stage(below).stream("One. Two.")
    await anext(events)
    assert below.is_open
    await events.aclose()
    assert not below.is_open


async def test_without_splitting_only_whole_texts_match() -> None:
    below, options = Below(), TranslateOptions(split_sentences=False)
    [first, second] = await stage(below, "Two.").translate([" Two.\n", "One. Two."], options)
    assert first.text == " <Two.>\n"
    assert below.texts == ["\n", "One. Two."]
    assert second.text == "ONE. TWO."


async def test_matches_and_alternatives_are_bounded() -> None:
    [result] = await stage(Below(), "Two.").translate(["Two. One. " * 600])
    assert result.num_memory_matches == 600
    assert len(result.memory_matches) == MAX_SHOWN_MATCHES
    assert len(result.alternatives) == MAX_ALTERNATIVES


pieces = st.lists(
    st.sampled_from(["One.", "Two.", " ", "\n", "\t", "- ", "3.5", "{x}.", "Ä!", "\0"])
)


@given(pieces.map("".join), st.sets(st.sampled_from(["One.", "Two.", "One. Two.", "3.5"])))
def test_parts_are_the_text(text: str, known: set[str]) -> None:
    look_up, parts = LookUp([text], "en", splits=True, links=False), []
    while not look_up.is_done:
        parts += look_up.some(ScriptedSearch(*known))
    assert "".join(part.part.separator + part.part.text for part in parts) == text
    for part in parts:
        assert not part.results or part.part.text in known


# --- adaptation -----------------------------------------------------------------------------------

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
