"""A dictionary as training text: what is read of it, and nouns in sentences that stay right."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from model.data.corpus import read_lines
from model.data.dictionary import (
    MAX_TRANSLATIONS,
    Dictionary,
    Noun,
    in_context,
    main,
    read_dictionary,
    with_articles,
)

LINES = """\
# Version :: of 2023
Hund {m} [zool.] | Hunde {pl} | Hunde bellen nachts. [Sprw.] \
:: dog; hound | dogs; hounds | Dogs bark at night. [prov.]
Bordstein {m}; Kantstein {m} [selten] | Bordsteine {pl} :: kerb [Br.]; curb [Am.] | kerbs; curbs
Kandare {f} | Kandaren {pl} :: curb | curbs
Zügel {m} :: curb
Student {m} (an der Universität) | Studenten {pl} :: student | students
Esel {m} | Esel {pl} :: donkey | donkeys
Uhr {f} | Uhren {pl} :: watch | watches
Harfe {f} [mus.] | Harfen {pl} :: harp | harps
Abgaskanal {m} [techn.] | Abgaskanäle {pl} :: flue | flues
Blauschnäpper {m} [ornith.] :: niltava
etw. ausblenden {vt} | ausblendend :: to hide {hid; hidden} sth. | hiding
jdm. etw. geben {vt} :: to give sb. sth.
verkaufen/veräußern {vt} :: to sell
Sie hat etwas gekauft. :: She’s bought something.
ungleich | viele :: unequal
"""


@pytest.fixture
def dictionary(tmp_path: Path) -> Dictionary:
    path = tmp_path / "de-en"
    path.write_text(LINES, encoding="utf-8")
    return read_dictionary(path)


def translations(dictionary: Dictionary, english: str) -> list[str]:
    return [german for source, german in dictionary.terms if source == english]


def test_each_synonym_is_translated_by_the_first_german_one(dictionary: Dictionary) -> None:
    assert translations(dictionary, "kerb") == ["Bordstein"]
    assert translations(dictionary, "hounds") == ["Hunde"]
    # Where it stands first comes before where it is a synonym.
    assert translations(dictionary, "curb") == ["Kandare", "Zügel"][:MAX_TRANSLATIONS]


def test_sentences_are_kept_apart_from_terms(dictionary: Dictionary) -> None:
    assert dictionary.sentences == [
        ("Dogs bark at night.", "Hunde bellen nachts."),
        ("She's bought something.", "Sie hat etwas gekauft."),
    ]


def test_words_for_someone_and_something_are_left_out(dictionary: Dictionary) -> None:
    assert translations(dictionary, "to hide") == ["ausblenden"]
    assert not translations(dictionary, "to give")


def test_alternatives_nomenclature_and_unequal_lines_are_left_out(dictionary: Dictionary) -> None:
    for english in ("to sell", "niltava", "flue", "unequal"):
        assert not translations(dictionary, english)
    assert not any(set("/;|()[]{}<>") & set("".join(pair)) for pair in dictionary.terms)


def test_nouns_have_articles_that_agree(dictionary: Dictionary) -> None:
    found = {
        pair for seed in range(20) for pair in with_articles(dictionary.nouns, random.Random(seed))
    }
    assert {("the harp", "die Harfe"), ("a harp", "eine Harfe"), ("the dog", "der Hund")} <= found
    assert not any("flue" in source for source, _ in found)


def test_a_noun_is_replaced_by_one_of_its_gender(dictionary: Dictionary) -> None:
    context = [
        ("This is a watch.", "Das ist eine Uhr."),
        ("I bought a dog.", "Ich habe einen Hund gekauft."),
        ("The student has an old dog.", "Der Student hat einen alten Hund."),
        ("Dogs bark.", "Hunde bellen."),
        ("Nothing to see.", "Nichts zu sehen."),
    ]
    genders = {
        "Harfe": "eine",
        "Uhr": "eine",
        "Esel": "einen",
        "Bordstein": "einen",
        "Hund": "einen",
    }
    found = {
        pair
        for seed in range(30)
        for pair in in_context(dictionary.nouns, context, random.Random(seed))
    }
    assert ("This is a harp.", "Das ist eine Harfe.") in found
    assert ("I bought a donkey.", "Ich habe einen Esel gekauft.") in found
    for _, target in found:
        words = target.rstrip(".").split()
        if words[:2] == ["Das", "ist"] or "gekauft" in target:
            noun = next(word for word in words if word in genders or word == "Kandare")
            assert genders.get(noun, "eine") in words
        # The masculine singular of weak nouns tells cases apart: neither replaced nor put in.
        assert "Student" not in target or target.startswith("Der Student hat")
    assert not any("Nothing" in source for source, _ in found)


def test_the_indefinite_article_suits_the_new_noun() -> None:
    nouns = [
        Noun(("eye", "Auge"), ("eyes", "Augen"), "n"),
        Noun(("house", "Haus"), ("houses", "Häuser"), "n"),
    ]
    context = [("A house is big.", "Ein Haus ist groß."), ("I see an eye.", "Ich sehe ein Auge.")]
    found = {pair for seed in range(10) for pair in in_context(nouns, context, random.Random(seed))}
    assert found == {
        ("An eye is big.", "Ein Auge ist groß."),
        ("I see a house.", "Ich sehe ein Haus."),
    }


def test_three_corpora_are_written(tmp_path: Path) -> None:
    (tmp_path / "de-en").write_text(LINES, encoding="utf-8")
    (tmp_path / "c.en").write_text("This is a watch.\n", encoding="utf-8")
    (tmp_path / "c.de").write_text("Das ist eine Uhr.\n", encoding="utf-8")
    output = tmp_path / "raw"
    main(tmp_path / "de-en", output, (tmp_path / "c.en", tmp_path / "c.de"))
    for name in ("ding-sentences", "ding-terms", "ding-in-context"):
        sides = [read_lines(output / name / f"train.{side}") for side in ("en", "de")]
        assert len(sides[0]) == len(sides[1]) > 0
