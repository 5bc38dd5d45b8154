"""ONNX Runtime's CUDA provider, on a stand-in for CUDA that computes nothing.

    make test-stand-in

Skipped unless `DRAGOMAN_STAND_IN` names the output of `build.py`. Each test runs a script of this
folder in a process of its own, which has loaded the stand-in in place of CUDA.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stand_in.running import STAND_IN

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents and not STAND_IN:
            item.add_marker(pytest.mark.skip(reason="no stand-in for CUDA: make test-stand-in"))
