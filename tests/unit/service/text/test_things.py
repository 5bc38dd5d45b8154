"""Things that are found in a text, and the treatment of numbers and letter case."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.bundle.spans import Span
from service.text.things.edits import Edit, EditedText
from service.text.things.letter_case import (
    LetterCase,
    letter_case,
    may_be_unusual,
    recased,
    restored,
)
from service.text.things.number_forms import forms, preferred
from service.text.things.thing_forms import forms_of
from service.text.things.things import ThingKind, find_things, may_have_things

FOUND = {
    ThingKind.PLACEHOLDER: "{name} {0} {} %s %(n)d %1$s %1 %PATH% $HOME ${user} <b> </b> {0:.2f}"
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
