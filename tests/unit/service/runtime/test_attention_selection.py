"""How many weights a selection returns, and how many are computed for it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.attention import (
    MAX_COMPUTED,
    MAX_TOKENS,
    AttentionKind,
    AttentionSelection,
    AttentionShape,
)
from service.errors import FailedPreconditionError, InvalidArgumentError
from service.translation.attention import AttentionOptions, check_weights

SHAPES = st.builds(
    AttentionShape,
    num_encoder_layers=st.integers(1, 4),
    num_decoder_layers=st.integers(1, 4),
    num_heads=st.integers(1, 4),
    bos_id=st.just(2),
    encoder_rank=st.sampled_from([0, 3]),
    cross_rank=st.sampled_from([0, 3]),
)


@st.composite
def selections(draw: st.DrawFn) -> tuple[AttentionShape, AttentionSelection]:
    """Some layers and heads of a model, of some kinds."""
    shape = draw(SHAPES)
    kinds = draw(st.lists(st.sampled_from(AttentionKind), min_size=1, unique=True))
    some = {kind: draw(subset(shape.num_layers(kind))) for kind in kinds}
    heads = draw(subset(shape.num_heads))
    averages = draw(st.booleans()), draw(st.booleans())
    return shape, AttentionSelection(tuple(some.items()), heads, *averages)


def subset(count: int) -> st.SearchStrategy[tuple[int, ...]]:
    """At least one of the first so many numbers."""
    return st.lists(st.integers(0, count - 1), min_size=1, unique=True).map(tuple)


@given(selections(), st.integers(1, 6), st.integers(1, 6))
def test_what_is_counted_is_what_is_there(
    selected: tuple[AttentionShape, AttentionSelection], num_source: int, num_target: int
) -> None:
    shape, selection = selected
    arrays = []
    for kind, layers in selection.kinds:
        rows = num_source if kind is AttentionKind.ENCODER_SELF else num_target
        columns = shape.num_weights(kind, num_source, num_target) // rows
        arrays += [np.zeros((len(selection.heads), rows, columns), np.float32) for _ in layers]
    matrices = selection.reduced(arrays)
    assert len(matrices) == len(selection.labels())
    counted = selection.num_weights(shape, num_source, num_target)
    assert counted == sum(matrix.size for matrix in matrices)
    # Every head of every attention is computed, also for one head of another.
    work = shape.num_heads * max(
        num_source * (shape.encoder_rank or num_source),
        num_target * (shape.cross_rank or num_source),
        num_target**2,
    )
    computed = selection.num_computed(shape, num_source, num_target)
    assert computed == work + sum(array.size for array in arrays)


def test_the_work_of_one_small_attention_is_limited_too() -> None:
    shape = AttentionShape(2, 2, num_heads=16, bos_id=2)
    one = AttentionSelection(((AttentionKind.CROSS, (0,)),), heads=(0,))
    check_weights(one, shape, 512, 512)
    with pytest.raises(InvalidArgumentError, match=r"^options: 16,778,240 weights .* 16,777,216: "):
        check_weights(one, shape, MAX_TOKENS, 1)


def test_averages_are_of_as_many_weights_as_are_computed() -> None:
    shape = AttentionShape(6, 6, num_heads=8, bos_id=2)
    layers, heads = tuple(range(6)), tuple(range(8))
    mean = AttentionSelection(((AttentionKind.CROSS, layers),), heads, True, True)
    check_weights(mean, shape, 512, 512)  # 48 matrices of 512 x 512 are more than are returned
    with pytest.raises(InvalidArgumentError, match="before averages; the limit is 16,777,216: "):
        check_weights(mean, shape, MAX_TOKENS, MAX_TOKENS)
    one = AttentionSelection(((AttentionKind.CROSS, (5,)),), heads, True, True)
    check_weights(one, shape, MAX_TOKENS, MAX_TOKENS)


def test_the_memory_bound_grows_with_heads_and_lengths_up_to_the_limit() -> None:
    def peak(num_heads: int, length: int) -> int:
        return AttentionShape(2, 2, num_heads, bos_id=2).peak_bytes(length, length)

    assert peak(4, 100) < peak(8, 100) < peak(8, 200) < peak(8, 4000)
    assert peak(4, 100) > 4 * 6 * 4 * 100**2  # all that may be selected, in float32
    assert peak(8, 4000) == peak(8, MAX_TOKENS)
    assert peak(64, 4000) == peak(32, 4000) == 32 * MAX_COMPUTED


def test_a_recurrent_decoder_has_no_self_attention_to_show() -> None:
    shape = AttentionShape(2, 2, 4, 2, is_recurrent=True)
    options = AttentionOptions((AttentionKind.CROSS, AttentionKind.DECODER_SELF))
    with pytest.raises(FailedPreconditionError, match=r'"ssru".*DECODER_SELF'):
        options.selection(shape)
    assert AttentionOptions((AttentionKind.CROSS,)).selection(shape).kinds
    assert shape.num_layers(AttentionKind.DECODER_SELF) == 0
