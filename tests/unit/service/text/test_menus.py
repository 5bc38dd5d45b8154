"""Buttons, labels and the links of a menu: each is a text by itself."""

import pytest

from service.text.markup.document import Document, TextRun
from service.text.markup.html_parser import parse_markup
from service.text.markup.markdown_parser import parse_markdown


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
