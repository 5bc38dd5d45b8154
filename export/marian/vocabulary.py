"""Marian's vocabularies: the pieces of a SentencePiece model, or lines of a .yml or .json."""

from __future__ import annotations

import json
import re
from pathlib import Path

from export.errors import ExportError
from export.huggingface.directory import read_json, refuse_pointer
from export.huggingface.token_ids import check_ids
from export.huggingface.vocabularies import sentencepiece_pieces

_LINE = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|.+?)\s*:\s+([0-9]+)\s*""", re.DOTALL)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
# YAML 1.2, section 5.7.
_ESCAPES = {
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "t": "\t",
    "n": "\n",
    "v": "\v",
    "f": "\f",
    "r": "\r",
    "e": "\x1b",
    "N": "\u0085",
    "_": "\u00a0",
    "L": "\u2028",
    "P": "\u2029",
}


def read_pieces(file: Path) -> dict[str, int]:
    """The ids of all pieces of a vocabulary.

    Raises:
        ExportError: it can't be read; names the line.
    """
    refuse_pointer(file)
    if file.suffix == ".spm":
        pieces = sentencepiece_pieces(file, file.read_bytes())
        ids = {piece: number for number, piece in enumerate(pieces)}
    else:
        ids = read_json(file) if file.suffix == ".json" else _of_yaml(file)
    if any(type(i) is not int or i < 0 for i in ids.values()):
        raise ExportError(f"{file} does not give every piece an id")
    check_ids(ids, file)
    for piece in ("</s>", "<unk>"):
        if piece not in ids:
            raise ExportError(f"{file} has no {piece!r}")
    return ids


def _of_yaml(file: Path) -> dict[str, int]:
    """Read a vocabulary line by line; only line feeds end a line.

    A YAML parser reads U+0085 as a line break and `null` as no text; here both are pieces.
    """
    try:
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as exc:
        raise ExportError(f"{file} is not UTF-8: {exc}") from exc
    ids: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.removesuffix("\r")
        if not line.strip() or line in ("---", "..."):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise ExportError(f"{file}, line {number}: {line[:80]!r} is not a piece and its id")
        try:
            ids[_unquoted(found[1])] = int(found[2])
        except (KeyError, ValueError) as exc:
            raise ExportError(f"{file}, line {number}: {line[:80]!r} has a bad escape") from exc
    return ids


def _unquoted(text: str) -> str:
    if text[0] == "'" == text[-1] and len(text) > 1:
        return text[1:-1].replace("''", "'")
    if not (text[0] == '"' == text[-1] and len(text) > 1):
        return text
    if "\\u" in text:  # as JSON: a character beyond the first plane is two of these
        try:
            return str(json.loads(text))
        except ValueError:
            pass
    return _ESCAPE.sub(_unescaped, text[1:-1])


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) > 1:
        return chr(int(code[1:], 16))
    return code if code in '"/\\ ' else _ESCAPES[code]
