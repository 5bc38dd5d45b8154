"""How much work a text makes, and where it is done."""

import asyncio
import threading
import unicodedata
from pathlib import Path

import pytest

from model.bundle.tokenizer import Tokenizer
from service.common.fairness import works_for
from service.translation.options import normalised_length
from service.translation.preparation import PreparedText, TextPreparer
from tests.factories import tiny_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A dog.",
        "äöü",
        "\ufdfa" * 10,
        "\u3300株式会社㍿",
        "한국어",
        "ﬁnd ½ Ⅷ ①",
        "e\u0301\u0323",
    ],
)
def test_the_normalised_length_is_never_less_than_the_text_s(text: str) -> None:
    assert normalised_length(text) >= len(unicodedata.normalize("NFKC", text))
    assert normalised_length(text) <= 18 * len(text)


def test_a_run_of_marks_that_have_to_be_sorted_is_counted() -> None:
    assert normalised_length("\u0301\u0316" * 50_000) == 100_000


class Recorder(Tokenizer):
    """Asks, at every call, whether the event loop is running in its thread."""

    def __init__(self, model: bytes) -> None:
        super().__init__(model)
        self.on_loop: set[bool] = set()

    def encode(self, text: str) -> list[int]:
        """As the tokenizer does it."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self.on_loop.add(False)
        else:
            self.on_loop.add(True)
        return super().encode(text)


@pytest.mark.parametrize(
    ("texts", "on_loop"),
    [
        (["A dog."], True),
        (["Zwei Männer spielen Gitarre."], True),
        (["A dog is running. " * 100], True),
        (["A dog is running. " * 200], False),
        (["A dog is running."] * 300, True),
        (["\ufdfa" * 300 + " A"], False),
        (["漢字" * 500, "A dog."], False),
    ],
)
async def test_only_what_is_quick_is_done_on_the_event_loop(
    tmp_path: Path, texts: list[str], on_loop: bool
) -> None:
    tiny_tokenizer(tmp_path)
    recorder = Recorder((tmp_path / "tokenizer.model").read_bytes())
    preparer = TextPreparer(recorder, "en", 64)
    prepared = [item async for item in preparer.prepare_all(texts, split_sentences=True)]
    assert len(prepared) == len(texts)
    assert recorder.on_loop == {on_loop}


async def test_what_is_kept_is_one_piece_and_nothing_is_lost(tokenizer: Tokenizer) -> None:
    preparer = TextPreparer(tokenizer, "en", 64)
    for text, num_pieces in [
        ("-\n" * 20_000, 1),
        ("...\n-\nA dog.\n...\n\n!\n A cat.\n", 5),
        ("A dog. A cat.", 2),
        ("", 0),
        (" \n ", 1),
    ]:
        prepared = await preparer.prepare_one(text, split_sentences=True)
        assert isinstance(prepared, PreparedText)
        assert "".join(piece.separator + piece.text for piece in prepared.sentences) == text
        assert len(prepared.sentences) == num_pieces


class Held(Tokenizer):
    """Waits for `release` and notes whose texts it is given: the first word says."""

    def __init__(self, model: bytes) -> None:
        super().__init__(model)
        self.is_held = threading.Event()
        self.release = threading.Event()
        self.order: list[str] = []

    def encode(self, text: str) -> list[int]:
        """As the tokenizer does it."""
        self.order.append(text.split()[0])
        self.is_held.set()
        self.release.wait()
        return super().encode(text)


async def test_clients_take_turns_in_the_thread(tmp_path: Path) -> None:
    tiny_tokenizer(tmp_path)
    held = Held((tmp_path / "tokenizer.model").read_bytes())
    preparer = TextPreparer(held, "en", 100_000)

    def begin(client: str, *names: str) -> list[asyncio.Future[PreparedText]]:
        works_for(client)
        texts = [f"{name} {'A dog is running. ' * 300}" for name in names]
        return [
            asyncio.ensure_future(preparer.prepare_one(text, split_sentences=False))
            for text in texts
        ]

    many = begin("many", "many-0", "many-1", "many-2", "many-3", "many-4")
    try:
        await asyncio.to_thread(held.is_held.wait)
        others = [*begin("some", "some-0", "some-1"), *begin("one", "one-0")]
        gone = many.pop(2)
        gone.cancel()
        await asyncio.sleep(0)  # all have come, and one has gone
    finally:
        held.release.set()
    await asyncio.gather(*many, *others)
    order = ["many-0", "many-1", "some-0", "one-0", "some-1", "many-3", "many-4"]
    assert held.order == order
