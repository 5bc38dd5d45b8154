"""What runs apart from `make test`: everything in this folder has the marker `long`."""

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.long)
