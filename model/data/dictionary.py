"""A bilingual dictionary as training text: example sentences, terms, and rare nouns in context.

    python -m model.data.dictionary FILE --output RAW --context tatoeba/train.en tatoeba/train.de

FILE is in the format of Ding (Debian's package `trans-de-en`, `/usr/share/trans/de-en`; GPL-2+):
`German :: English`, where `|` parts an entry from its forms and phrases, and `;` synonyms. Three
corpora are written below RAW, `train.en` and `train.de` in each:

- `ding-sentences`: the example sentences;
- `ding-terms`: words and phrases, each English synonym with the first German one, nouns also with
  their article;
- `ding-in-context`: sentences of the context text in which one noun is replaced by a rarer one of
  the same gender (Fadaee et al., 2017, "Data Augmentation for Low-Resource Neural Machine
  Translation", section 3). Only forms that are alike in nominative, dative and accusative are
  replaced, so that the sentence around them stays right.

A model learns words from it that its corpora lack. The result depends on the files and the seed.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from model.data.cleaning import Pair, tidy
from model.data.corpus import read_lines, read_parallel

Gender = Literal["m", "f", "n"]

MAX_TRANSLATIONS = 2  # of one English term: those that stand first where it stands first
MAX_SYNONYMS = 4  # English ones of one German term
RARE = 30  # a noun that the context text has this often needs no more sentences
MAX_CONTEXT_CHARACTERS = 120
MAX_NOUN_CHARACTERS = 16

# Not today's standard language.
_UNUSUAL_LABELS = frozenset(
    """obs. archaic dated rare veraltet veraltend alt selten altertümlich poet. vulg. slang Schw.
    Ös. Bayr. Süddt. Norddt. Jägersprache""".split()  # noqa: SIM905
)
# Nomenclature, of which there are thousands of entries.
_UNWANTED_LABELS = frozenset(
    "ornith. chem. biochem. min. pharm. geol. myc. geogr.".split()  # noqa: SIM905
)
# Terms of a trade, which no sentence of everyday text is made with.
_TECHNICAL_LABELS = frozenset(
    """techn. med. electr. phys. math. mach. constr. fin. econ. adm. jur. mil. statist. telco. comp.
    biol. anat. psych. ling. phil. astron. aviat. envir. print mining relig. hist.""".split()  # noqa: SIM905
)
_LABEL = re.compile(r"\[([^\]]*)\]")
_REMARK = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|<[^>]*>|(?<!\S)/[^/]*/(?!\S)")
_SYNONYM = re.compile(r";\s*(?![^{(\[<]*[})\]>])")
_GENDER = re.compile(r"\{([mfn])\}")
_UNUSABLE = re.compile(r"[/|~=<>{}()\[\]…+*]|\.\.")
_PLACEHOLDER = re.compile(r"\b(?:etw|jdn?|jdm|jds|sth|sb|o\.s)\.(?:['’]s)?")
_SENTENCE = re.compile(r"^[\"„“]?[A-ZÄÖÜ].*[.!?][\"“”]?$")
_NOUN = re.compile(r"[A-ZÄÖÜ][a-zäöüß]+")
_WORD = re.compile(r"\w+(?:['’-]\w+)*")
_ARTICLES: Mapping[Gender, tuple[str, str]] = {
    "m": ("der", "ein"),
    "f": ("die", "eine"),
    "n": ("das", "ein"),
}


@dataclass(frozen=True)
class Noun:
    """A noun that has a plural, in both languages.

    Attributes:
        singular: English and German.
        plural: English and German.
        gender: gender of the German noun.
        is_technical: whether the dictionary gives it as a term of a trade.
    """

    singular: Pair
    plural: Pair
    gender: Gender
    is_technical: bool = False

    @property
    def is_weak(self) -> bool:
        """Whether its singular has an ending in dative and accusative (Student, Studenten)."""
        singular, plural = self.singular[1], self.plural[1]
        return self.gender == "m" and plural in (f"{singular}n", f"{singular}en")


@dataclass(frozen=True)
class Dictionary:
    """The usable entries of a dictionary file, as pairs of English and German.

    Attributes:
        sentences: example sentences.
        terms: words and phrases.
        nouns: the nouns among the terms, in the singular and plural.
    """

    sentences: Sequence[Pair]
    terms: Sequence[Pair]
    nouns: Sequence[Noun]


def read_dictionary(path: Path) -> Dictionary:
    """Read a dictionary in the format of Ding.

    Raises:
        CorpusError: the file cannot be read.
    """
    sentences: dict[Pair, None] = {}
    nouns: dict[str, Noun] = {}
    # English term -> German term -> how good an entry it is: the smaller, the better.
    ranks: dict[str, dict[str, tuple[int, ...]]] = defaultdict(dict)
    for line in read_lines(path):
        sides = line.split(" :: ")
        if line.startswith("#") or len(sides) != 2 or _has_label(line, _UNWANTED_LABELS):
            continue
        german, english = (side.split(" | ") for side in sides)
        if len(german) != len(english):
            continue
        technical = _has_label(line, _TECHNICAL_LABELS)
        noun = _noun(german, english, technical)
        if noun is not None:
            nouns.setdefault(noun.singular[0], noun)
        for position, (left, right) in enumerate(zip(english, german, strict=True)):
            for order, (source, target) in enumerate(_pairs(left, right)):
                if _SENTENCE.match(source) and _SENTENCE.match(target) and " " in source:
                    sentences[source, target] = None
                elif not (technical or _is_compound(source, target)):
                    labels = len(_LABEL.findall(left + right)) + ("(" in right)
                    known = ranks[source]
                    known[target] = min((order, position, labels), known.get(target, (99,)))
    terms = [
        (source, target)
        for source, found in ranks.items()
        for target in sorted(found, key=found.__getitem__)[:MAX_TRANSLATIONS]
    ]
    return Dictionary(list(sentences), terms, list(nouns.values()))


def _has_label(line: str, labels: frozenset[str]) -> bool:
    """Whether a line's first entry, which stands for all, has one of the labels."""
    first = " ".join(side.split(" | ")[0] for side in line.split(" :: "))
    return not labels.isdisjoint(_LABEL.findall(first))


def _is_compound(source: str, target: str) -> bool:
    """Whether several English words are one German word, such as no dictionary runs out of."""
    return source.count(" ") >= 2 and " " not in target and not source.startswith("to ")


def _pairs(english: str, german: str) -> Iterator[Pair]:
    """Each usable English synonym of one entry with its first usable German one."""
    targets = _synonyms(german)
    if targets:
        yield from ((source, targets[0]) for source in _synonyms(english)[:MAX_SYNONYMS])


def _synonyms(text: str) -> list[str]:
    return [plain for part in _SYNONYM.split(text) if (plain := _plain(part)) is not None]


def _plain(text: str) -> str | None:
    """One synonym without labels and remarks; None if something else than words is left."""
    if not _UNUSUAL_LABELS.isdisjoint(_LABEL.findall(text)):
        return None
    words = tidy(_REMARK.sub(" ", text)).replace("’", "'")
    words = re.sub(r"^(?:etw|jdn|jdm)\. (?=\w)|(?<=\w) (?:sth|sb)\.$", "", words)
    words = re.sub(r" +([,.!?;:])", r"\1", words)
    if _UNUSABLE.search(words) or _PLACEHOLDER.search(words) or not _WORD.search(words):
        return None
    return words


def _noun(german: Sequence[str], english: Sequence[str], technical: bool) -> Noun | None:
    """The noun that a line is about, if its first two entries are a singular and its plural."""
    if len(german) < 2 or "{pl}" not in german[1]:
        return None
    first = _SYNONYM.split(german[0])[0]
    genders = _GENDER.findall(first)
    if len(genders) != 1:
        return None
    singular, plural = (_pair_of_firsts(english[i], german[i]) for i in (0, 1))
    if singular is None or plural is None or singular == plural:
        return None
    if not (_NOUN.fullmatch(singular[1]) and _NOUN.fullmatch(plural[1])):
        return None
    return Noun(singular, plural, genders[0], technical)


def _pair_of_firsts(english: str, german: str) -> Pair | None:
    """The first synonyms of an entry, if both are usable."""
    source, target = (_plain(_SYNONYM.split(text)[0]) for text in (english, german))
    return None if source is None or target is None else (source, target)


def with_articles(nouns: Iterable[Noun], generator: random.Random) -> Iterator[Pair]:
    """Each noun of everyday text with an article that agrees with it."""
    for noun in nouns:
        if noun.is_technical or " " in noun.singular[0]:
            continue
        (source, target), (definite, indefinite) = noun.singular, _ARTICLES[noun.gender]
        if generator.random() < 0.5:
            yield f"the {source}", f"{definite} {target}"
        else:
            yield f"{_article(source)} {source}", f"{indefinite} {target}"


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeioAEIO" else "a"


def in_context(
    nouns: Sequence[Noun], context: Sequence[Pair], generator: random.Random
) -> Iterator[Pair]:
    """Sentences of `context` in which one noun is replaced by a rarer one that agrees as well.

    All rare nouns take turns, so that each comes about equally often.

    Args:
        context: sentences of everyday text.
    """
    frequency = Counter(word for source, _ in context for word in _WORD.findall(source.lower()))
    forms = _replaceable(nouns)
    turns = _Turns(nouns, frequency, generator)
    for source, target in context:
        if max(len(source), len(target)) > MAX_CONTEXT_CHARACTERS:
            continue
        words = Counter(_WORD.findall(target))
        found = [
            (english, german, gender)
            for english in _WORD.findall(source)
            for german, gender in forms.get(english, ())
            if words[german] == 1 and source.count(english) == 1
        ]
        if not found:
            continue
        english, german, gender = generator.choice(found)
        new = turns.next(gender)
        if new is not None and german not in new[1] and new[1] not in target:
            yield _put(source, english, new[0]), _word(german).sub(new[1], target)


def _replaceable(nouns: Iterable[Noun]) -> dict[str, set[tuple[str, Gender | None]]]:
    """English form -> German forms with their gender (None: plural) that tell no case apart."""
    forms: dict[str, set[tuple[str, Gender | None]]] = defaultdict(set)
    for noun in nouns:
        english, german = noun.singular
        if _WORD.fullmatch(english) and len(german) > 2 and not noun.is_weak:
            forms[english].add((german, noun.gender))
        english, german = noun.plural
        # The dative plural ends in n or s: a form that does not is nominative or accusative.
        if _WORD.fullmatch(english) and not german.endswith(("n", "s")):
            forms[english].add((german, None))
    return forms


class _Turns:
    """Rare nouns by gender, in an endless random order."""

    def __init__(
        self, nouns: Iterable[Noun], frequency: Mapping[str, int], generator: random.Random
    ) -> None:
        self._generator = generator
        self._queues: dict[Gender | None, list[Pair]] = defaultdict(list)
        self._places: Counter[Gender | None] = Counter()
        for noun in nouns:
            source, target = noun.singular
            everyday = not noun.is_technical and source.islower() and _WORD.fullmatch(source)
            if not everyday or frequency[source] >= RARE or len(target) > MAX_NOUN_CHARACTERS:
                continue
            if not noun.is_weak:
                self._queues[noun.gender].append(noun.singular)
            self._queues[None].append(noun.plural)

    def next(self, gender: Gender | None) -> Pair | None:
        queue, place = self._queues[gender], self._places[gender]
        if not queue:
            return None
        if place % len(queue) == 0:
            self._generator.shuffle(queue)
        self._places[gender] += 1
        return queue[place % len(queue)]


def _put(source: str, old: str, new: str) -> str:
    """`source` with `new` for `old`, after the indefinite article that suits it."""

    def replacement(match: re.Match[str]) -> str:
        before = match[1]
        if before and before.strip().lower() in ("a", "an"):
            before = before[0] + _article(new)[1:] + " "
        return f"{before or ''}{new}"

    return re.sub(rf"(?<!\w)([Aa]n? )?{re.escape(old)}(?!\w)", replacement, source)


def _word(text: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(text)}(?!\w)")


def main(
    file: Annotated[Path, typer.Argument(help="The dictionary.")],
    output: Annotated[Path, typer.Option(help="Folder of the corpora to write.")],
    context: Annotated[
        tuple[Path, Path], typer.Option(help="English and German side of everyday text.")
    ],
    seed: Annotated[int, typer.Option(help="Seed of articles and replaced nouns.")] = 1,
) -> None:
    """Write a dictionary's sentences, terms and nouns in context as parallel text."""
    dictionary = read_dictionary(file)
    text = read_parallel(*context)
    pairs = list(zip(text.sources, text.targets, strict=True))
    generator = random.Random(seed)
    corpora = {
        "ding-sentences": dictionary.sentences,
        "ding-terms": [*dictionary.terms, *with_articles(dictionary.nouns, generator)],
        "ding-in-context": list(in_context(dictionary.nouns, pairs, generator)),
    }
    for name, found in corpora.items():
        (output / name).mkdir(parents=True, exist_ok=True)
        for side, suffix in enumerate(("en", "de")):
            lines = "".join(f"{pair[side]}\n" for pair in found)
            (output / name / f"train.{suffix}").write_text(lines, encoding="utf-8")
        print(f"{name}: {len(found)} pairs")


if __name__ == "__main__":
    typer.run(main)
