"""Things that are found in a text, the treatment of numbers and letter case, and all formats."""

from __future__ import annotations

import asyncio
import html
import os
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.kept_sentences import KINDS, sample_sentence
from model.bundle.carriers import DEFAULT_CARRIERS, SENTINELS, Carrier
from model.bundle.spans import Span
from service.text.markup.markdown_inline import encode
from service.text.options import MimeType, TextOptions
from service.text.text_translator import text_translator
from service.things.edits import Edit, EditedText
from service.things.letter_case import (
    LetterCase,
    letter_case,
    may_be_unusual,
    recased,
    restored,
)
from service.things.number_forms import forms, preferred
from service.things.thing_forms import forms_of
from service.things.things import ALL_KINDS, ThingKind, find_things, may_have_things
from service.translation.options import TranslateOptions, TranslatorLimits
from service.translation.results import TextResult
from tests.unit.service.documents.samples import read
from tests.unit.service.text.scripted_translator import FakeTranslator

FOUND = {
    ThingKind.PLACEHOLDER: "{name} {0} {} %s %(n)d %1$s %1 %PATH% $HOME ${user} <b> </b> {0:.2f}"
    r" %s/%s {n}/{total} %d:%02d {a}–{b} %s@%s"
    r" [X7X] @tom @anna_b @a.b@mail.example \n \r\n\t",
    ThingKind.URL: "https://example.com/a(b)?c=d&e=f#g www.example.org ftp://x.example",
    ThingKind.EMAIL: "tom@example.com a.b+c@mail.example.co.uk",
    ThingKind.CODE: "`ls`",
    ThingKind.EMOJI: "🎉🎉 👩‍👩‍👧 👍🏽 1️⃣ 🇩🇪",
    ThingKind.SYMBOL: "© € →",
    ThingKind.NUMBER: "1,250.50 10:30 12/05/2024 3.5 7 1'000",
}


@pytest.mark.parametrize("kind", FOUND)
def test_things_are_found_between_words(kind: ThingKind) -> None:
    for thing in FOUND[kind].split():
        for text in (thing, f"a ({thing}), b", f"Is it {thing}?"):
            assert [(each.kind, each.text) for each in find_things(text)] == [(kind, thing)]
            assert not find_things(text, frozenset(ThingKind) - {kind})


def test_tags_in_braces_are_not_joined() -> None:
    found = find_things("{link}here{/link}/{link2}there{/link2}")
    assert [each.text for each in found] == ["{link}", "{/link}", "{link2}", "{/link2}"]


def test_a_colon_before_an_address_is_no_short_code() -> None:
    address = "https://example.com/a"
    assert [each.text for each in find_things(f"Link:{address} a")] == [address]
    assert [each.text for each in find_things(f":smile::wave:{address}")] == [
        ":smile::wave:",
        address,
    ]


@pytest.mark.parametrize(
    "text",
    [
        *(
            "a < b and c > d",
            "and/or",
            "he/she/it",
            "x@y",
            "a @ b",
            "[X]",
            "Stop.it now",
        ),
        *(
            "a well-known dog",
            "don't",
            "the dogs' house",
            "Note: it",
            "e.g. a",
            "_so_ good",
            "so :)",
        ),
    ],
)
def test_what_the_model_may_change_is_none(text: str) -> None:
    assert not find_things(text)


@given(st.text("a1.,:/{}%$<>`@ w\u20ac🎉\ufe0f-", max_size=60))
def test_things_are_parts_of_the_text_that_do_not_overlap(text: str) -> None:
    end, found = 0, find_things(text)
    for thing in found:
        assert text[slice(*thing.span)] == thing.text
        assert end <= thing.span.start < thing.span.end
        end = thing.span.end
    assert may_have_things(text) or not found


@pytest.mark.parametrize(
    "unit",
    [
        *("1", "1,", "a.", "{", "<a ", "`a", "a@", "%(", "$_", "https://a.", "@a.", "[X1", r"a\n"),
        *(
            "\\",
            "±",
            "1$",
            "{%",
            "&#1",
            "la ",
            "{a,plural,",
            "猫 ",
            "a_",
            "A1-",
            "1 to ",
            "5′",
            "a.b.",
        ),
    ],
)
def test_long_rows_are_searched(unit: str) -> None:
    find_things(unit * 30_000)  # in quadratic time it would take minutes


@pytest.mark.parametrize(
    ("number", "source", "target", "written"),
    [
        *(("1,250.50", "en", "de", "1.250,50"), ("1.250,50", "de", "en", "1,250.50")),
        *(
            ("1,250", "en", "de", "1.250"),
            ("3.5", "en", "de", "3.5"),
            ("10:30", "en", "de", "10:30"),
        ),
        *(
            ("1 250", "fr", "en", "1,250"),
            ("1,250", "en", "zh", "1,250"),
            ("1,250", "en", "xx", "1,250"),
        ),
    ],
)
def test_only_numbers_with_marked_thousands_are_rewritten(
    number: str, source: str, target: str, written: str
) -> None:
    assert preferred(number, source, target) == written
    assert forms(number, source, target)[0] == written


@pytest.mark.parametrize("text", ["10:30", "10:30 am"])
def test_a_time_with_a_point_is_a_date_in_german_unless_it_says_more(text: str) -> None:
    thing = find_things(f"At {text} he left.")[0]
    assert "10.30" in forms_of(thing, "en", "fi").right
    assert "10.30" not in forms_of(thing, "en", "de").right
    assert "10.30 Uhr" in forms_of(thing, "en", "de").right


@pytest.mark.parametrize(
    ("text", "case", "changed"),
    [
        ("I AM VERY TIRED, I'M SURE.", LetterCase.CAPITALS, "I am very tired, I'm sure."),
        ("How To Install HTML Files", LetterCase.TITLE, "How to install HTML files"),
        ("The Lord of the Rings Online", LetterCase.TITLE, "The lord of the rings online"),
        ("CANCEL", LetterCase.FEW_CAPITALS, "cancel"),
        ("Freedom", LetterCase.WORD, "freedom"),
    ],
)
def test_unusual_letter_cases(text: str, case: LetterCase, changed: str) -> None:
    assert may_be_unusual(text)
    assert letter_case(text, "en") is case
    assert recased(text, case) == changed


@pytest.mark.parametrize(
    "text", ["I live in New York City.", "Tom Smith", "a", "NASA is big.", "12"]
)
def test_usual_sentences(text: str) -> None:
    assert letter_case(text, "en") is LetterCase.USUAL


def test_german_has_no_title_case() -> None:
    assert letter_case("Hund Katze Maus", "de") is LetterCase.USUAL
    assert restored("so installieren Sie", LetterCase.TITLE, "de") == "So installieren Sie"
    assert restored("install the files", LetterCase.TITLE, "en") == "Install the Files"


@given(st.text(max_size=40), st.sampled_from(LetterCase))
def test_letter_case_keeps_every_position(text: str, case: LetterCase) -> None:
    assert len(recased(text, case)) == len(text)
    assert len(restored(text, case, "en")) == len(text)


@st.composite
def edited(draw: st.DrawFn) -> tuple[str, list[Edit]]:
    text = draw(st.text("abc ", max_size=20))
    cuts = draw(st.lists(st.integers(0, len(text)), max_size=6, unique=True).map(sorted))
    pairs = zip(cuts[::2], cuts[1::2], strict=False)
    return text, [Edit(Span(*pair), draw(st.text("XYZ", max_size=4))) for pair in pairs]


@given(edited(), st.data())
def test_a_part_outside_of_edits_moves_as_it_is(
    given_: tuple[str, list[Edit]], data: st.DataObject
) -> None:
    text, edits = given_
    changed = EditedText(text, edits)
    ends = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    span = Span(*ends)
    after = changed.after(span)
    assert 0 <= after.start <= after.end <= len(changed.text)
    touched = [e for e in edits if e.span.start <= span.end and span.start <= e.span.end]
    if not touched:
        assert changed.text[slice(*after)] == text[slice(*span)]
        assert changed.before(after) == span


# --- in all formats -------------------------------------------------------------------------------

CARRIERS = {
    "usual": DEFAULT_CARRIERS,
    "sentinels": (Carrier(SENTINELS, 2), *DEFAULT_CARRIERS),
    "none": (),
}


@dataclass
class DamagingTranslator(FakeTranslator):
    """Damages some words, always the same of the same text."""

    seed: int = 0
    limits: TranslatorLimits = field(default_factory=TranslatorLimits)
    carriers: tuple[Carrier, ...] = DEFAULT_CARRIERS

    def _translated(self, text: str, options: TranslateOptions, index: int) -> TextResult:
        rng = random.Random(f"{self.seed} {text}")
        share = rng.choice([0.1, 0.3, 0.6])
        words = [word for word in re.findall(r"\S+", text) if rng.random() < share]
        self.words = {word: damaged(word, rng) for word in words}
        return super()._translated(text, options, index)


def damaged(word: str, rng: random.Random) -> str:
    at = rng.randrange(len(word))
    return rng.choice(
        [
            "",
            "\ufffd",
            word[:at] + word[at + 1 :],
            word[:at] + rng.choice("x7{%") + word[at + 1 :],
            f"{word} {word}",
            word.swapcase(),
            rng.choice(["{1}", "{2}", "XX1", "\ue001", "%1"]),
            " ".join([word] * 9),
        ]
    )


async def translated(
    below: DamagingTranslator, text: str, mime_type: MimeType = MimeType.PLAIN
) -> TextResult:
    options = TextOptions(mime_type, verbatim=ALL_KINDS, adapt_letter_case=True)
    [result] = await text_translator(below, options, ("en", "de")).translate([text])  # type: ignore[arg-type]
    assert result.error is None
    return result


async def in_plain_text(below: DamagingTranslator, text: str) -> tuple[str, Sequence[Any]]:
    result = await translated(below, text)
    return result.text, result.warnings


async def in_html(below: DamagingTranslator, text: str) -> tuple[str, Sequence[Any]]:
    first, *rest = html.escape(text, quote=False).split(" ")
    document = f"<p><b>{first}</b> {' '.join(rest)}</p>"
    result = await translated(below, document, MimeType.HTML)
    return html.unescape(re.sub(r"</?(?:p|b)>", "", result.text)), result.warnings


async def in_markdown(below: DamagingTranslator, text: str) -> tuple[str, Sequence[Any]]:
    result = await translated(below, f"- {encode(text)}", MimeType.MARKDOWN)
    written = result.text.removeprefix("- ")
    return html.unescape(re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", written)), result.warnings


async def in_po(below: DamagingTranslator, text: str) -> tuple[str, Sequence[Any]]:
    entry = polib.POEntry(msgid=text)
    document = read("a.po", f"{entry}\n")
    translations: list[str] = []
    warnings: list[Any] = []
    for segment in document.segments:
        result = await translated(below, segment.text, segment.mime_type)
        translations.append(result.text)
        warnings += result.warnings
    [written] = polib.pofile(document.write(translations).decode())
    return written.msgstr, [*warnings, *(["fuzzy"] if written.fuzzy else [])]


NUM_SEEDS = int(os.environ.get("NUM_SEEDS", 4))
FORMATS = {"plain": in_plain_text, "HTML": in_html, "Markdown": in_markdown, "PO": in_po}


@pytest.mark.parametrize("carriers", CARRIERS)
@pytest.mark.parametrize("name", FORMATS)
def test_things_are_kept_or_warned_of(name: str, carriers: str) -> None:
    wrong = []
    for seed in range(NUM_SEEDS):
        rng = random.Random(f"{seed} {name}")
        for kind in KINDS:
            sample = sample_sentence(rng, kind)
            below = DamagingTranslator(seed=seed, carriers=CARRIERS[carriers])
            text, warnings = asyncio.run(FORMATS[name](below, sample.text))
            if not warnings and not sample.is_right(text):
                wrong.append((sample.text, text))
    assert not wrong
