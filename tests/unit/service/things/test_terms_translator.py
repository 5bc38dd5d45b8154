"""Things, terms and letter case over a translator that damages what it translates."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.engine.engine import EngineConfig
from service.engine.quota import AdmittedCall
from service.errors import ResourceExhaustedError
from service.things import dates, patterns, prepared
from service.things.joined_results import TranslatedPart
from service.things.number_reader import numbers_in
from service.things.occurrences import Occurrences
from service.things.scanned import TermRules
from service.things.terms_translator import TermsTranslator
from service.things.things import ThingKind, find_things
from service.translation.options import TranslateOptions, TranslatorLimits
from service.translation.results import TextResult, WarningKind
from service.translation.translator import StreamDelta
from tests.factories import tiny_tokenizer
from tests.unit.service.text.scripted_translator import (
    FakeTranslator,
    stage,
    texts,
    things,
    translated,
    words,
)
from tests.unit.service.translation.translating import translating

LINKED = TranslateOptions(links=True)


def damages(text: str) -> st.SearchStrategy[dict[str, str]]:
    found = sorted({thing.text for thing in find_things(text)})
    written = st.sampled_from(["", "x", "<unk>", "Name", "12 12"])
    return st.dictionaries(st.sampled_from([*found, "{1}", "{2}", "%1"]), written, max_size=4)


@given(st.data(), st.lists(texts, min_size=1, max_size=3))
def test_every_thing_is_in_the_translation_as_often_as_in_the_text(
    data: st.DataObject, texts: list[str]
) -> None:
    below = FakeTranslator(data.draw(damages(" ".join(texts))))
    results = asyncio.run(stage(below, letter_case=False).translate(texts, LINKED))
    for text, result in zip(texts, results, strict=True):
        if result.error:
            continue
        kept = [each for each in find_things(text) if each.kind is not ThingKind.NUMBER]
        wanted = {each.text: (each.text,) for each in kept}
        # Parts of words too: an appended thing stands by itself.
        there, here = (Occurrences(t, wanted, wanted).spans for t in (text, result.text))
        # One that lost its place may also be left within a word, where it is not seen.
        placed = {w.text for w in result.warnings if w.kind is WarningKind.PLACE}
        for thing in wanted:
            surplus = len(here[thing]) - len(there[thing])
            assert surplus == 0 or (surplus > 0 and thing in placed)
        for link in result.links:
            assert 0 <= link.source.start <= link.source.end <= len(text)
            assert 0 <= link.target.start <= link.target.end <= len(result.text)
        assert [link.target for link in result.links] == sorted(r.target for r in result.links)


@given(st.data(), texts)
def test_the_deltas_of_a_stream_are_the_text_of_translate(data: st.DataObject, text: str) -> None:
    damaged = data.draw(damages(text))

    async def run() -> None:
        events = [event async for event in stage(FakeTranslator(damaged)).stream(text)]
        [result] = await stage(FakeTranslator(damaged)).translate([text])
        *deltas, last = events
        assert isinstance(last, TextResult)
        assert "".join(d.text for d in deltas if isinstance(d, StreamDelta)) == result.text
        assert last.text == result.text

    if "\0" not in text:
        asyncio.run(run())


@given(texts.map(str.lower).filter(lambda text: not numbers_in(text, "en")))  # read as digits
def test_what_a_model_keeps_needs_no_second_look(text: str) -> None:
    below = FakeTranslator()
    rules = TermRules("en", "en", letter_case=False)
    [result] = asyncio.run(TermsTranslator(below, rules, TranslatorLimits()).translate([text]))
    assert result.text == text or result.error
    assert len(below.calls) <= 2  # the sentences, and what is between them


MORE_THINGS = (
    " {0:N2} %% 5% 5 % 7 $ $20 5 usd %{n} {{ x }} {% if %} <b> </b> &amp; a1000 iso-8859-1 --all -a"
    r" c:\x /etc/hosts foo.txt no. 5 a. i. # #tag x² ½ :smile: 9 am 4 p.m. 10:30 5th 1990s 12-14 ±"
    " %s/%s {a}-{b} +49 ( ) , : - – ' \" … km s d"
)
glued = st.lists(
    st.tuples(things | words | st.sampled_from(MORE_THINGS.split(" ")), st.sampled_from([" ", ""])),
    min_size=1,
    max_size=8,
).map(lambda parts: "".join(part + space for part, space in parts).strip() + ".")


@given(glued.map(str.lower))
@example("5th 5.")
@example("1,250.50 %} 1,250.50%}.")
@example("€1,250.50 €.")
@example(":smile:https://example.com.")
@example(r"\' a")
@example("<b> https://example.com <b>https://example.com.")
def test_a_copy_of_a_sentence_lacks_nothing(text: str) -> None:
    rules = TermRules("en", "en", letter_case=False)
    below = FakeTranslator()
    [result] = asyncio.run(TermsTranslator(below, rules, TranslatorLimits()).translate([text]))
    assert result.text == text or result.error


@pytest.mark.parametrize(
    "text",
    [
        *(
            "%(n)d 3.5 %(n)d.",
            "Only 5 %(n)s.",
            "It costs 5 ${x}.",
            "-a -a.",
            "$20$20.",
            "#tag#tag.",
        ),
        *("4 %(n)d4.", "+49+49 house +49.", "runsA1000 %1$s5' 5'.", "$home1:30$home1:30."),
        *("%s %%s.", "$a/a$a/a."),
    ],
)
async def test_things_that_touch_others_are_counted_alike_on_both_sides(text: str) -> None:
    assert await translated(FakeTranslator(), text) == [text]


async def test_a_text_without_anything_to_keep_passes_through() -> None:
    below, text = FakeTranslator(), "The dog runs, and it is tired. The house is of Berlin."
    options = TranslateOptions(num_hypotheses=1)
    await stage(below).translate([text], options)
    assert below.calls == [([text], options)]


async def test_all_texts_of_a_call_are_put_right_together() -> None:
    below = FakeTranslator({"{name}": "Name", "%s": "s"})
    texts = [f"The dog {n} is {{name}} of %s." for n in range(20)]
    assert await translated(below, *texts) == texts
    assert [len(call) for call, _ in below.calls] == [20, 20]


async def test_only_the_sentence_with_the_thing_is_translated_again() -> None:
    below = FakeTranslator({"{name}": "Name"})
    text = "- The dog runs.  The {name} is here. The house.\n\n  It is {name}."
    assert await translated(below, text) == [text]
    assert [sorted(call) for call, _ in below.calls[2:]] == [["It is {1}.", "The {1} is here."]]


async def test_a_thing_that_no_stand_in_saves_takes_the_place_of_its_words() -> None:
    below = FakeTranslator({"{": "(", "%": "#"})
    assert await translated(below, "The {name} of %s is {name}.") == ["The {name} of %s is {name}."]


async def test_escapes_divide_sentences_as_line_breaks_do() -> None:
    below = FakeTranslator({"\\n": ""})
    texts = [r"\nThe dog.\n\nA {name} \n runs\r\n", r"The dog\nOf Berlin, \t and of it"]
    results = await stage(below).translate(texts, LINKED)
    for text, result in zip(texts, results, strict=True):
        assert result.text == text
        assert all(text[slice(*a)] == text[slice(*b)] for a, b, _ in result.links)
        events = [event async for event in stage(below).stream(text)]
        assert "".join(each.text for each in events if isinstance(each, StreamDelta)) == text
    read = {text for call, _ in below.calls for text in call}
    assert read == {"The dog", "The dog.", "A {name}", "runs", "", "Of Berlin,", "and of it"}


@pytest.mark.parametrize(
    "text", [r"The area is 3 \times 4 metres.", r"Use \nabla here.", r"$\rho$ of it"]
)
async def test_commands_that_begin_like_escapes_do_not_divide(text: str) -> None:
    below = FakeTranslator()
    assert await translated(below, text) == [text]
    assert [call for call, _ in below.calls] == [[text]]


async def test_an_escape_that_may_be_a_part_of_a_path_stays_in_its_sentence() -> None:
    below = FakeTranslator({"\\n": "N"})
    text = r"See temp\new."
    assert await translated(below, text) == [text]
    assert [call for call, _ in below.calls] == [[text], ["See temp{1}ew."]]
    assert await translated(FakeTranslator({"\\n": "", "{1}": "", "%1": ""}), text) == [
        r"See tempew \n."
    ]
    assert await translated(FakeTranslator(), r"See C:\Note.") == [r"See C:\Note."]


async def test_a_switch_for_each_kind() -> None:
    below = FakeTranslator({"{name}": "Name", "%s": "s", "42": "2"})
    text = "The {name} has 42 dogs."
    kinds = frozenset({ThingKind.NUMBER})
    assert await translated(below, text, kinds=kinds) == ["The Name has 42 dogs."]


async def test_numbers_get_the_separators_of_the_target_language() -> None:
    below = FakeTranslator()
    text = "It is 1,250.50 or 3.5 of 1,000,000."
    assert await translated(below, text) == ["It is 1.250,50 or 3.5 of 1.000.000."]
    assert len(below.calls) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("it costs 5\u00a0euros", "it costs 5\u00a0euros"),
        ("1,250\u202fkm or {n}\u00a0bytes", "1.250\u202fkm or {n}\u00a0bytes"),
        ("a\u00a0dog costs 5\u00a0euros or 5 dollars", "a dog costs 5 euros or 5 dollars"),
        ("3\u00a0dogs and 5\u00a0.", "drei dogs and 5\u00a0."),
    ],
)
async def test_a_no_break_space_after_a_number_stays(text: str, expected: str) -> None:
    below = FakeTranslator(words={"\u00a0": " ", "\u202f": " ", "3": "drei"})
    assert await translated(below, text) == [expected]
    [result] = await stage(below).translate([text], LINKED)
    linked = "".join(result.text[slice(*link.target)] for link in result.links)
    assert "".join(linked.split()) == "".join(expected.split())


async def test_a_bad_text_fails_alone_and_is_named() -> None:
    results = await stage(FakeTranslator()).translate(["One dog.", "It is {name}. {0}", "\0 {0}"])
    assert [result.error for result in results[:2]] == [None, None]
    assert str(results[2].error) == "contents[2]: has a NUL"


async def test_a_call_that_is_refused_fails() -> None:
    with pytest.raises(ResourceExhaustedError):
        await stage(FakeTranslator(room=0)).translate(["It is {name}."])


class HeldTranslator(FakeTranslator):
    """Answers nothing until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.release = asyncio.Event()

    async def translate(
        self, texts: Sequence[str], options: TranslateOptions | None = None, **shared: Any
    ) -> list[TextResult]:
        results = await super().translate(texts, options, **shared)
        await self.release.wait()
        return results


async def test_a_long_text_is_divided_as_its_sentences_are_translated(few_objects: None) -> None:
    below, text = HeldTranslator(), "The dog has 5. " * 1000
    result = asyncio.create_task(stage(below).translate([text, text]))
    while not below.calls:
        await asyncio.sleep(0)
    num_parts = None
    while num_parts != (num_parts := num_parts_held()):
        await asyncio.sleep(0.05)
    assert sum(len(call) for call, _ in below.calls) <= 600
    assert num_parts <= 900
    below.release.set()
    assert [each.text for each in await result] == [text, text]


def num_parts_held() -> int:
    return sum(type(each) is TranslatedPart for each in gc.get_objects())


async def test_a_call_without_room_is_refused_before_its_texts_are_divided(
    few_objects: None,
) -> None:
    below = FakeTranslator(room=0)
    before = num_parts_held()
    with pytest.raises(ResourceExhaustedError):
        await stage(below).translate(["The dog has 5. " * 100])
    assert (below.calls, num_parts_held()) == ([], before)


async def test_a_long_call_is_admitted_once(tmp_path: Path) -> None:
    tokenizer, text = tiny_tokenizer(tmp_path), "A dog has 5. It runs. " * 300
    async with translating(tokenizer, max_rows=64) as setup:
        admitted = setup.engine.admit
        num_admitted = 0

        def admit(*arguments: Any) -> AdmittedCall:
            nonlocal num_admitted
            num_admitted += 1
            return admitted(*arguments)

        setup.engine.admit = admit  # type: ignore[assignment, method-assign]
        terms = TermsTranslator(setup.translator, TermRules("en", "de"), TranslatorLimits())
        [result] = await terms.translate([text])
        events = [event async for event in terms.stream(text)]
        assert (result.text, num_admitted) == (text, 2)
        assert "".join(each.text for each in events if isinstance(each, StreamDelta)) == text
        assert setup.engine._admission.num_taken == 0


async def test_a_busy_engine_gives_further_attempts_as_an_idle_one_does(tmp_path: Path) -> None:
    tokenizer, texts = tiny_tokenizer(tmp_path), ["A {name} dog.", "A DOG.", "A dog in Rome"]

    def script(source_ids: tuple[int, ...]) -> Sequence[int]:
        text = tokenizer.decode(source_ids).replace("{name}", "").replace("DOG", "...")
        return [*tokenizer.encode(text), tokenizer.eos_id]

    async with translating(tokenizer, script) as setup:
        terms = TermsTranslator(setup.translator, TermRules("en", "de"), TranslatorLimits())
        idle = await terms.translate(texts)
        admitted = setup.engine.admit

        def admit(*arguments: Any) -> AdmittedCall:
            setup.engine.admit = refuse  # type: ignore[assignment, method-assign]
            return admitted(*arguments)

        def refuse(*arguments: Any) -> AdmittedCall:
            raise ResourceExhaustedError("full")

        setup.engine.admit = admit  # type: ignore[assignment, method-assign]
        busy = await terms.translate(texts)
        assert [result.text for result in busy] == [result.text for result in idle]
        assert "{name}" in idle[0].text
        with pytest.raises(ResourceExhaustedError):
            await terms.translate(texts)


async def test_a_call_with_more_sentences_than_the_queue_holds_is_taken_with_its_retries(
    tmp_path: Path,
) -> None:
    tokenizer, text = tiny_tokenizer(tmp_path), "A dog has 5. " * 10

    def script(source_ids: tuple[int, ...]) -> Sequence[int]:
        """A model that loses numbers, so that each sentence needs further attempts."""
        lost = tokenizer.decode(source_ids).replace("5", "")
        return [*tokenizer.encode(lost), tokenizer.eos_id]

    config = EngineConfig(max_waiting=16, max_queue_seconds=None)
    async with translating(tokenizer, script, config=config) as setup:
        terms = TermsTranslator(setup.translator, TermRules("en", "de"), TranslatorLimits())
        results = await terms.translate([text] * 30)
        assert [result.text.count("5") for result in results] == [10] * 30
        assert setup.engine._admission.num_taken == 0


async def test_patterns_of_languages_are_compiled_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each takes up to some ten milliseconds, in which the event loop would answer nobody."""
    threads: set[str] = set()
    compiled = re.compile

    def compile_here(pattern: str, flags: int = 0) -> re.Pattern[str]:
        if len(pattern) > 500:
            threads.add(threading.current_thread().name)
        return compiled(pattern, flags)

    prepared._prepared.clear()
    for cache in (patterns._words_beside, dates._pattern, dates._days_patterns):
        cache.cache_clear()
    monkeypatch.setattr(re, "compile", compile_here)
    dated = "On Monday 5 May two dogs ran."
    await stage(FakeTranslator({})).translate([dated], LINKED)
    assert threads
    assert threading.main_thread().name not in threads
