"""The vocabulary of a run, which is made again only if its sources have changed."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from model.bundle.tokenizer import TOKENIZER_FILE, Tokenizer, train_tokenizer
from model.data.corpus import ParallelText, interleave
from model.data.differences import first_difference
from model.data.recipe import Recipe

logger = logging.getLogger(__name__)

SOURCE_FILE = "tokenizer.source.json"


def load_vocabulary(
    recipe: Recipe, texts: Collection[ParallelText], *, has_state: bool
) -> Tokenizer:
    """The vocabulary of `init_from`, that of the run's folder, or a new one, kept there.

    A file beside it describes its sources. A run that was killed before it saved a state may go on
    with another recipe or another text, and then the vocabulary must be another one too.

    Args:
        has_state: the run has weights that depend on the vocabulary, whatever it was made from.

    Raises:
        TokenizerError: the vocabulary cannot be trained or read.
    """
    if recipe.optimization.init_from is not None:
        return Tokenizer.load(recipe.optimization.init_from / TOKENIZER_FILE)
    path, source_path = recipe.output / TOKENIZER_FILE, recipe.output / SOURCE_FILE
    if path.exists() and has_state:
        return Tokenizer.load(path)
    options = recipe.vocabulary.model_dump(exclude={"sampling_alpha"})
    source = {"vocabulary": options, "text": describe_text(_sentences(texts))}
    if path.exists():
        changed = first_difference(_read(source_path), source)
        if changed is None:
            return Tokenizer.load(path)
        logger.info("%s is made anew, since it was made from another %s", path, changed)
    logger.info("training a vocabulary of %d pieces", recipe.vocabulary.vocab_size)
    source_path.unlink(missing_ok=True)  # until the vocabulary is the new one
    tokenizer = train_tokenizer(_sentences(texts), path, **options)
    source_path.write_text(json.dumps(source, indent=2) + "\n", encoding="utf-8")
    return tokenizer


def describe_text(sentences: Iterable[str]) -> dict[str, Any]:
    """The number of sentences, and their sha256, a line feed after each."""
    digest, count = hashlib.sha256(), 0
    for sentence in sentences:
        digest.update(sentence.encode() + b"\n")
        count += 1
    return {"sentences": count, "sha256": digest.hexdigest()}


def _sentences(texts: Iterable[ParallelText]) -> Iterator[str]:
    return (sentence for text in texts for sentence in interleave(text))


def _read(path: Path) -> Any:
    """The description that `load_vocabulary` wrote; empty if it can't be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
