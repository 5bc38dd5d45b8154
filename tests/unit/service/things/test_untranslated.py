"""Parts of the source that stand in a translation, as the model wrote no words, have warnings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from model.bundle.tokenizer import Tokenizer
from service.things.scanned import TermRules
from service.things.terms_translator import TermsTranslator
from service.translation.results import TextResult, WarningKind, untranslated
from tests.fake_runner import Script
from tests.unit.service.translation.translating import streamed, translating

BRANCHES = " ".join(f"={number} {{a mute dog}}" for number in range(30))
DEEP = "{n, plural, other {a dog " * 6 + "mute" + "}}" * 6
PARTS = (
    *("a dog runs", "a mute dog", "mute", "{name}", "5 dogs", "he says 'a mute dog'", "3.5"),
    "{n, plural, one {a mute dog} other {two dogs}}",
    "{n, plural, one {a dog} other {{m, plural, one {a mute dog} other {dogs}}}}",
    f"{{n, plural, {BRANCHES}}}",
    DEEP,
)
sentences = st.lists(st.sampled_from(PARTS), min_size=1, max_size=3).map(
    lambda parts: " ".join(parts).capitalize() + "."
)


def mute(tokenizer: Tokenizer) -> Script:
    """A model that writes no word where it reads "mute"; else "Hund" for each word of letters."""

    def script(source_ids: tuple[int, ...]) -> Sequence[int]:
        words = tokenizer.decode(source_ids).split()
        if any("mute" in word.lower() for word in words):
            return [tokenizer.eos_id]
        written = ["Hund" if word.strip(".'").isalpha() else word for word in words]
        return [*tokenizer.encode(" ".join(written)), tokenizer.eos_id]

    return script


def kinds_of(result: TextResult) -> set[WarningKind]:
    return {warning.kind for warning in result.warnings}


@settings(max_examples=60, deadline=None)
@given(st.lists(sentences, min_size=1, max_size=3).map(" ".join), st.booleans())
@example(f"See {DEEP}.", True)
@example(f"See {{n, plural, {BRANCHES}}}.", True)
def test_words_of_the_source_are_in_the_translation_with_a_warning_only(
    tokenizer: Tokenizer, text: str, checks: bool
) -> None:
    """In a call and in a stream; also without checks of things."""

    async def check() -> None:
        async with translating(tokenizer, mute(tokenizer), max_positions=512) as setup:
            kinds = TermRules("en", "de").kinds if checks else frozenset()
            rules = TermRules("en", "de", kinds=kinds, letter_case=False)
            stage = TermsTranslator(setup.translator, rules, setup.translator.limits)
            [result] = await stage.translate([text])
            _, summary = await streamed(stage, text)  # type: ignore[arg-type]
        for each in (result, summary):
            assert each.error is None
            is_kept = "mute" in each.text.lower()
            assert is_kept == (WarningKind.UNTRANSLATED in kinds_of(each)), each

    asyncio.run(check())


@pytest.mark.parametrize("text", ["Mute.", "A mute dog runs across the green field. " * 20])
async def test_the_warning_has_the_beginning_of_the_sentence(
    tokenizer: Tokenizer, text: str
) -> None:
    async with translating(tokenizer, mute(tokenizer), max_positions=512) as setup:
        [result] = await setup.translator.translate([text])
    sentence = text.partition(". ")[0].strip(".") + "."
    assert set(result.warnings) == {untranslated(sentence)}
    assert result.text == text
