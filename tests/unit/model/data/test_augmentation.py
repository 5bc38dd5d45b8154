"""Augmentation: runs of sentences in order, and changed copies that keep both sides in step."""

from __future__ import annotations

import random
import re
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from model.bundle.tokenizer import sentinel
from model.data.augmentation import (
    RUN_CHARACTERS,
    copied_text,
    paragraphs,
    variants,
    with_sentinels,
)

PAIRS = [(f"This is sentence {n}.", f"Das ist Satz {n}.") for n in range(40)]
DOCUMENTS = [str(n // 7) for n in range(40)]


def numbers(text: str) -> list[int]:
    return [int(word.strip(".")) for word in text.split() if word.strip(".").isdigit()]


@given(st.integers(0, 100))
def test_paragraphs_are_runs_of_one_document_in_order(seed: int) -> None:
    found = paragraphs(PAIRS, DOCUMENTS, random.Random(seed), share=1.0)
    assert found
    for source, target in found:
        run = numbers(source)
        assert run == numbers(target) == list(range(run[0], run[0] + len(run)))
        assert 2 <= len(run) <= 6
        assert len({DOCUMENTS[n] for n in run}) == 1


def test_without_documents_sentences_are_joined_at_random_and_once_at_most() -> None:
    found = paragraphs(PAIRS, None, random.Random(1), share=1.0)
    used = Counter(n for source, _ in found for n in numbers(source))
    assert set(used.values()) == {1}
    assert any(numbers(source) != sorted(numbers(source)) for source, _ in found)
    for source, target in found:
        assert numbers(source) == numbers(target)


def test_a_share_of_the_sentences_becomes_paragraphs() -> None:
    pairs = PAIRS * 100
    count = len(paragraphs(pairs, None, random.Random(1), share=0.25))
    assert 0.2 < count / len(paragraphs(pairs, None, random.Random(1), share=1.0)) < 0.3


def test_paragraphs_are_short_enough_and_of_whole_sentences() -> None:
    long = [("word " * 60 + "end.", "Wort " * 60 + "Ende.")] * 10 + [("A menu", "Ein Menü")] * 10
    found = paragraphs(long, None, random.Random(1), share=1.0)
    assert found
    assert all(len(side) <= RUN_CHARACTERS and "enu" not in side for p in found for side in p)


def test_runs_may_be_longer() -> None:
    found = paragraphs(
        PAIRS, ["one"] * 40, random.Random(1), share=1.0, longest=20, characters=5_000
    )
    lengths = [len(numbers(source)) for source, _ in found]
    assert 6 < max(lengths) <= 20
    short = paragraphs(PAIRS, None, random.Random(1), share=1.0, longest=20, characters=100)
    assert all(len(side) <= 100 for pair in short for side in pair)


def test_every_kind_of_variant_is_made_from_real_pairs() -> None:
    pairs = [("Tom saw 25 cats in Boston.", "Tom sah in Boston 25 Katzen.")] * 3000
    found = variants(pairs, random.Random(1), share=1.0)
    assert {
        ("TOM SAW 25 CATS IN BOSTON.", "TOM SAH IN BOSTON 25 KATZEN."),
        ("Tom Saw 25 Cats In Boston.", "Tom sah in Boston 25 Katzen."),
        ("tom saw 25 cats in boston.", "Tom sah in Boston 25 Katzen."),
        ("Tom saw 25 cats in Boston", "Tom sah in Boston 25 Katzen"),
    } <= set(found)
    for source, target in found:
        for mark in ("https://", "%s", "😀", "<b>", "{name}"):
            assert source.count(mark) == target.count(mark)
    for mark in ("https://", "%s", "😀", "<b>", "{", "`", "@"):
        assert any(mark in source and source != target for source, target in found), mark


def test_case_is_left_alone_where_it_means_something() -> None:
    pairs = [("Set `user_name` in {file}, see www.x.org", "Setze `user_name` in {file}")] * 500
    for source, target in variants(pairs, random.Random(1), share=1.0):
        assert source == target or ("`user_name`" in source and "{file}" in target)


def test_copied_text_has_what_models_were_seen_to_damage() -> None:
    generator = random.Random(1)
    texts = [copied_text(generator) for _ in range(20_000)]
    for pattern in (
        *(r"0\d+", r"€\d+", r"\d+\.\d+\.\d+", r"`push \w+`|`\w+ push`"),
        *(r"an\w*@\S+", r"\S+\+\w+@\S+", r"\w+@\w+-\w+\.co\.uk"),
        *(r"https://\S+#[A-Z]\w+", r"www\.\S+\?\w+=\d&\w+=\w+"),
        *(".\ufe0f+", "🙏🏽+"),
    ):
        assert any(re.fullmatch(pattern, text) for text in texts), pattern


@given(st.integers(0, 1000), st.integers(1, 5))
def test_sentinels_stand_for_what_both_sides_have(seed: int, most: int) -> None:
    pair = (
        "Tom saw 25 cats at https://x.org, 25-30.",
        "Tom sah 25 Katzen, 25-30, bei https://x.org.",
    )
    source, target = with_sentinels(pair, random.Random(seed), most)
    used = re.findall("[\ue001-\ue0ff]", source)
    assert sorted(used) == sorted(re.findall("[\ue001-\ue0ff]", target))
    assert 1 <= len(set(used)) == len(used) <= most
    assert set(used) <= {sentinel(n) for n in range(1, most + 1)}


def test_a_pair_without_common_strings_gets_a_sentinel_beside_it() -> None:
    pair = ("The dog is here.", "der Hund ist da.")
    source, target = with_sentinels(pair, random.Random(1), 1)
    assert "\ue001" in source
    assert "\ue001" in target


def test_sentinels_come_on_top_of_other_variants() -> None:
    found = variants(PAIRS, random.Random(1), share=0.5, sentinels=3)
    marked = [pair for pair in found if "\ue001" <= max(pair[0]) <= "\ue003"]
    assert 0.3 * len(PAIRS) < len(marked) < 0.7 * len(PAIRS)
    assert not any(
        "\ue001" in text for pair in variants(PAIRS, random.Random(1), share=1.0) for text in pair
    )


@given(st.integers(0, 1000))
def test_the_same_seed_gives_the_same_text(seed: int) -> None:
    one, two = random.Random(seed), random.Random(seed)
    assert variants(PAIRS, one, share=0.5) == variants(PAIRS, two, share=0.5)
    assert copied_text(one) == copied_text(two)
