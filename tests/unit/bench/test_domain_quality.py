"""Sentences by domain: every reference passes its checks, and nothing else's does."""

import pytest

from bench.domain_quality import HALVES, DomainSentence, folded, half, read_domains, table

DOMAINS = read_domains()
SENTENCES = [one for sentences in DOMAINS.values() for one in sentences]


def test_there_are_fifty_sentences_in_each_of_eight_domains_and_half_of_them_judge() -> None:
    assert [len(sentences) for sentences in DOMAINS.values()] == [50] * 8
    assert len({one.en for one in SENTENCES}) == 400
    for sentences in DOMAINS.values():
        choose, judge = (half(sentences, each) for each in HALVES)
        assert len(choose) == len(judge) == 25
        assert [one for pair in zip(choose, judge, strict=True) for one in pair] == sentences


def test_each_sentence_has_two_translations_or_more() -> None:
    assert all(len({folded(text) for text in one.de}) >= 2 for one in SENTENCES)


@pytest.mark.parametrize("sentence", SENTENCES, ids=lambda one: one.en)
def test_the_checks_accept_every_reference(sentence: DomainSentence) -> None:
    for text in sentence.de:
        # The checks, not the comparison with the references, accept it.
        unlisted = DomainSentence(
            sentence.en, tuple(f"{t} !" for t in sentence.de), *checks(sentence)
        )
        assert unlisted.is_right(text), text


def test_the_checks_refuse_the_references_of_all_other_sentences() -> None:
    accepted = [
        (one.en, text)
        for one in SENTENCES
        for other in SENTENCES
        if other is not one
        for text in other.de
        if one.is_right(text)
    ]
    assert accepted == []


def test_the_checks_refuse_the_source_and_a_translation_without_an_end() -> None:
    for one in SENTENCES:
        assert not one.is_right(one.en)
        assert not one.is_right("")
        assert not one.is_right(" ".join([one.de[0]] * 3))


SENTENCE = DomainSentence(
    "The old farmer sold his house.",
    ("Der alte Bauer verkaufte sein Haus.", "Der alte Landwirt hat sein Haus verkauft."),
    (r"bauer|landwirt", r"\balte\b", r"verkauf", r"haus"),
    (r"bauherr",),
)


@pytest.mark.parametrize(
    ("translation", "is_right"),
    [
        ("Der alte Bauer hat sein Haus verkauft.", True),
        ("DER ALTE BAUER  VERKAUFTE SEIN HAUS.", True),
        ("Der alte Bauer kaufte sein Haus.", False),
        ("Der alte Bauherr und Bauer verkaufte sein Haus.", False),
        ("Der alte farmer, ein Bauer, verkaufte sein Haus.", False),
        ("Der alte Bauer verkaufte sein Haus Haus Haus.", False),
        ("Bauer alte Haus, " + "er verkaufte es und auch " * 4, False),
    ],
)
def test_a_translation_is_right_if_it_says_the_same(translation: str, is_right: bool) -> None:
    assert SENTENCE.is_right(translation) is is_right


def test_the_table_has_a_row_for_each_domain_and_one_for_all() -> None:
    right = {
        "law": {"choose": [True, False], "judge": [True]},
        "news": {"choose": [True], "judge": [False]},
    }
    assert table(right)[2:] == [
        "| law | 1 of 2 | 1 of 1 |",
        "| news | 1 of 1 | 0 of 1 |",
        "| all | 2 of 3 | 1 of 2 |",
    ]


def checks(sentence: DomainSentence) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return sentence.needs, sentence.never
