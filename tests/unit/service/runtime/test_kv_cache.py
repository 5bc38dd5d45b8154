"""The cache arrays: sizes, encoded sources, copies that cross each other."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from service.domain.plan import EncodedSource, RowCopy
from service.runtime.cpu.kv_cache import CacheShape, KVCache

SHAPE = CacheShape(num_layers=2, num_heads=2, head_dim=8, max_rows=6, max_source=10, max_target=12)


@pytest.fixture
def cache() -> KVCache:
    """Every row's every number is different."""
    cache = KVCache(SHAPE)
    generator = np.random.default_rng(0)
    for array in (*cache.self_attention, *cache.cross_attention, *cache.cross_last):
        array[:] = generator.standard_normal(array.shape)
    cache.source_lengths[:] = [3, 10, 1, 7, 5, 2]
    return cache


@pytest.mark.parametrize(
    ("dtype", "cached"), [("float32", "float32"), ("float16", "float16"), ("float32", "int8")]
)
def test_size_is_known_before(dtype: str, cached: str) -> None:
    shape = CacheShape(
        3, 2, 8, max_rows=5, max_source=7, max_target=9, dtype=dtype, cache_dtype=cached
    )
    cache = KVCache(shape)
    keys_values = [*cache.self_attention, *cache.cross_attention]
    arrays = [*keys_values, *cache.cross_last]
    assert shape.num_bytes == sum(array.nbytes for array in (*arrays, cache.source_lengths))
    assert all(array.dtype == cached and not array.any() for array in keys_values)
    assert all(array.dtype == dtype and not array.any() for array in cache.cross_last)


def test_a_source_fills_its_rows_and_leaves_padding_out(cache: KVCache) -> None:
    before = [array.copy() for array in cache.cross_attention]
    encoded = [np.full((3, 2, 9, 8), i, np.float32) for i in range(4)]
    for i, array in enumerate(encoded):
        array[1, :, 3] = 100 + i  # the last of 4 tokens
    cache.write_source((0, 4), EncodedSource(encoded, 1), length=4)
    for i in range(4):
        for row in (0, 4):
            assert (cache.cross_attention[i][row, :, :4] == encoded[i][1, :, :4]).all()
            assert (cache.cross_attention[i][row, :, 4:] == before[i][row, :, 4:]).all()
            assert (cache.cross_last[i][row] == 100 + i).all()
        for row in (1, 2, 3, 5):
            assert (cache.cross_attention[i][row] == before[i][row]).all()
    assert cache.source_lengths.tolist() == [4, 10, 1, 7, 4, 2]


@pytest.mark.parametrize(
    "copies",
    [
        [RowCopy(0, 1, 2, 6), RowCopy(1, 0, 2, 6), RowCopy(3, 4, 0, 9), RowCopy(4, 5, 1, 3)],
        [RowCopy(0, 1, 2, 6, cross=False), RowCopy(0, 4, 1, 9, cross=False), RowCopy(3, 2, 0, 5)],
    ],
    ids=["swap and chain", "nothing read is written"],
)
def test_copies_happen_as_if_all_at_once(cache: KVCache, copies: list[RowCopy]) -> None:
    before = [array.copy() for array in cache.self_attention]
    cache.copy_rows(copies)
    for array, old in zip(cache.self_attention, before, strict=True):
        expected = old.copy()
        for copy in copies:
            span = slice(copy.start, copy.stop)
            expected[copy.target, :, span] = old[copy.source, :, span]
        assert (array == expected).all()


def test_cross_attention_follows_only_where_asked(cache: KVCache) -> None:
    before = [array.copy() for array in cache.cross_attention]
    last = [array.copy() for array in cache.cross_last]
    copies = [RowCopy(0, 1, 0, 0), RowCopy(1, 2, 0, 0), RowCopy(3, 4, 0, 5, cross=False)]
    cache.copy_rows(copies)
    assert cache.source_lengths.tolist() == [3, 3, 10, 7, 5, 2]
    for array, old in zip(cache.cross_attention, before, strict=True):
        assert (array[1, :, :3] == old[0, :, :3]).all()
        assert (array[2] == old[1]).all()
        assert (array[[0, 3, 4, 5]] == old[[0, 3, 4, 5]]).all()
    for array, old in zip(cache.cross_last, last, strict=True):
        assert (array == old[[0, 0, 1, 3, 4, 5]]).all()


def test_states_of_a_recurrent_decoder_begin_at_zero_and_move_whole() -> None:
    shape = dataclasses.replace(SHAPE, is_recurrent=True)
    cache = KVCache(shape)
    arrays = [*cache.states, *cache.cross_attention, *cache.cross_last]
    assert shape.num_bytes == sum(array.nbytes for array in (*arrays, cache.source_lengths))
    assert not cache.self_attention
    assert list(cache.past) == ["state_0", "state_1"]
    for layer, state in enumerate(cache.states):
        state[:] = np.arange(6)[:, None] + 10 * layer + 1
    cache.copy_rows([RowCopy(0, 1, 7, 8), RowCopy(1, 0, 2, 6, cross=False), RowCopy(3, 4, 0, 9)])
    for layer, state in enumerate(cache.states):
        assert state[:, -1].tolist() == [n + 10 * layer + 1 for n in (1, 0, 2, 3, 3, 5)]
    encoded = [np.ones((1, 2, 4, 8), np.float32) for _ in range(4)]
    cache.write_source((1, 5), EncodedSource(encoded, 0), length=4)
    assert all(not state[[1, 5]].any() and state[[0, 2, 3, 4]].all() for state in cache.states)
