"""A tokenizer.json of `transformers`, or the vocab.json and merges.txt from which it makes one."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from export.errors import ExportError
from export.huggingface.directory import ModelDirectory, read_json
from model.bundle.segmenters import plain_tokenizer
from model.bundle.tokenizer import TokenizerError

_FILE = "tokenizer.json"
# Special in every BART, also where no file says so.
_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


@dataclass(frozen=True)
class JsonTokenizerFile:
    """A tokenizer.json.

    Attributes:
        content: the file's bytes, for `model.bundle.segmenters.JsonSegmenter`.
        ids: the token id of each piece.
        special_ids: token ids of the pieces that stand for no text.
    """

    content: bytes
    ids: Mapping[str, int]
    special_ids: Set[int]


def read_json_tokenizer(directory: ModelDirectory) -> JsonTokenizerFile:
    """The tokenizer of a directory without a SentencePiece model.

    Raises:
        ExportError: its files are missing, damaged or of a kind that isn't supported.
    """
    file = directory.path / _FILE
    if file.is_file():
        fields = read_json(file)
    elif (directory.path / "merges.txt").is_file():
        fields = _of_merges(directory)
    else:
        raise ExportError(
            f"{directory.path} has no tokenizer: neither a SentencePiece model, {_FILE}, nor "
            f"vocab.json with merges.txt"
        )
    try:
        content, ids, special_ids = plain_tokenizer(fields)
    except TokenizerError as exc:
        raise ExportError(f"{file}: {exc}") from exc
    special_ids |= {ids[name] for name in _SPECIAL if name in ids}
    for name in _SPECIAL[:4]:
        if name not in ids:
            raise ExportError(f"{directory.path}: the tokenizer has no {name!r}")
    return JsonTokenizerFile(content, ids, special_ids)


def _of_merges(directory: ModelDirectory) -> dict[str, Any]:
    """BART's byte-level BPE, as its tokenizer.json would be."""
    file = directory.file("merges.txt")
    ids = read_json(directory.file("vocab.json"))
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as exc:
        raise ExportError(f"{file}: {exc}") from exc
    merges = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    prefix = bool(directory.tokenizer.get("add_prefix_space", False))
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": prefix,
            "trim_offsets": True,
            "use_regex": True,
        },
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {"type": "BPE", "vocab": ids, "merges": merges},
    }
