"""Tests that `make test` leaves out: all in this folder get the marker `long`."""

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.long)
