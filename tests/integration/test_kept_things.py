"""Things in plain sentences, with the model that ships: kept, converted, or warned of."""

from __future__ import annotations

import asyncio
import random
import re

import pytest

from bench.kept_sentences import KINDS, sample_sentence
from bench.sentence_translator import sentence_translator
from service.text.options import TextOptions
from service.text.text_translator import text_translator
from service.things.things import ALL_KINDS
from service.translation.results import TextResult

# A text, and patterns that its translation has exactly once.
CASES: dict[str, list[tuple[str, ...]]] = {
    "words in another script": [
        ("He lives in Киев with his wife.", "Киев"),
        ("The Japanese word 猫 means cat.", "猫"),
        ("The word שלום means peace.", "שלום"),
        ("The Iliad (Ancient Greek: Ἰλιάς) is an old poem.", "Ἰλιάς"),
        ("We visited Łódź, then Şişli.", "Łódź", "Şişli"),
        ("Full width: ＡＢＣ １２３.", "ＡＢＣ １２３"),
        ("The song 〈春〉 is nice.", "〈春〉"),
    ],
    "times": [
        ("The bus comes at 6:45 a.m. every day.", r"(?<!\d)0?6[:.]45 Uhr"),
        ("We meet at 4 pm.", r"\b16(?:[:.]00)? Uhr\b"),
        ("The meeting is at 1 pm on 3 May 2024.", r"\b13(?:[:.]00)? Uhr\b", r"\b3\. Mai 2024"),
        ("The film is at 8 PM.", r"\b20(?:[:.]00)? Uhr\b"),
        ("Meet me at 3:30 pm on 12/05/2024.", r"\b15[:.]30 Uhr\b", "12/05/2024"),
        ("We start at 12 am.", r"\b0(?:[:.]00)? Uhr\b"),
        ("The shop is open from 9 am to 5:30 pm.", r"\b0?9(?:[:.]00)?\b", r"\b17[:.]30 Uhr"),
        ("Dinner is at half past 7 pm.", r"\b19[:.]30\b"),
        ("The meeting begins at half past six.", r"\b6[:.]30 Uhr\b"),
        ("The train leaves at a quarter to nine in the evening.", r"\b20[:.]45 Uhr\b"),
        (
            "Call me at 12:00 noon or at 12 midnight.",
            r"\b12:00 Uhr|mittags",
            r"\b(?:0|24)[:.]00 Uhr",
        ),
        ("He woke up at 7 and slept at 10 at night.", r"\b22(?:[:.]00)? Uhr"),
        ("We open Sat 9AM-noon.", r"\b0?9(?:[:.]00)?\b", r"\b12(?:[:.]00)?\b|Mittag|mittags"),
        ("He came at 1500 hours.", r"\b15(?:[:.]00)? Uhr"),
        ("The film ends at 9 p. m. today.", r"\b21(?:[:.]00)? Uhr"),
        ("Lunch is from 12 noon to 1 pm.", r"\b12(?:[:.]00)?\b", r"\b13(?:[:.]00)?\b"),
        ("He works from 6 to 7 p.m.", r"\b18(?:[:.]00)?\b", r"\b19(?:[:.]00)?\b"),
    ],
    "codes": [
        ("The VAT number is BE0768880101.", "BE0768880101"),
        ("Order A1000233344 was sent.", "A1000233344"),
        ("Reference: INV20240000123", "INV20240000123"),
        ("UUID 550e8400-e29b-41d4-a716-446655440000", "550e8400-e29b-41d4-a716-446655440000"),
        ("Pay to DE89 3704 0044 0532 0130 00 today.", "DE89 3704 0044 0532 0130 00"),
    ],
    "amounts": [
        ("He paid $20 for it.", r"\$20|20 \$|20 Dollar"),
        ("It costs $1.50 today.", r"\$1[.,]50|1[.,]50 \$|1[.,]50 Dollar"),
        ("They lost US$3,000 in Rome.", r"US\$ ?3\.000|3\.000 (?:US\$|US-Dollar)"),
        ("The price is 25 CHF.", r"25 CHF|CHF 25"),
        ("It costs €5,– or CHF 3'000 a year.", "€5,– oder", "CHF 3'000|3'000 CHF"),
        (
            "He paid $20 for it at 4 pm.",
            r"\$20|20 \$|20 Dollar",
            r"\b16(?:[:.]00)? Uhr\b(?! Dollar)",
        ),
        ("The watch cost Fr. 250.– or £99.", r"Fr\. 250\.–", "£99|99 (?:£|Pfund)"),
        ("He drank 0.5 l of milk.", r"0[.,]5 (?:l\b|Liter)"),
    ],
    "no remains of stand-ins": [
        ("Hello [X6X], you have [X25X][X27X] left.", r"\[X25X\]\[X27X\](?!\])", r"\[X6X\]"),
        (
            "Hello {name}{title}, you have {n}{unit} left.",
            r"\{n\}\{unit\}(?!\})",
            r"\{name\}\{title\}",
        ),
    ],
    "printf": [
        ("%s%s is here.", "%s%s"),
        ("Hello %s%s!", "%s%s"),
        ("%d%d", "%d%d"),
        ("Save %d%% on all books today.", "%d%%"),
        ("100%% of the water is gone.", "100%%"),
        ("Preparing to trash %'d files (%S)", "%'d", r"\(%S\)"),
    ],
    "ICU messages": [
        (
            "{count, plural, one {# file was deleted} other {# files were deleted}}",
            r"^\{count, plural, one \{# .*\} other \{# .*\}\}$",
        ),
        (
            "{gender, select, male {He} female {She} other {They}} liked this picture.",
            r"\{gender, select, male \{\w+\} female \{\w+\} other \{\w+\}\}",
        ),
    ],
    "placeholders with spaces": [
        (
            '{% include note.html content="Read this first" %}',
            "^" + re.escape('{% include note.html content="Read this first" %}') + "$",
        ),
        (
            "The value is {0:dd MMM yyyy} and {1:N2}.",
            re.escape("{0:dd MMM yyyy}"),
            re.escape("{1:N2}"),
        ),
        ("Dear {{ user.name | upper }}, welcome.", re.escape("{{ user.name | upper }}")),
        (
            "{{#if items}}You have {{n}} dogs{{else}}Nothing here{{/if}}",
            r"^\{\{#if items\}\}\w.*\w\{\{else\}\}\w+.*\{\{/if\}\}$",
            r"\{\{n\}\}",
        ),
        ("<br/>The dog<br/>The cat", "^<br/>Der Hund<br/>Die Katze$"),
        (
            "[url=https://a.org]Click here[/url] now.",
            r"\[url=https://a\.org\](?:Jetzt k|K)lick[^[]*hier\[/url\]",
        ),
    ],
    "names as placeholders": [
        ("Hello __count__ people, welcome to the garden.", r"(?<!\w)__count__(?!\w)"),
        ("Hello __PLACEHOLDER_1__, welcome to our house.", r"(?<!\w)__PLACEHOLDER_1__(?!\w)"),
        ("@@user@@ sent a file.", "@@user@@(?!@)"),
        ("___name___ is here.", "^___name___ "),
        ("Dear NAME_PLACEHOLDER, your order was sent.", r"\bNAME_PLACEHOLDER\b"),
    ],
    "shortcodes": [
        ("Good morning :smile: how are you :thumbsup: today?", ":smile:", ":thumbsup:"),
        ("Good night:sleeping: my friend.", "Nacht:sleeping: "),
        (":warning: Do not open the door.", "^:warning: "),
    ],
    "escapes": [
        (r"He said \"I am tired\".", r'\\"Ich bin müde\\"|\\"[^"]{5,}\\"'),
        (r"Copy C:\Users\Anna\notes.txt to the desktop.", re.escape(r"C:\Users\Anna\notes.txt")),
        ("&quot;Yes&quot;", "^&quot;Ja&quot;$"),
        (r"He wrote \\n for a new line.", r"(?<!\\)\\\\n(?!\w)"),
        (r"The file is in C:\Program Files\App.", re.escape(r"C:\Program Files\App.")),
        (r'"He said \"hello\" to me."', r'^"[^"\\]+ \\"\w+\\" [^"\\]+"$'),
    ],
    "names of files and hosts": [
        ("See docs.python.org for help.", r"\bdocs\.python\.org\b"),
        ("Watch it on youtube.com.", r"\byoutube\.com\b"),
        ("Visit github.com today.", r"^\w+ .*\bgithub\.com\b"),
        ("The class java.util.List is old.", r"\bjava\.util\.List\b"),
        ("My-file_v2.1-final.PDF is lost.", r"^My-file_v2\.1-final\.PDF "),
        ("The console.log call is slow.", r"\bconsole\.log\b"),
        ("Run main.py now.", r"\bmain\.py\b"),
        ("Use snake_case_name here.", r"\bsnake_case_name\b"),
        ("Use getUserName and --dry-run here.", r"\bgetUserName\b", "--dry-run"),
        ("I am in Rome now! #travel #germany", "#travel", "#germany"),
    ],
    "signs": [
        ("½ cup of milk", "½"),
        ("The room has 100 m².", "100 m²"),
        ("H₂O is water.", "H₂O"),
        ("5′11″ tall", "5′11″"),
        ("If a ≤ b, then a ≠ d.", r"\ba ≤ b\b", r"\ba ≠ d\b"),
        ("The dog… ran away.", "…"),
        ("If x ≦ y then go to ①.", "≦", "①"),
    ],
    "quotes": [
        ('He said "I am tired" and left.', r'["„“][^"„“”]*["“”]'),
        ("Collection '%(object)s' created.", r"['‚»„\"](?:%\(object\)s)['‘’«“\"]"),
    ],
    "repetition": [
        ("La la la la la la la, la la la", r"^(?:\W*\b[Ll]a+\b){6,14}\W*$"),
        ("hahahahahahaha", r"^(?i:ha){5,9}$"),
        ("♪ La la la la, la la la la ♪", r"^♪(?:\W*\b[Ll]a+\b){4,12}\W*♪$"),
        ("-------- Cut here --------", "^-{8} \\w[^-]* -{8}$"),
        ("Tick tock tick tock tick tock tick tock", "^(?i:tick tock ?){3,5}$"),
        ("Soooooo good", "^So{3,9} "),
        ("Aaaaaah!", r"^[Aa]{3,9}h?!$"),
        ("Very very very cold.", "^Sehr,? sehr.* kalt\\.$"),
    ],
    "numbers of things": [
        ("No. 5 is alive.", r"(?:Nr\.|Nummer|No\.) 5\b"),
        ("NO. 5 IS ALIVE.", "(?i:nr\\.|nummer) 5"),
        ("Ticket No.: 12345", "(?:Nr|Nummer|No)\\.?: 12345$"),
        ("Invoice no. 2024/000333 is paid.", "2024/000333"),
        ("Track no. 7 is good.", r"(?:Nr\.|Nummer|[Nn]o\.) 7\b"),
    ],
    "labels of lists": [("a. Hello", "^a. Hallo"), ("I. The dog", r"^I\. Der Hund")],
}
FLAT = [(kind, *case) for kind, cases in CASES.items() for case in cases]


# Two of each kind: `make kept` makes more.
GENERATED = [sample_sentence(random.Random(n), kind) for n in (1, 2) for kind in KINDS]


@pytest.fixture(scope="module")
def results() -> dict[str, TextResult]:
    async def translate() -> list[TextResult]:
        options = TextOptions(verbatim=ALL_KINDS, adapt_letter_case=True)
        async with sentence_translator() as sentences:
            translator = text_translator(sentences, options, ("en", "de"))
            return await translator.translate(texts)

    texts = [*(case[1] for case in FLAT), *(sample.text for sample in GENERATED)]
    return dict(zip(texts, asyncio.run(translate()), strict=True))


@pytest.mark.parametrize("case", FLAT, ids=lambda case: f"{case[0]}: {case[1]}")
def test_it_is_right(case: tuple[str, ...], results: dict[str, TextResult]) -> None:
    _, source, *patterns = case
    text = results[source].text
    for pattern in patterns:
        assert len(re.findall(pattern, text)) == 1, text
    assert "\ufffd" not in text
    assert not results[source].warnings, text


def test_generated_sentences_are_right_or_warned_of(results: dict[str, TextResult]) -> None:
    for sample in GENERATED:
        result = results[sample.text]
        assert sample.is_right(result.text) or result.warnings, (sample.text, result.text)
