"""A test of context: does "it" get the gender of the noun in the sentence before?

German has three pronouns for "it", by the gender of the noun that it stands for: er, sie, es. Each
item is a sentence with a noun, perhaps others that say nothing about it, and one with "it". They
are made by rule from nouns whose gender and translation are known, so that a third of the items has
each gender, and a model without context gets a third right.

Measured in two ways (Müller et al., 2018, "A Large-Scale Test Set for the Evaluation of
Context-Aware Pronoun Translation in Neural Machine Translation", does the first):

- contrastive: of three translations that differ in the pronoun alone, the right one is the
  likeliest;
- free: the pronoun that the model writes has the gender of the noun that it wrote.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

GENDERS = ("m", "f", "n")

_NOUNS = {
    "m": "key Schlüssel, table Tisch, chair Stuhl, hat Hut, ball Ball, ring Ring, coat Mantel, "
    "computer Computer, mirror Spiegel, letter Brief, stone Stein, cake Kuchen, suitcase Koffer, "
    "printer Drucker, spoon Löffel, pencil Bleistift",
    "f": "lamp Lampe, bag Tasche, flower Blume, bottle Flasche, watch Uhr, map Karte, "
    "newspaper Zeitung, camera Kamera, guitar Gitarre, door Tür, candle Kerze, machine Maschine, "
    "cup Tasse, tie Krawatte, bell Glocke, fork Gabel",
    "n": "book Buch, house Haus, picture Bild, shirt Hemd, dress Kleid, bed Bett, boat Boot, "
    "ship Schiff, knife Messer, window Fenster, glass Glas, bicycle Fahrrad, piano Klavier, "
    "radio Radio, sofa Sofa, toy Spielzeug",
}
# By gender: the words of a noun phrase, and the pronoun.
_FORMS = {
    "m": {"ein": "einen", "der": "der", "den": "den", "mein": "mein", "er": "er", "ihn": "ihn"},
    "f": {"ein": "eine", "der": "die", "den": "die", "mein": "meine", "er": "sie", "ihn": "sie"},
    "n": {"ein": "ein", "der": "das", "den": "das", "mein": "mein", "er": "es", "ihn": "es"},
}
_BEFORE = (
    ("I bought a {noun}.", "Ich habe {ein} {noun} gekauft."),
    ("Where is the {noun}?", "Wo ist {der} {noun}?"),
    ("This is my {noun}.", "Das ist {mein} {noun}."),
    ("Do you see the {noun}?", "Siehst du {den} {noun}?"),
    ("Tom gave me the {noun}.", "Tom hat mir {den} {noun} gegeben."),
)
# Without a noun that "it" could stand for.
_BETWEEN = (("I was there.", "Ich war dort."), ("You know that.", "Das weißt du."))
_AFTER = (
    ("It is very old.", "{er} ist sehr alt."),
    ("It was expensive.", "{er} war teuer."),
    ("It is beautiful.", "{er} ist schön."),
    ("It belongs to my brother.", "{er} gehört meinem Bruder."),
    ("I like it.", "Ich mag {ihn}."),
    ("Mary has seen it.", "Maria hat {ihn} gesehen."),
)
_PRONOUNS = {"er": "m", "ihn": "m", "sie": "f", "es": "n"}


@dataclass(frozen=True)
class PronounItem:
    """One item of the test.

    Attributes:
        gender: of the German noun: "m", "f" or "n".
        german_noun: the noun's usual translation.
        sources: English sentences, in order; the last one has "it".
        references: their translations but for the last one.
        candidates: translations of the last sentence, by the gender of their pronoun.
    """

    gender: str
    german_noun: str
    sources: tuple[str, ...]
    references: tuple[str, ...]
    candidates: dict[str, str]


def pronoun_items(distance: int = 0) -> list[PronounItem]:
    """All items: 48 nouns in five sentences, before six sentences with "it".

    Args:
        distance: sentences between the one with the noun and the one with "it", 0 to 2.
    """
    between = _BETWEEN[:distance]
    nouns = [
        (gender, *pair.split()) for gender, pairs in _NOUNS.items() for pair in pairs.split(", ")
    ]
    items = []
    for (gender, english, german), before, after in product(nouns, _BEFORE, _AFTER):
        first = before[0].format(noun=english)
        reference = before[1].format(noun=german, **_FORMS[gender])
        items.append(
            PronounItem(
                gender,
                german,
                (first, *(source for source, _ in between), after[0]),
                (reference, *(target for _, target in between)),
                {each: _sentence(after[1].format(**_FORMS[each])) for each in GENDERS},
            )
        )
    return items


def noun_gender(item: PronounItem, translation: str) -> str | None:
    """The gender of the noun in a translation of the first sentence.

    A compound has the gender of its last part. None if the noun is another one than expected: its
    gender is not known then.
    """
    found = re.search(rf"{item.german_noun}(?:e?s)?\b", translation, re.IGNORECASE)
    return item.gender if found else None


def pronoun_gender(translation: str) -> str | None:
    """The gender of the first pronoun in a translation of the last sentence; None without one."""
    words = re.findall(r"\w+", translation.lower())
    return next((_PRONOUNS[word] for word in words if word in _PRONOUNS), None)


@dataclass(frozen=True)
class PronounCounts:
    """Outcomes of the free translations of a test.

    Attributes:
        right: the pronoun has the noun's gender.
        wrong: it has another one.
        without: there is no pronoun for "it" ("das", or it is left out).
        unknown: the noun is another one than expected.
    """

    right: int = 0
    wrong: int = 0
    without: int = 0
    unknown: int = 0

    @property
    def share(self) -> float:
        """Of the pronouns whose noun is known, the share that is right."""
        return self.right / max(1, self.right + self.wrong)


def judge(items: Sequence[PronounItem], translations: Sequence[Sequence[str]]) -> PronounCounts:
    """Count the outcomes.

    Args:
        items: the test.
        translations: of each item's sentences.
    """
    outcomes = [outcome(item, each) for item, each in zip(items, translations, strict=True)]
    names = ("right", "wrong", "without", "unknown")
    return PronounCounts(*(outcomes.count(name) for name in names))


def outcome(item: PronounItem, translation: Sequence[str]) -> str:
    """The outcome of one item: a name of a field of `PronounCounts`."""
    noun, pronoun = noun_gender(item, translation[0]), pronoun_gender(translation[-1])
    if noun is None:
        return "unknown"
    if pronoun is None:
        return "without"
    return "right" if noun == pronoun else "wrong"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
