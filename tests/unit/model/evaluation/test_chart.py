"""Charts of values that no axis has a place for."""

from __future__ import annotations

import math

import pytest

from model.evaluation.chart import Chart, Series


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_value_that_is_not_finite_is_left_out(value: float) -> None:
    points = [(100.0, 9.0), (300.0, 7.0)]
    with_it = Chart("loss", "updates", "nats", [Series("a", [*points, (200.0, value)])])
    assert with_it.group() == Chart("loss", "updates", "nats", [Series("a", points)]).group()
    assert "No data." in Chart("loss", "updates", "nats", [Series("a", [(1.0, value)])]).render()
