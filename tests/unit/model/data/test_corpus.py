"""Parallel text: what is read, what is refused, and how it is cut into batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.bundle.padding import pad_right
from model.data.corpus import (
    CorpusError,
    EncodedText,
    concatenated,
    plan_batches,
    read_lines,
    read_parallel,
)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_pairs_are_read_in_order(tmp_path: Path) -> None:
    source = write(tmp_path / "a.en", b"one\ntwo\n")
    target = write(tmp_path / "a.de", "eins\nzw\u00f6lf".encode())
    text = read_parallel(source, target)
    assert list(zip(text.sources, text.targets, strict=True)) == [("one", "eins"), ("two", "zwölf")]
    assert text.skipped == []


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "one\u2028still one\r\ntwo\x0bstill two\n".encode())
    assert read_lines(path) == ["one\u2028still one", "two\x0bstill two"]


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a", b"\xef\xbb\xbfone\ntwo\n")
    assert read_lines(path) == ["one", "two"]


def test_unequal_line_counts_are_refused_with_both_files_and_the_line(tmp_path: Path) -> None:
    source = write(tmp_path / "a.en", b"one\ntwo\nthree\n")
    target = write(tmp_path / "a.de", b"eins\nzwei\n")
    with pytest.raises(CorpusError, match=r"a\.en has 3 lines but .*a\.de has 2; line 3"):
        read_parallel(source, target)


def test_bad_utf8_is_refused_with_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.en", b"one\ntw\xffo\n")
    with pytest.raises(CorpusError, match=r"a\.en:2: not UTF-8 \(byte 0xff at column 3\)"):
        read_lines(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"absent\.en: No such file"):
        read_lines(tmp_path / "absent.en")


def test_empty_lines_are_left_out_and_reported_with_file_and_line(tmp_path: Path) -> None:
    source = write(tmp_path / "a.en", b"one\n \nthree\n")
    target = write(tmp_path / "a.de", b"\nzwei\ndrei\n")
    text = read_parallel(source, target)
    assert (list(text.sources), list(text.targets)) == (["three"], ["drei"])
    assert text.skipped == [f"{target}:1: empty line", f"{source}:2: empty line"]


def test_a_corpus_of_empty_lines_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "a.en", b"\n\n")
    with pytest.raises(CorpusError, match="no sentence pair"):
        read_parallel(source, source)


LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=60)


@given(LENGTHS, st.integers(1, 120), st.none() | st.integers(0, 5))
def test_batches_hold_every_pair_once_and_keep_the_budget(
    pairs: list[tuple[int, int]], budget: int, seed: int | None
) -> None:
    lengths = np.array(pairs, np.int64)
    generator = None if seed is None else np.random.default_rng(seed)
    batches = plan_batches(lengths, budget, generator)
    assert sorted(i for batch in batches for i in batch) == list(range(len(pairs)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= budget


@given(LENGTHS)
def test_the_same_seed_gives_the_same_batches(pairs: list[tuple[int, int]]) -> None:
    lengths = np.array(pairs, np.int64)
    first, second = (
        [b.tolist() for b in plan_batches(lengths, 64, np.random.default_rng(7))] for _ in range(2)
    )
    assert first == second


def test_a_batch_frames_and_pads_its_pairs() -> None:
    text = EncodedText([[10], [11, 12]], [[20, 21], [22]])
    batch = text.batch(np.array([0, 1]), pad_id=0, bos_id=2, eos_id=3)
    assert batch.source_ids.tolist() == [[10, 3, 0], [11, 12, 3]]
    assert batch.target_ids.tolist() == [[2, 20, 21, 3], [2, 22, 3, 0]]
    assert batch.num_target_tokens(0) == 5


def test_long_pairs_are_counted_out() -> None:
    text = EncodedText([[1] * 5, [1]], [[1], [1]])
    assert text.not_longer_than(5).tolist() == [1]
    assert text.at(text.not_longer_than(5)).sources == [[1]]


def test_padding_stands_on_the_right() -> None:
    assert pad_right([[1, 2], [3]], 9).tolist() == [[1, 2], [3, 9]]


def test_alignments_stay_beside_their_pairs(tmp_path: Path) -> None:
    source, target, links = (tmp_path / name for name in ("a.en", "a.de", "a.align"))
    source.write_text("a\n\nb c\n")
    target.write_text("x\ny\nz\n")
    links.write_text("0-0\n\n1-0\n")
    text = read_parallel(source, target, alignment=links)
    assert list(text.alignments) == ["0-0", "1-0"]
    both = concatenated([text, text])
    assert both.at(np.array([3, 0])).alignments == ["1-0", "0-0"]
    links.write_text("0-0\n")
    with pytest.raises(CorpusError, match=r"a\.align has 1 lines but .* has 3; align the words"):
        read_parallel(source, target, alignment=links)
