"""Arguments that the client itself refuses, since every server would fail or ignore them."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest

from dragoman import AsyncClient, Client, Sampling, Search

NO_SERVER = "127.0.0.1:1"
TEXTS = ["A dog."]


def both(method: str, *arguments: Any, **named: Any) -> tuple[Any, ...]:
    return method, arguments, named


def translate(**named: Any) -> tuple[Any, ...]:
    return both("translate", TEXTS, **named)


def searched(**named: Any) -> tuple[Any, ...]:
    return translate(search=Search(**named))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (both("translate", "A dog."), "texts: must be a list of texts, not one text"),
        (both("translate", b"A dog."), "texts: must be a list of texts, not bytes"),
        (both("translate", None), "texts: must be a list of texts, not NoneType"),
        (both("translate", [3]), "texts: contents[0] must be a str, not int"),
        (both("translate", ["a", b"b"]), "texts: contents[1] must be a str, not bytes"),
        (translate(source=3), "source: must be a str, not int"),
        (translate(target=b"de"), "target: must be a str, not bytes"),
        (translate(model=["en-de"]), "model: must be a str, not list"),
        (translate(request_id=7), "request_id: must be a str, not int"),
        (translate(timeout="3"), "timeout: must be a number of seconds or None, not str"),
        (translate(search="beam"), "search: must be a Search, not str"),
        (translate(max_new_tokens=3.5), "max_new_tokens: must be an int, not float"),
        (translate(split_sentences="no"), "split_sentences: must be True or False, not str"),
        (translate(num_hypotheses="4"), "num_hypotheses: must be an int, not str"),
        (translate(return_tokens=2), "return_tokens: must be True or False, not int"),
        (searched(beam_size="4"), "beam_size: must be an int, not str"),
        (searched(length_penalty="1"), "length_penalty: must be a number, not str"),
        (searched(target_prefix=3), "target_prefix: must be a str, not int"),
        (searched(suppressed_tokens=["a", 3]), "suppressed_tokens[1]: must be a str, not int"),
        (searched(sampling=0.5), "sampling: must be a Sampling, not float"),
        (searched(sampling=Sampling(seed="1")), "seed: must be an int, not str"),  # type: ignore[arg-type]
        (both("stream", 3), "text: must be a str, not int"),
        (both("stream", "A dog.", timeout="3"), "timeout: must be a number of seconds or None"),
        (both("score", "ab"), "pairs: must be a list of pairs"),
        (both("score", ["ab"]), "pairs[0]: must be a text and its translation, not 'ab'"),
        (both("score", [("a", "b"), ("a",)]), "pairs[1]: must be a text and its translation, not"),
        (both("score", [None]), "pairs[0]: must be a text and its translation, not None"),
        (both("score", [(1, "b")]), "pairs[0].source_text: must be a str, not int"),
        (both("score", [("a", b"b")]), "pairs[0].translated_text: must be a str, not bytes"),
        (both("score", [("a", "b")], target=3), "target: must be a str, not int"),
        (both("get_model", 3), "name: must be a str, not int"),
        (both("list_models", timeout="3"), "timeout: must be a number of seconds or None, not str"),
        (translate(beam_size=4), "translate() got an unexpected keyword argument 'beam_size'"),
        (both("stream", "a", mime_type=""), "stream() got an unexpected keyword argument"),
        (both("score", [], search=None), "score() got an unexpected keyword argument 'search'"),
        (both("attention", "a", glossary=None), "attention() got an unexpected keyword argument"),
        (both("detect", [], source="en"), "detect() got an unexpected keyword argument 'source'"),
        (both("translate_document", b"", "a.md", return_tokens=True), "translate_document() got"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_wrong_type_is_named(call: tuple[str, Any, Any], message: str) -> None:
    await raises(TypeError, message, *call)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *[
            (translate(request_id=bad), "request_id: must be 1 to 128 letters")
            for bad in ("my id", "\u00fc", "x" * 129, "a\tb")
        ],
        (translate(source="\ud800"), "source: the character at position 0 is not Unicode"),
        (translate(timeout=math.nan), "timeout: must be a number of seconds or None, not nan"),
        (translate(priority=3), "priority must be one of low, normal, high, not 3"),
        (
            translate(return_alignments=True),
            "return_alignments must be one of hard, soft, not True",
        ),
        (searched(length_penalty_kind="square"), "length_penalty_kind must be one of power, gnmt"),
        (translate(max_new_tokens=2**31), "max_new_tokens: 2147483648 is out of range"),
        (searched(target_prefix="a\ud800"), "target_prefix: the character at position 1 is not"),
        (searched(sampling=Sampling(seed=-1)), "seed: -1 is out of range"),
        (searched(sampling=Sampling(seed=2**64)), "seed: 18446744073709551616 is out of range"),
        (both("get_model", "\udfff"), "name: the character at position 0 is not Unicode"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_value_that_no_server_takes_is_named(
    call: tuple[str, Any, Any], message: str
) -> None:
    await raises(ValueError, message, *call)


async def raises(
    kind: type[Exception], message: str, method: str, arguments: Any, named: Any
) -> None:
    """Whether the call raises this at both clients, before anything is sent."""
    with Client(NO_SERVER) as client:
        call = functools.partial(getattr(client, method), *arguments, **named)
        with pytest.raises(kind) as caught:
            list(call())
    assert str(caught.value).startswith(message)
    async with AsyncClient(NO_SERVER) as other:
        result = getattr(other, method)(*arguments, **named)
        with pytest.raises(kind) as caught:
            await (anext(result) if method == "stream" else result)
    assert str(caught.value).startswith(message)


def test_arguments_of_a_client_are_named() -> None:
    wrong: Any
    for wrong, message in (
        ({"server": 3}, "server: must be a str"),
        ({"server": NO_SERVER, "timeout": "3"}, "timeout: must be a number"),
        ({"server": NO_SERVER, "client_id": 7}, "client_id: must be a str"),
    ):
        for kind in (Client, AsyncClient):
            with pytest.raises(TypeError, match=message):
                kind(**wrong)
    for address in ("", "http://127.0.0.1:50051", "127.0.0.1:0", "my host"):
        for kind in (Client, AsyncClient):
            with pytest.raises(ValueError, match="server: must be HOST:PORT"):
                kind(address)
    for bad in ("my id", "\u00fc", "x" * 129, "a\tb"):
        with pytest.raises(ValueError, match="client_id"):
            Client(NO_SERVER, client_id=bad)
    wrong = "abc"
    with pytest.raises(TypeError, match="suppressed_tokens"):
        Search(suppressed_tokens=wrong)
