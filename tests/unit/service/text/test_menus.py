"""Buttons, labels and the links of a menu: each is a text by itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.text.markup.document import Document, TextRun
from service.text.markup.html_parser import parse_markup
from service.text.markup.markdown_parser import parse_markdown

PIECES = [
    "<a>",
    "</a>",
    "<button>",
    "</button>",
    "<label>",
    "</label>",
    "<input>",
    "[",
    "](x)",
    "![",
]
PIECES += ["<input type=radio>", "The dog", " ", "|", "<b>", "</b>", "<code>x</code>", "\n"]


def html(text: str) -> Document:
    return parse_markup(text, is_xml=False)


def runs(parts: Document) -> list[str]:
    return [part.text.strip() for part in parts if isinstance(part, TextRun)]


@pytest.mark.parametrize(
    "document",
    [
        "<button>Save</button> <button class='a'>Cancel</button>",
        "<button>Save</button><button>Cancel</button>",
        "<label>Save</label> <input name=a> <label>Cancel</label> <input name=b>",
        "<input type=radio> Save <input type=radio> Cancel",
        "<label><input type=radio> Save</label><label><input type=radio> Cancel</label>",
        "<label><input type=checkbox> <a>Save</a></label><button>Cancel</button>",
        "<a href=a>Save</a> <a href=b>Cancel</a>",
        "<a href=a>Save</a><a href=b>Cancel</a>",
        "<a href=a>save</a><a href=b>cancel</a>",
        "<a href=a>save</a> | <a href=b>cancel</a>",
        "<a href=a>Save</a>&nbsp;&raquo; <a href=b>Cancel</a> &rsaquo;",
        "<b><a href=a><img src=x> Save</a></b> <i><span>/ <a href=b>Cancel</a></span></i>",
    ],
)
def test_controls_and_the_links_of_a_menu_are_texts_of_their_own(document: str) -> None:
    parts = html(document)
    assert [text.casefold() for text in runs(parts)] == ["save", "cancel"]
    assert "".join(part.raw for part in parts) == document


@pytest.mark.parametrize(
    "document",
    [
        "Read <a href=a>The House</a> <a href=b>The Garden</a>",
        "<a href=a>German</a> <a href=b>physicist</a>",
        "<a href=a>Dogs</a>, <a href=b>Cats</a>",
        "<a href=a>Dogs</a> <code>and</code> <a href=b>Cats</a>",
        "<span>The</span> <b>House</b>",
        "<a href=a>The House</a>",
        "<a href=a>The House</a> <a href=b>[1]</a>",
        "<a href=a>The House",
        "<a href=a>Baden</a>-<a href=b>Württemberg</a>",
        "<a href=a>日本</a><a href=b>語</a>",
        "Press the <button>Save</button> button to continue.",
        "You agree to our <label>terms of use</label> and conditions.",
        "<label>Show <input type=number> entries per page</label>",
        "<a>The House <a>And</a> <a>The Garden</a></a>",
    ],
)
def test_links_in_a_text_stay_in_it(document: str) -> None:
    parts = html(document)
    assert len(runs(parts)) == 1
    assert "".join(part.raw for part in parts) == document


def test_links_of_a_menu_in_markdown() -> None:
    document = (
        "[Home](/) [About us](/about)\n\n[Home](/) | [jobs](/j)\n\n[Home](/) and [jobs](/j)\n"
    )
    parts = parse_markdown(document)
    assert runs(parts) == ["Home", "About us", "Home", "jobs", "Home and jobs"]
    assert "".join(part.raw for part in parts) == document


def test_buttons_beside_each_other_in_a_text() -> None:
    document = "Are you sure? <button>Delete</button> <button>Keep</button> <b>Then</b> go."
    parts = html(document)
    assert runs(parts) == ["Are you sure?", "Delete", "Keep", "Then go."]
    assert "".join(part.raw for part in parts) == document


def test_badges_are_whole_links() -> None:
    document = "[![Build](b.svg)](link) [![Docs](d.svg)](link2)"
    found = [part.raw for part in parse_markdown(document) if isinstance(part, TextRun)]
    assert found == ["[![Build](b.svg)](link)", "[![Docs](d.svg)](link2)"]


def test_names_of_xml_mean_nothing() -> None:
    document = "<doc><q><a>The big</a> <a>House</a> is red</q></doc>"
    assert runs(parse_markup(document, is_xml=True)) == ["The big House is red"]


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_any_controls_are_copied_in_their_order(pieces: list[str]) -> None:
    document = "".join(pieces)
    for parts in (html(document), parse_markdown(document)):
        assert "".join(part.raw for part in parts) == document
