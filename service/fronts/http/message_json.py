"""Writes messages as JSON; long lists of numbers, such as attention weights, by hand.

Protobuf takes some ten microseconds a number, and attention weights come in millions.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_LARGE_BYTES = 16 * 1024
# Formatted at a time: a few milliseconds, during which no other thread runs.
_CHUNK = 4096

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

Path = tuple[str | int, ...]


def to_json(message: Message) -> str:
    """A message as JSON in one line, without optional fields that are not set."""
    if message.ByteSize() <= _LARGE_BYTES:
        return dumped(_fields(message))
    rest = type(message)()
    rest.CopyFrom(message)
    lists = list(_cut_floats(rest))
    fields = _fields(rest)
    mark = secrets.token_hex(16)  # that no text holds
    for number, (path, _) in enumerate(lists):
        parent = fields
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] = f"{mark}{number}"
    text = dumped(fields, is_large=True)
    return re.sub(f'"{mark}([0-9]+)"', lambda found: lists[int(found[1])][1], text)


def _fields(message: Message) -> Any:
    return json_format.MessageToDict(message, always_print_fields_with_no_presence=True)


def dumped(value: Any, *, is_large: bool = False) -> str:
    """A value as JSON in one line.

    A large one piece by piece, since the library's C would hold Python's lock for all of it.
    """
    return "".join(_ENCODER.iterencode(value)) if is_large else _ENCODER.encode(value)


def _cut_floats(message: Message, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Remove each list of floats; its path in JSON, and its text."""
    for field, value in message.ListFields():
        here = (*path, field.json_name)
        if field.message_type is not None:
            if field.is_repeated:
                for index, each in enumerate(value):
                    yield from _cut_floats(each, (*here, index))
            else:
                yield from _cut_floats(value, here)
        elif field.is_repeated and field.type == FieldDescriptor.TYPE_FLOAT:
            text = _float_list(value)
            if "n" not in text:  # JSON has no inf and nan; protobuf writes them as strings
                message.ClearField(field.name)
                yield here, text


def _float_list(values: Any) -> str:
    """Floats of 32 bits, which nine digits tell apart."""
    pieces = []
    for start in range(0, len(values), _CHUNK):
        chunk = tuple(values[start : start + _CHUNK])
        pieces.append(",".join(["%.9g"] * len(chunk)) % chunk)
    return f"[{','.join(pieces)}]"
