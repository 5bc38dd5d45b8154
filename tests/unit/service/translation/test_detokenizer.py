"""Incremental detokenization: joined deltas are the text, and no delta breaks a character."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from model.bundle.tokenizer import Tokenizer
from service.translation.detokenizer import Detokenizer

PORTIONS = st.lists(st.integers(0, 4), max_size=60)


def in_portions(token_ids: list[int], sizes: Iterable[int]) -> list[list[int]]:
    """The ids as they might come: some at a time, sometimes none."""
    portions, start = [], 0
    for size in sizes:
        portions.append(token_ids[start : start + size])
        start += size
    return [*portions, token_ids[start:]]


def deltas(tokenizer: Tokenizer, portions: Iterable[list[int]]) -> list[str]:
    stream = Detokenizer(tokenizer)
    return [*(stream.add(portion) for portion in portions), stream.finish()]


@given(text=st.text(max_size=60), sizes=PORTIONS)
def test_joined_deltas_are_the_decoded_text(
    tokenizer: Tokenizer, text: str, sizes: list[int]
) -> None:
    token_ids = tokenizer.encode(text)
    assert "".join(deltas(tokenizer, in_portions(token_ids, sizes))) == tokenizer.decode(token_ids)


@given(data=st.data(), sizes=PORTIONS)
def test_they_are_for_any_tokens_whatever(
    tokenizer: Tokenizer, data: st.DataObject, sizes: list[int]
) -> None:
    # Bytes and the special ids often: broken UTF-8, and text from ids that are none.
    token_id = st.integers(0, 259) | st.integers(0, tokenizer.vocab_size - 1)
    token_ids = data.draw(st.lists(token_id, max_size=40))
    assert "".join(deltas(tokenizer, in_portions(token_ids, sizes))) == tokenizer.decode(token_ids)


@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\ufffd"), max_size=60))
def test_no_delta_holds_half_a_character(tokenizer: Tokenizer, text: str) -> None:
    token_ids = tokenizer.encode(text)
    for delta in deltas(tokenizer, ([token_id] for token_id in token_ids)):
        assert "\ufffd" not in delta


@given(text=st.text(max_size=60))
def test_nothing_certain_is_held_back(tokenizer: Tokenizer, text: str) -> None:
    token_ids = tokenizer.encode(text)
    stream = Detokenizer(tokenizer)
    so_far = ""
    for number, token_id in enumerate(token_ids, 1):
        so_far += stream.add([token_id])
        if "\ufffd" not in tokenizer.decode(token_ids[:number]):
            assert so_far == tokenizer.decode(token_ids[:number])


def test_padding_between_two_bytes_ends_no_character(tokenizer: Tokenizer) -> None:
    first, second = (tokenizer.piece_to_id(f"<0x{byte:02X}>") for byte in "Ā".encode())
    portions = [[first, tokenizer.pad_id], [second]]
    assert "".join(deltas(tokenizer, portions)) == "Ā"
