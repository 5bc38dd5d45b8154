"""DeepL's parameters as options of a request."""

from __future__ import annotations

import pytest

from service.calls.requests import TextRequest
from service.fronts.deepl import with_options
from service.fronts.http.fields import Fields
from service.text.options import LineBreaks
from service.translation.options import TranslateOptions


@pytest.mark.parametrize(
    ("kind", "split", "line_breaks"),
    [
        ("", None, None),
        ("", "1", None),
        ("", "nonewlines", LineBreaks.JOIN),
        ("xml", None, LineBreaks.KEEP),
        ("xml", "1", LineBreaks.KEEP),
        ("xml", "nonewlines", LineBreaks.JOIN),
        ("html", None, LineBreaks.JOIN),
        ("html", "1", LineBreaks.KEEP),
        ("html", "nonewlines", LineBreaks.JOIN),
    ],
)
def test_only_html_has_no_new_lines_by_default(
    kind: str, split: str | None, line_breaks: LineBreaks | None
) -> None:
    fields = Fields({"tag_handling": kind, "split_sentences": split})
    request = with_options(TextRequest(), fields)
    assert request.line_breaks == line_breaks
    assert request.options(TranslateOptions()).split_sentences
    unsplit = with_options(TextRequest(), Fields({"tag_handling": kind, "split_sentences": "0"}))
    assert not unsplit.options(TranslateOptions()).split_sentences
    assert unsplit.line_breaks == (LineBreaks.KEEP if kind == "xml" else None)
