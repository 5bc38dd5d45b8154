"""More kinds of input from the same sentence pairs: paragraphs, odd case, text to be copied.

Copies are made of real pairs only. Text that has to come out as it went in (numbers, addresses,
code, placeholders) is put into both sides of a pair, as placeholder training does it (Crego et al.,
2016, "SYSTRAN's Pure Neural Machine Translation Systems", section 3.2).
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from model.bundle.tokenizer import sentinel
from model.data.cleaning import Pair

RUN_LENGTHS = (2, 6)  # sentences
RUN_CHARACTERS = 900  # of the longer side, some 200 English tokens
_SENTENCE_END = re.compile(r"[.!?…][\"'”“»«’)]*$")
_PROTECTED = re.compile(r"https?:|www\.|\w@\w|[`{}<>%\\_/$#=]|\w\.\w|--\w|[a-z][A-Z]|\d[a-z]")
_SHARED = re.compile(r"(?<![\w`{<%])(?:[A-Z]\w+|\d{2,})(?![\w`}>%])")

# Names, numbers and codes, which are often the same in both languages.
_COPIES = re.compile(
    r"(?:https?://|www\.)\S*[\w/]|[\w.+-]+@[\w.-]+\w|(?<![\w])[$%]?\{+\w+\}+|%\w(?!\w)"
    r"|(?<!\w)(?:\w*[A-Z\d]\w*)(?:[-./:_,]\w*\d\w*)*(?!\w)"
)
_REPLACED_SHARE = 0.7
_UNORDERED_SHARE = 0.2

_WORDS = (
    "data",
    "user",
    "file",
    "item",
    "page",
    "name",
    "test",
    "node",
    "shop",
    "info",
    "mail",
    "home",
    # Nouns and articles of either language are what a model is most tempted to translate.
    "an",
    "emma",
    "admin",
    "order",
    "index",
    "update",
    "push",
    "value",
    "open",
)
_EMOJI = (
    *"😀😂😊😍😎😢😡👍👎👋🙏🎉🔥✨⭐❤✅❌⚠🚀💡📷🎵🍕☕🐱🐶🌍🌞🏠🚗✈",
    # With a variation selector or a skin tone, which are characters of their own.
    *("☀️", "✌️", "⚠️", "☺️", "👋🏻", "👏🏼", "🙏🏽", "💪🏾", "👌🏿"),
)
_TAGS = ("b", "i", "em", "strong", "code", "a")


def paragraphs(
    pairs: Sequence[Pair],
    documents: Sequence[str] | None,
    generator: random.Random,
    *,
    share: float,
    longest: int = RUN_LENGTHS[1],
    characters: int = RUN_CHARACTERS,
) -> list[Pair]:
    """Runs of two to `longest` sentences as one pair each, joined by a space.

    Args:
        pairs: sentences, in document order where there are documents.
        documents: a document's id for each pair; None joins sentences at random.
        share: share of the sentences that become part of a run, 0 to 1.
        characters: the most characters in the longer side of a run.
    """
    indices = [i for i, pair in enumerate(pairs) if all(map(_SENTENCE_END.search, pair))]
    if documents is None:
        generator.shuffle(indices)
    found = []
    for run in _runs(pairs, documents, indices, generator, longest, characters):
        if len(run) >= RUN_LENGTHS[0] and generator.random() < share:
            sources, targets = zip(*(pairs[i] for i in run), strict=True)
            found.append((" ".join(sources), " ".join(targets)))
    return found


def _runs(
    pairs: Sequence[Pair],
    documents: Sequence[str] | None,
    indices: Sequence[int],
    generator: random.Random,
    longest: int,
    most_characters: int,
) -> Iterator[list[int]]:
    run: list[int] = []
    characters, wanted = 0, generator.randint(RUN_LENGTHS[0], longest)
    for index in indices:
        size = max(map(len, pairs[index])) + 1
        other = bool(run and documents and documents[run[-1]] != documents[index])
        if run and (len(run) == wanted or other or characters + size > most_characters):
            yield run
            run, characters, wanted = [], 0, generator.randint(RUN_LENGTHS[0], longest)
        run.append(index)
        characters += size
    yield run


def variants(
    pairs: Sequence[Pair], generator: random.Random, *, share: float, sentinels: int = 0
) -> list[Pair]:
    """Changed copies of some pairs. A pair that its random change does not fit gets none.

    Args:
        share: share of the pairs to change, 0 to 1; with sentinels, as many are changed by these.
    """
    kinds, weights = zip(*_VARIANTS, strict=True)
    found = []
    for pair in pairs:
        if generator.random() < share:
            change: Callable[[Pair, random.Random], Pair | None]
            change = generator.choices(kinds, weights)[0]
            changed = change(pair, generator)
            if changed is not None and changed != pair:
                found.append(changed)
        if sentinels and generator.random() < share:
            found.append(with_sentinels(pair, generator, sentinels))
    return found


def with_sentinels(pair: Pair, generator: random.Random, sentinels: int) -> Pair:
    """Replace strings that both sides have once by sentinels, or put one beside the sentence.

    The server numbers what it replaces in the order of the source, so most pairs do the same.
    """
    left, right = (Counter(_COPIES.findall(side)) for side in pair)
    both = [text for text, count in left.items() if count == right[text] == 1]
    chosen = [text for text in both if generator.random() < _REPLACED_SHARE][:sentinels]
    numbers = list(range(1, sentinels + 1))
    if generator.random() < _UNORDERED_SHARE:
        generator.shuffle(numbers)
    if not chosen:
        return _beside(pair, sentinel(numbers[0]), generator)
    put = dict(zip(chosen, map(sentinel, numbers), strict=False))
    source, target = (_COPIES.sub(lambda m: put.get(m[0], m[0]), side) for side in pair)
    return source, target


def _in_capitals(pair: Pair, generator: random.Random) -> Pair | None:
    """Both sides in capitals: a shouted text is answered in kind."""
    if any(map(_PROTECTED.search, pair)):
        return None
    return pair[0].upper(), pair[1].upper()


def _in_title_case(pair: Pair, generator: random.Random) -> Pair | None:
    """An English heading; its translation keeps the case of a sentence, as German and French do."""
    if _PROTECTED.search(pair[0]) or len(pair[0]) > 80:
        return None
    return re.sub(r"(?<![\w'’])[a-z]", lambda m: m[0].upper(), pair[0]), pair[1]


def _in_lower_case(pair: Pair, generator: random.Random) -> Pair | None:
    """A careless source; its translation stays as it should be."""
    return None if _PROTECTED.search(pair[0]) else (pair[0].lower(), pair[1])


def _without_full_stop(pair: Pair, generator: random.Random) -> Pair | None:
    if not all(side.endswith(".") and not side.endswith("..") for side in pair):
        return None
    return pair[0][:-1], pair[1][:-1]


def _with_copied_text(pair: Pair, generator: random.Random) -> Pair | None:
    """The same text on both sides, for a word that both have, or before or after them."""
    word = _shared_word(pair, generator)
    if word is not None and generator.random() < 0.7:
        if generator.random() < 0.3:
            tag = generator.choice(_TAGS)
            text = generator.choice([f"<{tag}>{word}</{tag}>", f"`{word}`", f"**{word}**"])
        else:
            text = copied_text(generator)
        pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
        return pattern.sub(lambda _: text, pair[0]), pattern.sub(lambda _: text, pair[1])
    return _beside(pair, copied_text(generator), generator)


def _beside(pair: Pair, text: str, generator: random.Random) -> Pair:
    """The same text before or after both sides."""
    before, after = generator.choice(
        [
            ("", f" {text}"),
            ("", f" {text}"),
            (f"{text} ", ""),
            (f"{text}: ", ""),
            ("", f" ({text})"),
        ]
    )
    return before + pair[0] + after, before + pair[1] + after


def _only_copied_text(pair: Pair, generator: random.Random) -> Pair | None:
    """A pair that consists only of text to be copied."""
    text = " ".join(copied_text(generator) for _ in range(generator.randint(1, 3)))
    return text, text


def _shared_word(pair: Pair, generator: random.Random) -> str | None:
    """A name or number that stands once in each side."""
    left, right = (Counter(_SHARED.findall(side)) for side in pair)
    words = sorted(word for word, count in left.items() if count == right[word] == 1)
    return generator.choice(words) if words else None


def copied_text(generator: random.Random) -> str:
    """A number, address, emoji, piece of code or placeholder that a translation has to keep."""
    return generator.choice(_COPIED)(generator)


def _number(g: random.Random) -> str:
    year, month, day = g.randint(1900, 2050), g.randint(1, 12), g.randint(1, 28)
    return g.choice(
        [
            str(g.randrange(10 ** g.randint(1, 9))),
            str(g.randrange(1000)).zfill(g.randint(2, 5)),
            g.choice(["€{}", "${}", "£{}", "{} €", "{} %"]).format(g.randrange(1, 1000)),
            f"{year}-{month:02}-{day:02}",
            f"{g.randrange(20)}.{g.randrange(20)}.{g.randrange(100)}",
            f"{g.choice('ABCDEFKLMNPRSTX')}{g.choice('ABDEKMRST')}-{g.randrange(100, 99999)}",
            ".".join(str(g.randrange(256)) for _ in range(4)),
            f"0x{g.randrange(1 << 24):x}",
        ]
    )


def _letters(g: random.Random) -> str:
    syllables = (g.choice("bdfgklmnprstvwz") + g.choice("aeiou") for _ in range(g.randint(1, 3)))
    return g.choice(["".join(syllables), g.choice(_WORDS)])


def _address(g: random.Random) -> str:
    ends = ["com", "org", "net", "de", "fr", "eu", "io", "co.uk", "example"]
    host = f"{_letters(g)}{g.choice(['', '', f'-{_letters(g)}'])}.{g.choice(ends)}"
    path = "/".join(_letters(g) for _ in range(g.randrange(4)))
    return g.choice(
        [
            f"https://{host}/{path}",
            f"https://www.{host}/{path}?{_letters(g)}={g.randrange(1000)}",
            f"https://{g.choice(['en', 'docs', 'my'])}.{host}/{path}#{_letters(g).capitalize()}",
            f"www.{host}",
            f"www.{host}/{_letters(g)}?{_letters(g)}={g.randrange(9)}&{_letters(g)}={_letters(g)}",
            f"{_letters(g)}@{host}",
            f"{_letters(g)}{g.choice('.-_+')}{_letters(g)}@{host}",
            f"@{_letters(g)}{g.randrange(100)}",
            f"#{_letters(g)}",
        ]
    )


def _emoji(g: random.Random) -> str:
    emoji: str = g.choice(_EMOJI)
    return emoji * g.choice([1, 1, 1, 2, 3])


def _code(g: random.Random) -> str:
    one, two = _letters(g), _letters(g)
    code = g.choice(
        [
            f"{one}_{two}",
            f"{one}()",
            f"{one}.{two}({g.randrange(10)})",
            f"--{one}-{two}",
            f"/{one}/{two}.conf",
            f"{one}{two.capitalize()}",
            f"{one.upper()}_{two.upper()}",
            f"{one} = {two}",
            f"{one} {g.choice(_WORDS)}",
            f"{one}({two}, {g.choice('abnx')})",
            f"{one} -{g.choice('abcdfhlnrv')} {two}.txt",
        ]
    )
    return f"`{code}`" if " " in code or g.random() < 0.6 else code


def _placeholder(g: random.Random) -> str:
    name = _letters(g)
    return g.choice(
        [
            f"{{{name}}}",
            f"{{{{{name}}}}}",
            f"${{{name}}}",
            f"{{{g.randrange(4)}}}",
            "%s",
            "%d",
            f"%{g.randint(1, 4)}$s",
            f"%({name})s",
            f"%({name})d",
            f"<{name}>",
            f"<b>{name}</b>",
            "<br>",
            "&nbsp;",
            f":{name}",
        ]
    )


_COPIED = (_number, _address, _emoji, _code, _placeholder)
_VARIANTS = (
    (_in_capitals, 15),
    (_in_title_case, 15),
    (_in_lower_case, 10),
    (_without_full_stop, 15),
    (_with_copied_text, 42),
    (_only_copied_text, 3),
)
