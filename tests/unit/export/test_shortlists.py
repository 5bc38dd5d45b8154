"""Shortlists of students' files and of parallel texts."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from bench.random_student import random_student
from export.bundle_writer import ExportOptions
from export.errors import ExportError
from export.importer import import_directory
from export.shortlists import shortlist_from_text, with_shared_pieces
from export.students.lexicon import read_lexicon
from export.students.reader import read_student
from model.bundle.bundle import Bundle
from model.bundle.shortlist import Shortlist, load_shortlist
from tests.factories import tiny_config, tiny_tokenizer
from tests.students import VOCAB_SIZE, lexicon, student_config, write_student

SMALL = dict(d_model=64, ffn_dim=96, num_encoder_layers=1)


LISTS = [[(7 * i) % VOCAB_SIZE, (11 * i + 3) % VOCAB_SIZE] for i in range(VOCAB_SIZE)]


def test_a_lexicon_is_read(tmp_path: Path) -> None:
    (tmp_path / "lex.bin.gz").write_bytes(gzip.compress(lexicon(LISTS)))
    found = read_lexicon(tmp_path / "lex.bin.gz", VOCAB_SIZE, VOCAB_SIZE)
    assert found.target_ids([20]).tolist() == sorted({*range(10), *LISTS[20]})


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (lexicon(LISTS)[:47], "is cut off: it has 47 bytes and no header"),
        (lexicon(LISTS, magic=1), "is no binary shortlist: it begins with 0x1"),
        (lexicon(LISTS[:-1]), "is for another vocabulary: it has 180 offsets, but the 180 source"),
        (lexicon(LISTS, num_offsets=2**60), "is for another vocabulary"),
        (lexicon(LISTS, num_ids=2**60), "is cut off or damaged: its header asks for 4,611,686,018"),
        (lexicon(LISTS, first_num=181), "firstNum is 181, but there are 180 target pieces"),
        (lexicon(LISTS)[:-1], "is cut off or damaged: its header asks for"),
        (lexicon([[VOCAB_SIZE], *LISTS[1:]]), "lists the id 180, but the vocabulary has 180"),
    ],
)
def test_a_damaged_lexicon_is_named(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "lex.bin").write_bytes(content)
    with pytest.raises(ExportError, match=why):
        read_lexicon(tmp_path / "lex.bin", VOCAB_SIZE, VOCAB_SIZE)


def test_a_student_has_its_lexicon(tmp_path: Path) -> None:
    directory = tmp_path / "ende"
    write_student(directory, random_student(student_config("student-tiny", **SMALL)))
    (directory / "lex.50.50.ende.s2t.bin").write_bytes(lexicon(LISTS))
    import_directory(
        directory, tmp_path / "bundle", ExportOptions("int8"), num_sentences=3, threads=1
    )
    bundle = Bundle.load(tmp_path / "bundle")
    found = load_shortlist(bundle)
    assert found is not None
    # The piece itself and </s>, but never <unk>, which is among the first.
    assert found.target_ids([20]).tolist() == sorted({0, *range(2, 10), 20, *LISTS[20]})
    agreement = bundle.manifest["shortlist"]["agreement"]
    assert agreement["num_sentences"] == 3
    assert 0 < agreement["num_listed"] <= agreement["num_tokens"]
    (directory / "lex.other.bin").write_bytes(lexicon(LISTS))
    with pytest.raises(ExportError, match=r"has several shortlists \(lex\.50\.50\.ende"):
        read_student(directory, None)


def test_shared_pieces_of_two_vocabularies() -> None:
    found = with_shared_pieces(Shortlist.of(0, [[1], [], []]), "abc", "xcay", 5)
    assert [found.target_ids([i]).tolist() for i in range(5)] == [[1, 2], [], [1], [], []]


@pytest.mark.parametrize("aligned", [False, True])
def test_a_parallel_text_lists_translations(tmp_path: Path, aligned: bool) -> None:
    """Each sentence has two of some words, whose translations can only be told apart together."""
    tokenizer = tiny_tokenizer(tmp_path)
    words = [("dog", "Hund"), ("woman", "Frau"), ("lake", "See"), ("street", "Straße")]
    chosen = [words[i] + words[j] for i in range(4) for j in range(4)] * 3
    source, target = tmp_path / "train.en", tmp_path / "train.de"
    source.write_text("".join(f"{a} {b}\n" for a, _, b, _ in chosen), encoding="utf-8")
    target.write_text("".join(f"{a} {b}\n" for _, a, _, b in chosen), encoding="utf-8")
    if aligned:
        source.with_suffix(".align").write_text("0-0 1-1\n" * len(chosen))
    config = tiny_config(vocab_size=tokenizer.vocab_size)
    found = shortlist_from_text((source, target), tokenizer, config)
    for word, translation in words:
        listed = found.target_ids(tokenizer.encode(word)).tolist()
        wanted = {*tokenizer.encode(translation), *tokenizer.encode(word)}
        assert wanted - {tokenizer.piece_to_id("\u2581")} <= {*listed}  # a space is frequent
    with_eos = found.target_ids([tokenizer.eos_id]).tolist()
    assert {*tokenizer.encode("Hund")} <= {*with_eos}  # frequent, so listed for every sentence


def test_a_missing_text_is_named(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(tmp_path)
    files = tmp_path / "no.en", tmp_path / "no.de"
    with pytest.raises(ExportError, match=r"--shortlist-from: .*no\.en: No such file"):
        shortlist_from_text(files, tokenizer, tiny_config())
