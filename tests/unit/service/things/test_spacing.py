"""Spaces beside tags in plain text: none is invented, and none of the text is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.bundle.spans import Span
from service.things.edits import EditedText
from service.things.spacing import gaps_of, misplaced_spaces, without_invented_spaces
from service.things.things import find_things
from service.things.wanted import Candidate
from service.translation.links import Link


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (r"{\an8}Where?", r"{\an8} Wo?", r"{\an8}Wo?"),
        ("<p>The dog.</p>", "<p> Der Hund. </p>", "<p>Der Hund.</p>"),
        ("<b>You</b> must go.", "<b> Du </b> musst gehen.", "<b>Du</b> musst gehen."),
        ("go <b>now</b>.", "gehen <b> jetzt </b> .", "gehen <b>jetzt</b>."),
        ("a <br/> b<br>c", "a <br/> b <br> c", "a <br/> b<br>c"),
        ("[b]Stop[/b], now", "[b] Halt [/b] , jetzt", "[b]Halt[/b], jetzt"),
        ("{b}New{/b} house", "{b} Neu {/b} Haus", "{b}Neu{/b} Haus"),
        ("the {n}th day", "der {n} . Tag", "der {n} . Tag"),
        ("<b>Stop.</b>Go", "<b>Halt.</b> Geh", "<b>Halt.</b>Geh"),
        ("{% if x %}Go{% endif %}", "{% if x %} Geh{% endif %}", "{% if x %}Geh{% endif %}"),
        ("all&nbsp;rights", "alle &nbsp; Rechte", "alle&nbsp;Rechte"),
        ("night:smile: you", "Nacht :smile: du", "Nacht:smile: du"),
        ("`ls`is", "`ls` ist", "`ls`ist"),
        ("see {{x}}, now", "jetzt {{x}} sehen", "jetzt {{x}} sehen"),
        # Others stay as the model wrote them.
        ("<b> a </b> b", "<b> a </b> b", "<b> a </b> b"),
        ("see {name}, now", "jetzt {name} sehen", "jetzt {name} sehen"),
        ("<i>a</i><b>c</b>", "<i>a</i> <b>c</b>", "<i>a</i><b>c</b>"),
        ("a < b > c", "a < b > c", "a < b > c"),
        ("no tag", "kein Tag", "kein Tag"),
        ("<b>lost</b>", "verloren", "verloren"),
    ],
)
def test_spaces_beside_tags(source: str, target: str, expected: str) -> None:
    assert without_invented_spaces(source, Candidate(target)).text == expected


@pytest.mark.parametrize(
    ("text", "gaps"),
    [
        ("<br/>The dog<br/>The cat", [5, 12, 17]),
        ("{{#if x}}You have {{n}} items{{else}}No", [9, 29, 37]),
        ("all&nbsp;rights &ndash; x", [3, 9]),
        ("[b]The[/b]", [3, 6]),
        # Endings, letters, brackets and words in pieces.
        ("{{n}}s {n}th %ss caf&eacute;s &lt;now&gt; un<b>", []),
    ],
)
def test_a_model_reads_a_space_beside_tags(text: str, gaps: list[int]) -> None:
    assert sorted(set(gaps_of(text, find_things(text)))) == gaps


@given(source=st.text("a <b>/.[", max_size=20), target=st.text("a <b>/.[", max_size=20))
def test_only_spaces_go(source: str, target: str) -> None:
    text = without_invented_spaces(source, Candidate(target)).text
    assert text.replace(" ", "") == target.replace(" ", "")
    assert without_invented_spaces(source, Candidate(source)).text == source


def test_links_move_along() -> None:
    links = [Link(Span(3, 6), Span(4, 7))]
    found = without_invented_spaces("<b>You", Candidate("<b> Sie", links))
    assert (found.text, found.links) == ("<b>Sie", [Link(Span(3, 6), Span(3, 6))])


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("You have {n}{unit} left.", "Sie haben {n} {unit} übrig.", "Sie haben {n}{unit} übrig."),
        ("You have {n} {unit} left.", "Sie haben {n} {unit} übrig.", "Sie haben {n} {unit} übrig."),
        ("{n}{unit}, {n} {unit}", "{n}{unit}, {n} {unit}", "{n}{unit}, {n} {unit}"),
        ("Set '%(x)s' now.", "Satz' %(x)s' jetzt.", "Satz '%(x)s' jetzt."),
        ("Set '%(x)s' now.", "Jetzt '%(x)s' setzen.", "Jetzt '%(x)s' setzen."),
        ("Set %(x)s now.", "Satz' %(x)s' jetzt.", "Satz' %(x)s' jetzt."),
        ("{a}{b} {a}{b}.", "{a} {b} {a} {b}.", "{a}{b} {a}{b}."),
        ("{0} {0}{0}{0}.", "{0} {0}{0}{0}.", "{0} {0}{0}{0}."),
        ("Put '{a}' by '{a}'.", "Setz' {a}' durch' {a}'.", "Setz '{a}' durch '{a}'."),
        ("Put '{a}' by '{a}'.", "Setz '{a}' durch' {a}'.", "Setz '{a}' durch '{a}'."),
        ('A 19" "{n}" rack', 'Ein 19" {n}" Rack', 'Ein 19" {n}" Rack'),
    ],
)
def test_things_that_touch_stay_together(source: str, target: str, expected: str) -> None:
    things = [thing.span for thing in find_things(source)]
    assert EditedText(target, misplaced_spaces(source, things, target)).text == expected


@given(st.lists(st.sampled_from(["{0}", "%s", "'", '"', " ", "word", "5 km"]), max_size=9))
def test_a_copy_has_no_misplaced_space(parts: list[str]) -> None:
    text = "".join(parts)
    assert misplaced_spaces(text, [thing.span for thing in find_things(text)], text) == []
