"""Rows of 8-bit integers."""

from __future__ import annotations

import numpy as np

from export.int8_arithmetic import quantize_rows


def test_every_number_is_within_half_a_step() -> None:
    matrix = np.random.default_rng(0).standard_normal((40, 70)).astype(np.float32)
    matrix *= np.logspace(-6, 6, 40, dtype=np.float32)[:, None]  # rows of very different size
    values, scales = quantize_rows(matrix)
    error = np.abs(values * scales[:, None].astype(np.float64) - matrix)
    assert values.dtype == np.int8
    assert scales.dtype == np.float32
    assert (error <= 0.5001 * scales[:, None]).all()


def test_the_range_is_used_and_symmetric() -> None:
    matrix = np.random.default_rng(1).standard_normal((40, 70)).astype(np.float32)
    values, scales = quantize_rows(matrix)
    negated, same = quantize_rows(-matrix)
    assert (np.abs(values.astype(int)).max(axis=1) == 127).all()
    assert (negated == -values).all()
    assert (same == scales).all()


def test_a_row_of_zeros_stays_zero() -> None:
    values, scales = quantize_rows(np.zeros((2, 3), np.float32))
    assert not values.any()
    assert np.isfinite(scales).all()
