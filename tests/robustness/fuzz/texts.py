"""Targets for plain texts: things that stay, terms of glossaries, and language codes."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from model.bundle.languages import find_language, is_language_code, language_tags
from model.bundle.spans import Span
from service.errors import InvalidArgumentError, StartupError
from service.glossaries.files import read_glossary
from service.glossaries.glossary import Glossary
from service.things.occurrences import Occurrences
from service.things.things import ALL_KINDS, ThingKind, find_things
from service.translation.segmentation import split_text, whole_text
from service.translation.verbatim import is_translatable
from tests.robustness.fuzz.mutations import WORDS, changed_bytes, odd_text, random_bytes, valid_text
from tests.robustness.fuzz.target import MEMORY, expect

_SIGNS = (
    "{", "}", "{{", "}}", "${", "%{", "%(", ")s", "%", "%1$", "%%", "$", "`", "``", "<x id='1'/>",
    "<", ">", "://", "www.", "http://", "a@", "@b.c", ".", "-", "/", "1", "2,", "3.",
    "#\ufe0f\u20e3",
    "\u200d", "👩", "🏽", "€", "→", ":", "'", "(", ")", "[", "]", "\\", "::", "_", "+", "\u00a0",
)  # fmt: skip
_LANGUAGES = ("en", "de", "zh-Hans", "sr-Latn", "ja", "xx", "", "ar", "no")
_MOST_CHARACTERS = 100_000


def _text(rng: random.Random) -> str:
    """A text with many signs; sometimes one of the greatest length."""
    if rng.random() < 0.0005:
        unit = "".join(rng.choice((*_SIGNS, "a")) for _ in range(rng.randint(1, 3)))
        return unit * (_MOST_CHARACTERS // len(unit)) + rng.choice(("", "!", "\n"))
    if rng.random() < 0.3:
        return valid_text(rng)
    parts = (rng.choice(_SIGNS if rng.random() < 0.6 else WORDS) for _ in range(rng.randint(1, 30)))
    return rng.choice(("", "", " ")).join(parts)


class Things:
    """The recogniser of things that are not translated."""

    name: ClassVar[str] = "verbatim"
    share: ClassVar[float] = 12
    what: ClassVar[str] = (
        "placeholders, URLs, code, numbers ... in texts; sentences that are copied"
    )

    def generate(self, rng: random.Random) -> tuple[str, frozenset[ThingKind], str]:
        """Generate a text, the kinds of things to find, and a language."""
        kinds = sorted(ALL_KINDS, key=lambda kind: kind.value)
        chosen = kinds if rng.random() < 0.7 else rng.sample(kinds, rng.randint(0, len(kinds)))
        return _text(rng), frozenset(chosen), rng.choice(_LANGUAGES)

    def run(self, given: tuple[str, frozenset[ThingKind], str]) -> str:
        """Find things and their occurrences: each must be a part of the text."""
        text, kinds, language = given
        found = find_things(text, kinds)
        end = 0
        for thing in found:
            expect(thing.span.start >= end, "things overlap", (text, found))
            expect(text[slice(*thing.span)] == thing.text, "a thing is not its part of the text")
            expect(bool(thing.text) and thing.kind in kinds, "a thing that was not asked for")
            end = thing.span.end
        wanted = {thing.text: [thing.text] for thing in found[:50]}
        for name, spans in Occurrences(text, wanted).spans.items():
            for span in spans:
                expect(text[slice(*span)] == name, "an occurrence is not its part of the text")
        is_translatable(text, language)
        return "found" if found else "nothing"


class Sentences:
    """The splitting of texts into sentences."""

    name: ClassVar[str] = "sentences"
    share: ClassVar[float] = 6
    what: ClassVar[str] = "texts cut into sentences and what is copied between them"

    def generate(self, rng: random.Random) -> tuple[str, str]:
        """Generate a text and its language."""
        return _text(rng), rng.choice(_LANGUAGES)

    def run(self, given: tuple[str, str]) -> str:
        """Split the text: the parts, joined, must be the text."""
        text, language = given
        for segments in (split_text(text, language), whole_text(text, language)):
            joined = "".join(each.separator + each.text for each in segments)
            expect(joined == text, "the sentences, joined, are not the text", given)
        return "cut"


class Glossaries:
    """Glossaries of requests and of files."""

    name: ClassVar[str] = "glossaries"
    share: ClassVar[float] = 8
    what: ClassVar[str] = "glossaries in requests and files, and the terms of a text"

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="dragoman-fuzz-", dir=MEMORY)

    def generate(self, rng: random.Random) -> tuple[list[tuple[str, str]], bytes | None, str]:
        """Generate entries or the content of a file, and a text."""
        entries = [_entry(rng) for _ in range(rng.choice((0, 1, 2, 4, 12)))]
        data = None
        if rng.random() < 0.4:
            head = rng.choice(("", "#languages\ten\tde\n", "#languages\t", "# a\n", "\ufeff"))
            lines = (f"{source}\t{target}" for source, target in entries)
            text = head + rng.choice(("\n", "\n", "\r\n", "\n\n")).join(lines)
            data = text.encode("utf-8", "surrogatepass")
            if rng.random() < 0.5:
                data = changed_bytes(rng, data)
            elif rng.random() < 0.1:
                data = random_bytes(rng)
        sources = [source for source, _ in entries] or ["dog"]
        words = (rng.choice(sources if rng.random() < 0.5 else WORDS) for _ in range(10))
        text = " ".join(words).encode("utf-8", "replace").decode()
        return entries, data, text

    def run(self, given: tuple[list[tuple[str, str]], bytes | None, str]) -> str:
        """Read the glossary and find its terms."""
        entries, data, text = given
        try:
            if data is None:
                glossary = Glossary.of(entries)
            else:
                path = Path(self._directory.name) / "terms.en-de.tsv"
                path.write_bytes(data)
                [file] = read_glossary(path)
                glossary = file.glossary
        except (InvalidArgumentError, StartupError) as exc:
            expect(bool(str(exc)), "a refusal without a reason", given)
            return "refused"
        taken = [Span(3, 5)] if len(text) > 5 else []
        end = 0
        for match in glossary.matches(text, taken):
            expect(match.span.start >= end, "terms overlap", given)
            expect(text[slice(*match.span)] == match.text, "a term is not its part of the text")
            expect(match.accepted[0] == match.form, "the form to put is not the first accepted one")
            end = match.span.end
        return "matched" if end else "no match"


def _entry(rng: random.Random) -> tuple[str, str]:
    if rng.random() < 0.1:
        return odd_text(rng, 2), odd_text(rng, 3)
    forms = "|".join(rng.choice(WORDS[:30]) for _ in range(rng.choice((1, 1, 2))))
    return rng.choice(WORDS[:30]), forms


class LanguageCodes:
    """Language codes in requests and models."""

    name: ClassVar[str] = "languages"
    share: ClassVar[float] = 6
    what: ClassVar[str] = "language codes of requests and models"

    def generate(self, rng: random.Random) -> tuple[str, list[str]]:
        """Generate a code, and codes of models."""
        return _code(rng), [_code(rng) for _ in range(rng.randint(0, 6))]

    def run(self, given: tuple[str, list[str]]) -> str:
        """Look for the code among those of models."""
        code, others = given
        is_code = is_language_code(code)
        tags = language_tags(others)
        expect(set(tags.values()) <= set(others), "a tag of no name", given)
        try:
            found = find_language(code, list(tags))
        except ValueError as exc:
            expect(bool(str(exc)), "a refusal without a reason", given)
            return "refused"
        expect(found in tags, "a language that is not there", given)
        return "found, a code" if is_code else "found"


def _code(rng: random.Random) -> str:
    if rng.random() < 0.1:
        return odd_text(rng, 3)
    subtags = ("en", "de", "zh", "cmn", "Hans", "Hant", "CN", "TW", "Latn", "419", "XX", "iw", "pt")
    code = rng.choice(("-", "_", "-")).join(rng.sample(subtags, rng.randint(1, 3)))
    if rng.random() < 0.2:
        code = rng.choice((f">>{code}<<", f"__{code}__", code.upper(), code * 20, f"{code}-"))
    return code


TARGETS: Sequence[Callable[[], Any]] = (Things, Sentences, Glossaries, LanguageCodes)
