"""Parameters of fronts: the same from JSON, a form and the URL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidArgumentError
from service.fronts.http.fields import Fields, parse_form

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def refused_field(read: Callable[[], object]) -> str:
    """The field that is refused; "" if none is."""
    try:
        read()
    except InvalidArgumentError as exc:
        return exc.field
    return ""


@given(st.lists(texts, min_size=1), st.sampled_from(["q", "q[]"]))
def test_a_form_says_what_json_says(values: list[str], name: str) -> None:
    form = parse_form(urlencode([(name, value) for value in values]).encode(), 1000)
    json = Fields({"q": values})
    assert form.texts("q") == json.texts("q") == values
    assert form.is_list("q") == (len(values) > 1)
    assert json.is_list("q")
    assert form.text("q") == Fields({"q": values[0]}).text("q") == values[0]


@given(st.binary(max_size=100))
def test_any_body_is_a_form_or_refused(data: bytes) -> None:
    assert refused_field(lambda: parse_form(data, 10)) in ("", "body")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | texts, st.lists))
def test_any_json_value_is_read_or_refused(value: Any) -> None:
    fields = Fields({"x": value})
    for read in (
        lambda: fields.text("x"),
        lambda: fields.needed("x"),
        lambda: fields.texts("x"),
        lambda: fields.needed_texts("x"),
        lambda: fields.flag("x"),
        lambda: fields.number("x", 1, 0, 9),
        lambda: fields.choice("x", ("a", "b"), "a"),
        lambda: fields.text_or_flag("x", "1"),
    ):
        assert refused_field(read)[:1] in ("", "x")


def test_too_many_values_are_refused_before_they_are_read() -> None:
    with pytest.raises(InvalidArgumentError, match="more than 10 values"):
        parse_form(b"a=1&" * 1_000_000, 10)


def test_the_body_counts_before_the_url() -> None:
    fields = Fields({"q": "a"}).over(Fields.of_pairs([("q", "b"), ("source", "en")]))
    assert (fields.text("q"), fields.text("source")) == ("a", "en")


def test_objects_come_from_json_and_forms() -> None:
    json = Fields({"a": [{"x": "1"}, {"x": "2", "y": "3"}]})
    form = Fields.of_pairs([("a[1].x", "2"), ("a[0].x", "1"), ("a[1].y", "3"), ("b[0].x", "4")])
    for fields in (json, form):
        first, second = fields.objects("a")
        assert (first.text("x"), second.text("x"), second.text("y")) == ("1", "2", "3")
        assert fields.objects("c") == []
    assert refused_field(lambda: Fields({"a": ["x"]}).objects("a")) == "a"
