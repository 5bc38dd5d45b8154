"""What a model keeps of placeholders, URLs, numbers and the like: alone, and put right.

    python -m bench.text.verbatim [--bundle DIR]

500 English sentences, each with one thing or two, are translated by the included model alone and
with the stage for terms. Prints a table for `service/TEXT.md`: things that are in the translation
as often as in the sentence; numbers may have the separators of German, and small ones be words.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from pathlib import Path

from bench.text.in_process import sentence_translator
from service.text.things.sentence_repair import ScannedSentence, TermRules
from service.text.things.terms_translator import TermsTranslator
from service.text.things.things import ThingKind
from service.text.things.wanted import Candidate, thing_needs

NUM_SENTENCES = 500

_THINGS = {
    ThingKind.PLACEHOLDER: (
        *("{name}", "{0}", "%s", "%(n)d", "%1$s", "%2", "$HOME", "${user}", "{{ count }}", "%d"),
        *('<x id="7"/>', "#{id}", "{file_name}", "%@", "{1}", "%PATH%"),
        *("[X7X]", "[X12X]", "@tom", "@anna_b"),
    ),
    ThingKind.URL: (
        *("https://example.com", "https://example.org/a/b?c=d&e=f", "http://localhost:8080/"),
        *(
            "www.example.net",
            "https://docs.example.com/en/index.html#top",
            "ftp://example.org/x.zip",
        ),
    ),
    ThingKind.EMAIL: (
        *("tom@example.com", "anna.schmidt@mail.example.org", "info+help@example.net"),
        *("first_last@example.co.uk", "support@example.de", "JOBS@Example.COM"),
    ),
    ThingKind.CODE: (
        *("`ls`", "`git_commit`", "`x = 1`", "`--help`", "`/etc/hosts`", "`main()`", "`<div>`"),
    ),
    ThingKind.EMOJI: ("😀", "🎉🎉", "👩‍👩‍👧", "❤️", "👍🏽", "🇩🇪", "1️⃣", "🚀"),
    ThingKind.SYMBOL: ("©", "®", "™", "€", "£", "→", "§", "°"),
    ThingKind.NUMBER: (
        *("42", "1,250", "1,250.50", "3.5", "1987", "10:30", "12/05/2024", "2,000,000", "365"),
        *("17", "99.95", "555-1234"),
    ),
}
_SENTENCES = (
    "Please send {} to my brother.",
    "The teacher wrote {} on the board.",
    "We found {} in the old file.",
    "I do not know what {} means.",
    "You can see {} at the end of the page.",
    "There is {} in this message.",
    "My friends asked me about {} yesterday.",
    "Replace {} with {} before you start.",
    "They talked about {} and {} all day.",
    "Is {} right, or do you need {}?",
)


def sentences() -> list[tuple[ThingKind, str]]:
    """The sentences, each with its kind; the kinds in turn."""
    found = []
    things = {kind: itertools.cycle(each) for kind, each in _THINGS.items()}
    # Kinds and frames take turns at different rates, so that each kind meets each frame.
    for number in range(NUM_SENTENCES):
        kind = list(_THINGS)[number % len(_THINGS)]
        frame = _SENTENCES[number // len(_THINGS) % len(_SENTENCES)]
        chosen = [next(things[kind]) for _ in range(frame.count("{}"))]
        found.append((kind, frame.format(*chosen)))
    return found


async def measure(bundle: Path | None) -> list[tuple[str, int, int, int]]:
    """For each kind: its name, its things, those that the model keeps, and those of the stage."""
    rules = TermRules("en", "de")
    marked = sentences()
    texts = [text for _, text in marked]
    async with sentence_translator(bundle) as model:
        alone = await model.translate(texts)
        whole = await TermsTranslator(model, rules, model.limits).translate(texts)
    rows: list[tuple[str, int, int, int]] = []
    for kind in _THINGS:
        counts = [0, 0, 0]
        for (own, text), *results in zip(marked, alone, whole, strict=True):
            if own is not kind:
                continue
            scanned = ScannedSentence.of(text, rules)
            assert scanned is not None, text
            needs = thing_needs(scanned.things, "en", "de")
            counts[0] += len(scanned.things)
            for place, result in enumerate(results, 1):
                wrong = needs.num_wrong(Candidate(result.text))
                counts[place] += max(0, len(scanned.things) - wrong)
        rows.append((kind.value, counts[0], counts[1], counts[2]))
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundle", type=Path, help="in place of the included model")
    rows = asyncio.run(measure(parser.parse_args().bundle))
    count, alone, whole = (sum(column) for column in list(zip(*rows, strict=True))[1:])
    rows.append(("all", count, alone, whole))
    print("| kind | in the text | kept by the model alone | kept by the server |")
    print("| --- | ---: | ---: | ---: |")
    for name, count, alone, whole in rows:
        print(
            f"| {name} | {count} | {alone} ({alone / count:.0%}) | {whole} ({whole / count:.0%}) |"
        )


if __name__ == "__main__":
    main()
