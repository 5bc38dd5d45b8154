"""A corpus for tests of training."""

from pathlib import Path

import pytest

from tests.unit.model.training.tiny_training import write_corpus


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder with texts for training and for validation."""
    write_corpus(tmp_path, "train", 60, seed=1)
    write_corpus(tmp_path, "valid", 8, seed=2)
    return tmp_path
