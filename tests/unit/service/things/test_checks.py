"""Forms of things, flaws of translations, and warnings."""

from __future__ import annotations

import pytest

from model.bundle.spans import Span
from service.things.checks import added_numbers, added_units, flaws, is_plausible
from service.things.edits import EditedText
from service.things.messages import branches_of, messages_of
from service.things.placing import tidied
from service.things.quotes import apostrophes_of, as_escaped, quotes_of
from service.things.runs import has_runs, lost_run, own_run, surplus_run, without_run
from service.things.scanned import TermRules
from service.things.terms_translator import TermsTranslator
from service.things.text_parts import parts_of
from service.things.things import Form, find_things
from service.things.wanted import Candidate
from service.translation.options import TranslatorLimits
from service.translation.results import TextResult, WarningKind
from tests.unit.service.text.scripted_translator import FakeTranslator, stage

FORMS = {
    Form.TIME: [
        "4 pm",
        "6:45am",
        "12.30pm",
        "6 to 7 pm",
        "9am-5pm",
        "10 o'clock",
        "12 noon",
        "half past 7 pm",
        "Half past 7 pm",
        "quarter to 5",
        "3:15:20 PM",
        "7 in the morning",
    ],
    Form.AMOUNT: [
        "$20",
        "US$3,000",
        "20 €",
        "20 CHF",
        "EUR 5",
        "£1.50",
        "€5,–",
        "5,– €",
        "$10-20",
        "300 kr",
        "$1.2M",
    ],
    Form.UNIT: ["20km", "100 m²", "50%", "-5 °C", "3.5 GB", "0.5 l", "10 g", "9.58 s", "5 min"],
    Form.ORDINAL: ["5th", "21st"],
    Form.DECADE: ["1990s", "'90s"],
    Form.NUMERO: ["No. 5", "no. 12", "№ 3", "NO. 5", "No.: 12345", "no. 2024/000333", "No. A-12"],
    Form.IDENTIFIER: [
        "BE0768880101",
        "COVID-19",
        "#travel",
        "foo_bar",
        "MAX_VALUE",
        "--dry-run",
        "XKCDQRST",
    ],
    Form.GROUPS: ["DE89 3704 0044 0532 0130 00", "4111 1111 1111 1111"],
    Form.HOST: [
        "docs.python.org",
        "main.py",
        "os.path.join",
        "run()",
        "std::string",
        "console.log",
        "java.util.List",
        "My-file_v2.1-final.PDF",
    ],
    Form.PATH: [
        "/etc/hosts",
        r"C:\new\x.txt",
        "src/main/a.c",
        "~/x",
        r"C:\Program Files (x86)\App",
    ],
    Form.NAME: ["getName", "iPhone", "YouTube"],
    Form.TEMPLATE: [
        "{% if x %}",
        "{{ a | b }}",
        "{0:dd MMM yyyy}",
        "__name__",
        "&amp;",
        "<%= x %>",
        *("@@user@@", "##NAME##", "%%NAME%%", "$$x=1$$", "___name___"),
    ],
    Form.ESCAPE: [r"\\n"],
    Form.LATIN: ["Şişli", "Łódź"],
    Form.PLACEHOLDER: [
        *("<br/>", "[url=https://a.org]", "[/b]"),
        "%s%s",
        "%d%%",
        "%'d",
        "{0}",
        ":name",
        "<0>",
    ],
    Form.SHORTCODE: [":smile:", ":+1:"],
    Form.SIGN: ["½", "x²", "H₂O", "①", "1½", "--------"],
    Form.PRIVATE: ["\ue001", "\uf101\uf102", "\U000f0001"],
    Form.FOREIGN: ["Киев", "猫", "שלום", "Доброе утро", "ＡＢ１"],
    Form.SOUND: ["hahaha", "Aaaaah", "Soooo", "pleeease"],
    Form.FEET: ["5′11″", "6'2\""],
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_things(form: Form) -> None:
    for thing in FORMS[form]:
        for text in (f"We saw {thing} there.", f"It is ({thing}), he said", thing):
            assert [(each.form, each.text) for each in find_things(text)] == [(form, thing)], text


@pytest.mark.parametrize(
    ("text", "things"),
    [
        ("He left at 9 p. m. today.", ["9 p. m."]),
        ("It is quarter to 8 a.m. now", ["quarter to 8 a.m."]),
        ("Half past six.", ["Half past six"]),
        ("Come at a quarter to nine in the evening!", ["a quarter to nine in the evening"]),
        ("He walked past six men, ten to one for us.", ["six", "ten"]),
        ("In the past two years, half past", []),
        ("It is half past seventeen", ["seventeen"]),
        ("At ten to six we left, not before six thirty.", ["ten to six", "six thirty"]),
        ("We stay until five forty-five in the evening.", ["five forty-five in the evening"]),
        (
            "It is twenty-five to one; by seven ten a.m. he ran.",
            ["twenty-five to one", "seven ten a.m."],
        ),
        ("Dinner is at seven thirty p.m.", ["seven thirty p.m"]),
        ("After ten to twelve hours, ten to six won.", ["ten", "twelve", "ten", "six"]),
        ("He paid after six thirty days at two fifty each way", []),
        ("He came at 1500 hours and slept at 10 at night.", ["1500 hours", "10 at night"]),
        ("From 9 am to noon; it is noon.", ["9 am", "noon", "noon"]),
        ("It is noon.", []),
        ("See § 5 and ¶ 3", ["§", "5", "¶", "3"]),
        ("Call at 5:05 p.m. EST or at 2 p.m. Tom is in.", ["5:05 p.m.", "EST", "2 p.m"]),
        ("Øyvind was in São Paulo and in Århus, at a café", ["Øyvind", "São", "Århus"]),
        ("a ≤ b and x -> y", ["a", "≤", "b", "->"]),
        ("A dog -> a cat, b >> c && d", ["->", ">>", "&&"]),
        ("Chapter No 7 is long, and No 5 too", ["No 7", "No 5"]),
        ("No 5 dogs; no 5 cats", ["5", "5"]),
        ("I like it.but not this", []),
        (r"C:\a and \\x\y to D:\b", [r"C:\a", r"\\x\y", r"D:\b"]),
        (r"Open C:\My App\new file.txt now", [r"C:\My App\new file.txt"]),
        (r"Copy D:\x\table of things.txt to E:", [r"D:\x\table of things.txt"]),
        (r"Copy C:\a\notes.txt to main.py", [r"C:\a\notes.txt", "main.py"]),
        (r"Move C:\Temp to old.zip now", [r"C:\Temp", "old.zip"]),
        (r'Read "C:\my own\what is new.txt" now', [r"C:\my own\what is new.txt"]),
        (
            r"See C:\Program Files and C:\Program Files (x86).",
            [r"C:\Program Files", r"C:\Program Files (x86)"],
        ),
    ],
)
def test_things_by_their_neighbours(text: str, things: list[str]) -> None:
    assert [thing.text for thing in find_things(text)] == things


def test_a_comma_beside_a_quotation_mark_is_not_doubled() -> None:
    source, text = '"No," I said.', "„Nein,“, sagte ich."
    assert tidied(source, Candidate(text)).text == "„Nein“, sagte ich."
    assert tidied('"No,", I said.', Candidate(text)).text == text


@pytest.mark.parametrize("text", ["You MUST NOT go.", "THE DOG IS HERE", "I am OK."])
def test_words_in_capitals_are_no_acronyms(text: str) -> None:
    assert not find_things(text)
    assert [thing.text for thing in find_things("The CERN people asked.")] == ["CERN"]


@pytest.mark.parametrize(
    ("source", "text", "kinds"),
    [
        ("A dog.", "Ein Hund.", []),
        ('"A dog" ran.', "„Ein Hund“ lief.", []),
        ('"A dog" ran.', "Ein Hund“ lief.", [WarningKind.QUOTES]),
        ("He said 'no' to the dogs' owner.", "Er sagte ‚nein‘.", []),
        ("A dog.", "Ein Hund.}", [WarningKind.SIGNS]),
        ("A dog.", "Ein \ufffd.", [WarningKind.CHARACTER]),
        ("The dog runs.", "Der Hund Hund Hund Hund Hund.", [WarningKind.REPETITION]),
        ("The dog runs.", "Der HuchUchUchUchUchUch.", [WarningKind.REPETITION]),
        ("La la la la.", "La la la la.", []),
        ("A dog and a cat ran down the long street.", "Ein.", [WarningKind.LENGTH]),
        ("A dog runs.", "12.", [WarningKind.LENGTH]),
        ("See <b>it</b> now.", "Siehe <b></b> jetzt.", [WarningKind.MISSING]),
        ("See [i]it[/i] now.", "Siehe es [i] [/i] jetzt.", [WarningKind.MISSING]),
        ("See <b></b> now.", "Siehe <b></b> jetzt.", []),
        ("The dog (5) ran.", "Der Hund (5)s lief.", [WarningKind.SIGNS]),
        ("The file(s)x (5)", "Die Datei(en)x (5)", []),
    ],
)
def test_flaws(source: str, text: str, kinds: list[WarningKind]) -> None:
    assert [flaw.kind for flaw in flaws(source, text)] == kinds


def test_repetition_is_cut_to_that_of_the_source() -> None:
    assert has_runs("La la la, la la")
    assert has_runs("hahahaha!")
    assert not has_runs("The banana is very very good.")
    edit = without_run("La la la la", "La" + " la" * 60)
    assert edit is not None
    assert edit.span.start <= len("La la la la") + 3
    assert surplus_run("la la la la", "la la la la la") is None
    assert without_run("A dog", "la" * 60) is None


@pytest.mark.parametrize(
    "said",
    [
        "La la la",
        "hey hey hey",
        "hahahaha",
        "He he he he",
        "Tick tock tick tock tick tock",
        "Yada yada yada",
    ],
)
def test_a_sound_that_is_lost_is_put_back(said: str) -> None:
    assert own_run(f"{said}!") == lost_run(f"{said}!", "Lachen!") == (0, len(said))


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("Very very very good.", "Sehr sehr gut."),
        ("Many many many dogs!", "Hunde!"),
        ("Go go go!", "Geh los!"),
        ("Stop, stop, stop, stop!", "Hör auf!"),
        ("Happy birthday, happy birthday, happy birthday!", "Alles Gute!"),
        ("Again and again and again and again.", "Immer wieder."),
    ],
)
def test_other_words_that_a_sentence_repeats_are_no_loss(source: str, text: str) -> None:
    assert own_run(source) is lost_run(source, text) is None


def test_words_that_are_repeated_in_the_other_language_are_not_lost() -> None:
    assert lost_run("Sehr sehr sehr gut.", "Very very good.") is None
    assert lost_run("Sehr sehr sehr gut.", "Very good.") is not None
    assert lost_run("Hahahahahahaha", "Das ist sehr sehr schlecht.") is not None
    assert lost_run("Blah blah blah, blah blah.", "Blah blah.") is not None
    ticks = "Tick tock tick tock tick tock tick tock"
    assert lost_run(ticks, "Ticke Tick-Tock-Tick-Tock-Tock-Tock-Tock") is not None
    assert lost_run(ticks, "Tick-Tack-Tick-Tack-Tick-Tack") is None
    assert lost_run("La la la la la", "Lalalalala") is None


async def test_a_word_that_a_model_repeats_for_ever_is_not_copied() -> None:
    below = FakeTranslator(words={"very": "sehr sehr sehr sehr", "good": "gut"})
    [result] = await stage(below, letter_case=False).translate(["He is very very very good."])
    assert "very" not in result.text


def test_numbers_that_a_sentence_does_not_have() -> None:
    assert added_numbers("We meet there.", "Wir treffen uns um 7.", [], [], "en") == ["7"]
    assert not added_numbers("Seven dogs.", "7 Hunde.", [], [], "en")
    assert added_numbers("It is three to one.", "Es ist drei bis 20.", [], [], "en") == ["20"]
    assert added_numbers("He has two dogs.", "Er hat 20 Hunde.", [], [], "en") == ["20"]
    assert not added_numbers("Three to four hundred.", "300 bis 400.", [], [], "en")
    assert not added_numbers("Five million came.", "Es kamen 5 Millionen.", [], [], "en")
    assert not added_numbers("A million people.", "1.000.000 Menschen.", [], [], "en")
    assert not added_numbers("He won a million.", "Er gewann 1 Million.", [], [], "en")
    assert not added_numbers("A dozen eggs.", "12 Eier.", [], [], "en")
    assert not added_numbers("Nothing is known.", "7 Hunde.", [], [], "xx")
    twice = "Das 13. 13th Haus."
    assert added_numbers("The 13th house.", twice, [Span(4, 8)], [Span(4, 7)], "en") == ["13"]


@pytest.mark.parametrize(
    ("source", "text", "added"),
    [
        ("It was 30 inches.", "Es waren 30 Zentimeter.", ["Zentimeter"]),
        ("It is 6 yards long.", "Es ist 6 Meter lang.", ["Meter"]),
        ("It is sixty feet deep.", "Es ist sechzig Meter tief.", ["Meter"]),
        ("Two hundred miles.", "Zweihundert Kilometer.", ["Kilometer"]),
        ("It costs $3.89 a litre.", "Es kostet $3,89 Uhr.", ["Uhr"]),
        ("Sunday, 8 in the evening.", "Sonntag, 20 Uhr.", []),
        ("Come at seven.", "Komm um 7 Uhr.", []),
        ("It has 5 percent.", "Es kostet 5 Euro.", []),  # one unit for another is not seen
        ("It costs 5.", "Es kostet 5 Euro.", ["Euro"]),
        ("It is 6 m long, 30cm high.", "Es ist 6 Meter lang, 30 Zentimeter hoch.", []),
        ("A 5 kilometre run.", "Ein Lauf von 5 Kilometern.", []),
        ("Between 5 and 10 metres.", "Zwischen 5 Metern und 10 Metern.", []),
        ("The flat has 100 sqm.", "Die Wohnung hat 100 Quadratmeter.", []),
        ("Run 5k, 60 kms.", "Lauf 5 Kilometer, 60 Kilometer.", []),
        ("The room has 20 m².", "Das Zimmer hat 20 Quadratmeter.", []),
        ("He drives 50 km/h.", "Er fährt 50 Kilometer pro Stunde.", []),
    ],
)
def test_units_that_a_sentence_does_not_have(source: str, text: str, added: list[str]) -> None:
    assert added_units(source, text, "en") == added


def test_metric_units_are_known_in_two_languages() -> None:
    assert not added_units("Cuesta 5 litros.", "Es kostet 5 Liter.", "es")
    assert not added_units("Die 2-Literflasche ist leer.", "The 2 liter bottle is empty.", "de")
    assert added_units("Die 2 Dosen sind leer.", "The 2 liters are empty.", "de") == ["liters"]


def test_plausible_lengths() -> None:
    assert is_plausible("Yes.", "Ja, das stimmt.")
    assert not is_plausible("Yes.", "Ja " * 50)


def test_marks_that_are_escaped() -> None:
    assert [each.text for each in quotes_of(r"He said \"no\".")] == [r"\"", r"\""]
    assert all(quote.is_escaped for quote in quotes_of("&quot;no&quot;"))
    assert not quotes_of("It&#39;s late, don't go.")
    assert len(apostrophes_of("It&#39;s late")) == 1


@pytest.mark.parametrize(
    ("text", "apostrophes", "marks"),
    [
        (r"the users\' files", 1, 0),
        (r"the users\' file says \'no\'", 1, 2),
        (r"it\'s \'no\'", 1, 2),
        (r"\'no\' to the users\' files", 1, 2),
        (r"\' no", 1, 0),
        (r"\'Please wait.", 0, 1),  # a quotation of several sentences
        ("You are there.&#39;", 0, 1),
    ],
)
def test_an_escaped_mark_without_partner_is_an_apostrophe(
    text: str, apostrophes: int, marks: int
) -> None:
    assert len(apostrophes_of(text)) == apostrophes
    assert len(quotes_of(text)) == marks


@pytest.mark.parametrize(
    ("text", "written", "escaped"),
    [
        (r"It\'s here", "C'est l'un", r"C\'est l\'un"),
        ("&#39;Yes&#39;", "'J'ai'", "&#39;J&#39;ai&#39;"),
        ("It&apos;s 5'", "C'est 5'", "C'est 5'"),
        ("It's here", "C'est", "C'est"),
        (r"It\'s", r"C\'est", r"C\'est"),
    ],
)
def test_apostrophes_are_escaped_as_in_the_sentence(text: str, written: str, escaped: str) -> None:
    edits = as_escaped(text, quotes_of(text), written, ())
    assert EditedText(written, edits).text == escaped


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (r"She cried \"Run!\" and fell.", [r"She cried \"Run!\"", " and fell."]),
        (r"He said \"Stop.\" Then he left.", [r"He said \"Stop.\"", " Then he left."]),
        ("It is &quot;new!&quot; and old.", ["It is &quot;new!&quot;", " and old."]),
    ],
)
def test_an_escaped_mark_belongs_to_the_sentence_before_it(text: str, sentences: list[str]) -> None:
    parts = parts_of(text, TermRules("en", "de"), split_sentences=True)
    assert [part.separator + part.text for part in parts] == sentences


def test_messages_and_their_branches() -> None:
    text = "See {n, plural, one {# dog of {name}} other {# dogs}} and {x}."
    [span] = messages_of(text)
    message = text[slice(*span)]
    assert [message[slice(*branch)] for branch in branches_of(message)] == [
        "# dog of {name}",
        "# dogs",
    ]
    assert not messages_of("{n, plural, one {")


async def test_what_could_not_be_put_right_is_a_warning() -> None:
    below = FakeTranslator(words={'"': "", "dog": "dog dog dog dog dog dog"})
    [result] = await stage(below, letter_case=False).translate(["The dog runs 5."])
    assert [(each.kind, each.sentence) for each in result.warnings] == [
        (WarningKind.REPETITION, "The dog runs 5.")
    ]
    [plain] = await stage(below, letter_case=False).translate(["The dog runs."])
    assert [each.kind for each in plain.warnings] == [WarningKind.REPETITION]
    *_, end = [each async for each in stage(below, letter_case=False).stream("The dog runs.")]
    assert isinstance(end, TextResult)
    assert end.warnings == plain.warnings


async def test_a_number_that_the_model_invents_is_a_warning() -> None:
    below = FakeTranslator(words={"one": "20"})
    [result] = await stage(below, letter_case=False).translate(["It is three to one."])
    assert [(each.kind, each.text) for each in result.warnings] == [(WarningKind.ADDED, "20")]


async def test_what_the_model_keeps_has_no_warning() -> None:
    texts = ["The dog runs 5 km.", "A Киев at 4 pm.", "Plain."]
    rules = TermRules("en", "fr", letter_case=False)
    results = await TermsTranslator(FakeTranslator(), rules, TranslatorLimits()).translate(texts)
    assert [each.text for each in results] == ["The dog runs 5 km.", "A Киев at 16:00.", "Plain."]
    assert not any(each.warnings for each in results)
