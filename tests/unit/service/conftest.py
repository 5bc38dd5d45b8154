"""A small tokenizer and a small heap for the tests of texts."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from model.bundle.tokenizer import Tokenizer, train_tokenizer

_SENTENCES = (
    "A dog is running across the green field, and nobody stops it.",
    "Two men are playing the guitar in the street; it is 12 o'clock.",
    "Ein Hund rennt über die grüne Wiese, und niemand hält ihn auf.",
    "Zwei Männer spielen auf der Straße Gitarre: es ist schön!",
    "Où est-ce que la petite fille a trouvé ces fleurs-là ?",
    "Где живёт этот человек? Он живёт здесь.",
    "你好，世界。 今天天气很好。",
)


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A vocabulary with byte pieces, and without pieces for some letters of several scripts."""
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    return train_tokenizer(
        iter(_SENTENCES), path, vocab_size=400, kind="bpe", character_coverage=0.98
    )


@pytest.fixture
def few_objects() -> Iterator[None]:
    """Exclude existing objects from the garbage collector, which takes long for all of them."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A named pipe, from which a model's process reads until a test writes."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path
