"""Links of reStructuredText: each once, around its words; the rest is translated."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidArgumentError
from service.text.options import TextOptions
from service.text.rest_links import RestLinkTranslator, has_links, parse_links
from tests.fake_linked import FakeLinkedTranslator

LINK = "See `the manual <https://example.org/a_b>`_ for more."


def translator(below: FakeLinkedTranslator) -> RestLinkTranslator:
    return RestLinkTranslator(below, TextOptions(), below.limits)


@pytest.mark.parametrize(
    ("text", "read", "kept"),
    [
        (LINK, "See the manual for more.", [" <https://example.org/a_b>`_"]),
        (LINK.replace("`_", "`__"), "See the manual for more.", [" <https://example.org/a_b>`__"]),
        ("See :ref:`the dog <dog-1>` now", "See the dog now", [":ref:`", " <dog-1>`"]),
        ("See :py:func:`print` now", "See {1} now", [":py:func:`print`"]),
        ("See `the manual`_ and ``a b`` now", "See {1} and {2} now", ["`the manual`_", "``a b``"]),
        ("See this `page <x>`_ [1]_ now", "See this page {1} now", [" <x>`_", "[1]_"]),
        ("A list:\n\n- " + LINK, "A list:\n\n- See the manual for more.", ["/a_b>`_"]),
    ],
)
async def test_links_stay_around_their_words(text: str, read: str, kept: list[str]) -> None:
    below = FakeLinkedTranslator()
    [result] = await translator(below).translate([text])
    assert below.texts == [read]
    assert result.error is None
    for part in kept:
        assert result.text.count(part) == 1
    assert result.text.count("`") == text.count("`")
    events = [event async for event in translator(below).stream(text)]
    assert "".join(event.text for event in events[:-1]) == result.text


@pytest.mark.parametrize(
    "text",
    ["a `dog` runs", "``a``", "a_b `x`", "a < b > c", "Run `ls -l`, then `cd <dir>`.", "a:`b"],
)
def test_other_texts_have_none(text: str) -> None:
    assert not has_links(text)


async def test_results_are_in_the_order_of_the_texts() -> None:
    below = FakeLinkedTranslator()
    texts = ["one dog", LINK, "two dogs", "a\0" + LINK]
    results = await translator(below).translate(texts)
    assert [result.text for result in results[::2]] == [
        below.result(text).text for text in texts[::2]
    ]
    assert "https://example.org/a_b" in results[1].text
    error = results[3].error
    assert isinstance(error, InvalidArgumentError)
    assert error.field == "contents[3]"
    with pytest.raises(InvalidArgumentError, match=r"contents\[1\]: 100,"):
        await translator(below).translate([LINK, LINK + "x" * 100_000])


@given(text=st.text("ab `_<>:[]1\n", max_size=60))
def test_nothing_is_lost(text: str) -> None:
    [run] = parse_links(text)
    assert run.raw == text


@pytest.mark.usefixtures("few_objects")
@pytest.mark.parametrize("unit", ["`", "`a ", "`a <", ":a:`", "``a", "`a <b>`_ ", "[a", "]_"])
def test_time_is_linear(unit: str) -> None:
    def seconds(count: int) -> float:
        text = unit * count + "`_"
        started = time.thread_time()
        has_links(text)
        parse_links(text)
        return time.thread_time() - started

    seconds(100)
    assert seconds(20_000) < 40 * max(seconds(2000), 0.002)
