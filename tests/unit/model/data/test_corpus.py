"""Parallel text: what is read, what is refused, how it is cut into batches, and mixtures."""

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
    ParallelText,
    concatenated,
    plan_batches,
    read_lines,
    read_parallel,
)
from model.data.mixture import Draws, plan_draws, shares


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


# --- mixtures -------------------------------------------------------------------------------------

sizes = st.lists(st.integers(1, 10_000), min_size=1, max_size=6)


@given(sizes, st.floats(1.0, 20.0))
def test_shares_follow_the_root_of_the_size(sizes: list[int], temperature: float) -> None:
    found = shares(sizes, [1.0] * len(sizes), temperature)
    assert found.sum() == pytest.approx(1.0)
    for size, share in zip(sizes, found, strict=True):
        expected = (size / sizes[0]) ** (1.0 / temperature)
        assert share / found[0] == pytest.approx(expected)


def test_a_weight_multiplies_the_share() -> None:
    assert shares([100, 100], [3.0, 1.0], 2.0).tolist() == pytest.approx([0.75, 0.25])


def test_a_corpus_of_long_lines_gives_fewer_of_them_for_the_same_share_of_the_text() -> None:
    short = ParallelText(["a"] * 40, ["b" * 10] * 40)
    long = ParallelText(["a"] * 10, ["b" * 40] * 10)
    draws = plan_draws([short, long], [1.0, 1.0], temperature=5.0, epoch_pairs=50, seed=1)
    assert draws.shares == pytest.approx([0.5, 0.5])
    assert draws.counts == [40, 10]


def test_the_smallest_corpus_gives_a_pair_to_every_epoch() -> None:
    corpora = [ParallelText(["a"] * n, ["b"] * n) for n in (10_000, 1)]
    draws = plan_draws(corpora, [1.0, 1.0], temperature=1.0, epoch_pairs=20, seed=1)
    assert draws.counts == [20, 1]


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 50)), min_size=1, max_size=4),
    st.integers(0, 5),
)
def test_no_pair_is_drawn_again_before_all_others_of_its_corpus(
    parts: list[tuple[int, int]], seed: int
) -> None:
    draws = Draws([size for size, _ in parts], [count for _, count in parts], [], seed)
    epochs = [draws.epoch(number) for number in range(4)]
    offset = 0
    for size, count in parts:
        seen = np.zeros(size, int)
        for epoch in epochs:
            own = epoch[(epoch >= offset) & (epoch < offset + size)]
            assert len(own) == count
            for index in own:
                seen[index - offset] += 1
                assert seen.max() - seen.min() <= 1
        offset += size


def test_epochs_differ_and_each_is_always_the_same() -> None:
    draws = Draws([100, 50], [20, 70], [], seed=3)
    assert np.array_equal(draws.epoch(5), Draws([100, 50], [20, 70], [], seed=3).epoch(5))
    assert not np.array_equal(draws.epoch(5), draws.epoch(6))
    assert not np.array_equal(draws.epoch(5), Draws([100, 50], [20, 70], [], seed=4).epoch(5))
