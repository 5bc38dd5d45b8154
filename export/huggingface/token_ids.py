"""The ids that a tokenizer's files state: of a vocabulary, and of tokens that were added to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from export.errors import ExportError
from export.huggingface.directory import ModelDirectory, parse_json, read_json
from model.bundle.config import LARGEST_SIZES
from model.bundle.languages import is_language_code

_JSON, _CONFIG, _OLD = "tokenizer.json", "tokenizer_config.json", "added_tokens.json"
_SPECIAL_MAP = "special_tokens_map.json"
# Newer versions of `transformers` call it by the second name.
_NAMES = ("additional_special_tokens", "extra_special_tokens")


def read_ids(directory: ModelDirectory, name: str) -> dict[str, int]:
    """The ids of a vocabulary's pieces, from a JSON file.

    Raises:
        ExportError: the file is missing or damaged; names it.
    """
    ids = parse_json(directory.content(name), directory.path / name)
    if any(type(i) is not int or i < 0 for i in ids.values()):
        raise ExportError(f"{directory.path / name} does not give every piece an id")
    check_ids(ids, directory.path / name)
    return ids


def check_ids(ids: Mapping[str, int], file: Path) -> None:
    """Refuse ids beyond the largest vocabulary: a list of pieces would become as long.

    Raises:
        ExportError: one is out of range.
    """
    largest = LARGEST_SIZES["vocab_size"]
    for piece, token_id in ids.items():
        if not 0 <= token_id < largest:
            raise ExportError(
                f"{file}: the id {token_id} of {piece[:64]!r} is not between 0 and {largest - 1}"
            )


def language_names(directory: ModelDirectory) -> list[str] | None:
    """The further special tokens, which are languages, in the order of their ids; None if unnamed.

    Raises:
        ExportError: they are no list, or a file can't be read.
    """
    for file in (directory.tokenizer, _special_map(directory)):
        for name in _NAMES:
            names = file.get(name)
            if names is None or (name == _NAMES[1] and isinstance(names, dict)):
                continue  # between the two names, the second was that of something else
            if not isinstance(names, list):
                raise ExportError(f"{directory.path}: {name} is not a list")
            return list(map(_text, names))
    return None


def added_tokens(directory: ModelDirectory, vocabulary: Mapping[str, int]) -> dict[str, int]:
    """The ids of tokens that were added to a vocabulary: languages and other special tokens.

    Tokens of the vocabulary may be listed too. Files that `transformers` wrote at different times
    have them in different places; the newest counts.

    Raises:
        ExportError: a file is damaged, or a word was added, which texts are not searched for.
    """
    found: dict[str, int] = {}
    is_special: dict[str, bool] = {}
    named = {*(language_names(directory) or ()), *map(_text, _special_map(directory).values())}
    named |= {_text(value) for name, value in directory.tokenizer.items() if "_token" in name}
    for file, tokens in _listed(directory):
        try:
            added = {str(token["content"]): int(token["id"]) for token in tokens}
            flags = {str(t["content"]): bool(t["special"]) for t in tokens if "special" in t}
        except (KeyError, TypeError, ValueError, OverflowError) as exc:
            raise ExportError(f"{file}: added_tokens: {type(exc).__name__}: {exc}") from exc
        check_ids(added, file)
        found, is_special = {**found, **added}, {**is_special, **flags}
        for text in added.keys() - vocabulary.keys() - named:
            if not is_special.get(text, is_language_code(text)):
                raise ExportError(
                    f"{file}: {text[:64]!r} was added to the vocabulary as a word, which is not "
                    f"supported"
                )
    return found


def _listed(directory: ModelDirectory) -> Iterator[tuple[Path, list[Any]]]:
    """The files that list added tokens, from the oldest kind to the newest."""
    old, newest = directory.path / _OLD, directory.path / _JSON
    if old.is_file():
        yield old, [{"content": text, "id": i} for text, i in read_json(old).items()]
    decoder = directory.tokenizer.get("added_tokens_decoder")
    if isinstance(decoder, dict):
        file = directory.path / _CONFIG
        yield file, [{"id": i, **token} for i, token in decoder.items() if isinstance(token, dict)]
    if newest.is_file():
        listed = read_json(newest).get("added_tokens", [])
        yield newest, listed if isinstance(listed, list) else [listed]


def _special_map(directory: ModelDirectory) -> dict[str, Any]:
    file = directory.path / _SPECIAL_MAP
    return read_json(file) if file.is_file() else {}


def _text(token: Any) -> str:
    """A token as text, or as an object with its text."""
    return str(token.get("content", "")) if isinstance(token, dict) else str(token)
