"""Settings and fixtures of all tests."""

import gc
import logging
import os
from collections.abc import Iterator
from importlib.util import find_spec

import hypothesis
import pytest

from tests.inherited_signals import handle_ignored_signals

handle_ignored_signals()

# onnxruntime reads it when it is imported, so it is set before any test module is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# Tiny models gain nothing from a second thread, and on a busy machine threads that spin for each
# other take minutes. torch reads it when it is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A slow example is a sign of a busy machine, not of a bug.
hypothesis.settings.register_profile("dragoman", deadline=None)
hypothesis.settings.load_profile("dragoman")

# Modules that import torch, onnx or transformers. An environment for changing the server does not
# have them (`make venv-service`).
collect_ignore = (
    []
    if find_spec("torch")
    else [
        "integration/test_engine_on_bundle.py",
        "integration/test_routing.py",
        "unit/service/decoding/test_beams.py",
        "unit/service/decoding/test_constraints.py",
        "unit/service/runtime/test_runner.py",
    ]
)


def pytest_report_header() -> list[str]:
    """Name the modules that are left out."""
    return [f"left out, without torch: {name}" for name in collect_ignore]


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, which is restored afterwards."""
    from service.observability import logs  # some tests run where there is no server

    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    yield logger
    logs.close()
    for handler in logger.handlers[:]:
        if handler not in handlers:
            logger.removeHandler(handler)
    logger.handlers[:] = handlers
    logger.setLevel(level)


@pytest.fixture
def no_collections() -> Iterator[None]:
    """Collect no garbage: that would look at the objects of other tests, for up to 0.7 s."""
    gc.disable()
    yield
    gc.enable()
