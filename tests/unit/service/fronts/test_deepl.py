"""DeepL's parameters as options of the contract."""

from __future__ import annotations

import pytest

from dragoman.v1 import translation_pb2 as pb
from service.fronts.deepl import set_options
from service.fronts.http.fields import Fields


@pytest.mark.parametrize(
    ("kind", "split", "line_breaks"),
    [
        ("", None, pb.LINE_BREAKS_UNSPECIFIED),
        ("", "1", pb.LINE_BREAKS_UNSPECIFIED),
        ("", "nonewlines", pb.LINE_BREAKS_JOIN),
        ("xml", None, pb.LINE_BREAKS_KEEP),
        ("xml", "1", pb.LINE_BREAKS_KEEP),
        ("xml", "nonewlines", pb.LINE_BREAKS_JOIN),
        ("html", None, pb.LINE_BREAKS_JOIN),
        ("html", "1", pb.LINE_BREAKS_KEEP),
        ("html", "nonewlines", pb.LINE_BREAKS_JOIN),
    ],
)
def test_only_html_has_no_new_lines_by_default(
    kind: str, split: str | None, line_breaks: pb.LineBreaks.ValueType
) -> None:
    request = pb.TranslateRequest()
    set_options(request, Fields({"tag_handling": kind, "split_sentences": split}))
    assert request.options.line_breaks == line_breaks
    assert not request.options.HasField("split_sentences")
    set_options(request, Fields({"tag_handling": kind, "split_sentences": "0"}))
    assert not request.options.split_sentences
