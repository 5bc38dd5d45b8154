"""The joint vocabulary: round trips, bytes of last resort, sampling by seed."""

from __future__ import annotations

import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.bundle.tokenizer import Tokenizer, TokenizerError, train_tokenizer

SENTENCES = [
    "A dog is running through the grass.",
    "Ein Hund läuft durch das Gras.",
    "Two children are playing in the water.",
    "Zwei Kinder spielen im Wasser.",
    "The old man reads 12 books a year.",
    "Der alte Mann liest 12 Bücher im Jahr.",
] * 4


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.model"
    return train_tokenizer(iter(SENTENCES), path, vocab_size=320)


def test_special_ids_are_where_the_configuration_expects_them(tokenizer: Tokenizer) -> None:
    ids = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id)
    assert ids == (0, 1, 2, 3)
    assert tokenizer.vocab_size == 320
    assert tokenizer.id_to_piece(4) == "<0x00>"


@pytest.mark.parametrize("text", ["A dog.", "läuft", "日本語", "🙂 ok", "\u0627\u0644", "ǆ"])
def test_decoding_gives_the_normalised_text_back(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == unicodedata.normalize("NFKC", text)


@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc", "Cf"]), max_size=30))
def test_a_second_round_trip_changes_nothing_and_nothing_is_unknown(
    tokenizer: Tokenizer, text: str
) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.unk_id not in ids
    once = tokenizer.decode(ids)
    assert tokenizer.decode(tokenizer.encode(once)) == once


def test_special_tokens_decode_to_nothing(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("A dog.")
    assert tokenizer.decode([2, *ids, 3, 0, 0]) == "A dog."


def test_sampling_depends_on_its_seed_alone_and_keeps_the_text(tokenizer: Tokenizer) -> None:
    texts = [*SENTENCES[:6], ""]
    first = tokenizer.sample_batch(texts, alpha=0.1, seed=1)
    tokenizer.sample_batch(texts, alpha=0.1, seed=9)
    assert tokenizer.sample_batch(texts, alpha=0.1, seed=1) == first
    assert tokenizer.sample_batch(texts, alpha=0.1, seed=2) != first
    assert [tokenizer.decode(ids) for ids in first] == texts


def test_sampling_is_the_same_in_another_process(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(tokenizer.serialized())
    program = (
        "import sys; from pathlib import Path; from model.bundle.tokenizer import Tokenizer\n"
        "print(Tokenizer.load(Path(sys.argv[1])).sample_batch(sys.argv[2:], alpha=0.1, seed=1))"
    )
    command = [sys.executable, "-c", program, str(path), *SENTENCES[:6]]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed.strip() == str(tokenizer.sample_batch(SENTENCES[:6], alpha=0.1, seed=1))


def test_the_batch_form_is_the_single_form(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode_batch(SENTENCES) == [tokenizer.encode(s) for s in SENTENCES]


def test_serialized_bytes_load_again(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "copy.model"
    path.write_bytes(tokenizer.serialized())
    assert Tokenizer.load(path).encode("A dog.") == tokenizer.encode("A dog.")


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"absent\.model: No such file"):
        Tokenizer.load(tmp_path / "absent.model")
    (tmp_path / "bad.model").write_bytes(b"not a model")
    with pytest.raises(TokenizerError, match=r"bad\.model is not a SentencePiece model"):
        Tokenizer.load(tmp_path / "bad.model")


def test_too_large_a_vocabulary_for_the_text_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(
        TokenizerError,
        match=r"9000 pieces \(vocabulary.vocab_size\) on this text: Vocabulary size too",
    ):
        train_tokenizer(iter(SENTENCES), tmp_path / "t.model", vocab_size=9000)
    assert list(tmp_path.iterdir()) == []


def test_sentinels_are_single_pieces(tmp_path: Path) -> None:
    path = tmp_path / "t.model"
    tokenizer = train_tokenizer(iter(SENTENCES), path, vocab_size=323, sentinels=3)
    assert tokenizer.sentinels == ("\ue001", "\ue002", "\ue003")
    text = "A \ue001, \ue003\ue002."
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    for character in tokenizer.sentinels:
        assert ids.count(tokenizer.piece_to_id(character)) == 1


def test_other_vocabularies_have_no_sentinels(tokenizer: Tokenizer) -> None:
    assert tokenizer.sentinels == ()
