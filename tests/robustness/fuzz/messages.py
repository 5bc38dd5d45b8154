"""Random messages of a contract, by its descriptors, with ways to break their bytes and JSON."""

from __future__ import annotations

import json
import random
import re
from typing import Any

from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from service.documents.formats import READERS
from tests.robustness.fuzz.mutations import (
    NUMBERS,
    changed_bytes,
    odd_text,
    random_bytes,
    valid_text,
)

_LANGUAGES = ("en", "de", "EN", "en-US", "de_DE", "", "auto", "xx", "fr", "eng", "zh-Hans")
_BY_NAME = {
    "source_language_code": _LANGUAGES,
    "target_language_code": ("de",) * 6 + _LANGUAGES,
    "memory": ("",) * 6 + ("terms", "none"),
    "model": ("",) * 6 + ("en-de", "none", "nmt", "../x"),
    "mime_type": (
        "",
        "text/plain",
        "text/html",
        "text/xml",
        "text/markdown",
        "text/x",
        "image/png",
    ),
    "file_name": (*(f"a{extension}" for extension in READERS), "a.exe", ""),
    "name": ("en-de", "terms", "none", "grpc.health.v1.Health"),
    "parent": ("projects/p", "projects/p/locations/global", "", "x"),
    "service": ("", "dragoman.v1.TranslationService", "none"),
}
_INTEGERS = (0, 0, 1, 2, 3, 4, 5, 8, 16, 32, 64, 100, 1000, -1, 2**31 - 1, -(2**31))
_DOUBLES = (0.0, 0.5, 1.0, 0.9, 2.0, -1.0, 1e308, -1e308, float("nan"), float("inf"), 1e-300)
_FIELD_SHARE = 0.35
# So that most requests get as far as a translation, and that takes little time.
_SHORT = ("A dog.", "She reads.", "Hello!", "Good morning.", "<b>A dog</b> runs.", "")
_MAX_DEPTH = 6


def random_message(rng: random.Random, kind: Descriptor, depth: int = 0) -> Message:
    """A message of a type with some of its fields, mostly with values that make sense."""
    message = message_factory.GetMessageClass(kind)()
    for field in kind.fields:
        is_text = field.name in ("contents", "content", "pairs", "source_text")
        if rng.random() > (0.9 if is_text else _FIELD_SHARE if depth == 0 else 0.2):
            continue
        if field.message_type is not None and depth >= _MAX_DEPTH:
            continue
        _fill(rng, message, field, depth)
    return message


def _fill(rng: random.Random, message: Message, field: FieldDescriptor, depth: int) -> None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return
    if not field.is_repeated:
        if field.message_type is not None:
            inner = random_message(rng, field.message_type, depth + 1)
            getattr(message, field.name).CopyFrom(inner)
        else:
            setattr(message, field.name, _value(rng, field))
        return
    values = getattr(message, field.name)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        if field.message_type is not None:
            values.append(random_message(rng, field.message_type, depth + 1))
        else:
            values.append(_value(rng, field))


def _value(rng: random.Random, field: FieldDescriptor) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return rng.choice((b"A text.", b"", random_bytes(rng)))
        if field.name in _BY_NAME and rng.random() < 0.9:
            return rng.choice(_BY_NAME[field.name])
        return rng.choice(_SHORT) if rng.random() < 0.6 else valid_text(rng, 8)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if field.enum_type is not None:
        return rng.choice([*(value.number for value in field.enum_type.values), 99, -1])
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return rng.choice(_DOUBLES)
    value = rng.choice(_INTEGERS)
    if kind in (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64):
        return abs(value)
    return value


def wire_bytes(rng: random.Random, kind: Descriptor) -> bytes:
    """The bytes of a message: unchanged, changed, with wrong fields, of another type, or random."""
    choice = rng.random()
    if choice < 0.05:
        return random_bytes(rng)
    data: bytes = random_message(rng, kind).SerializeToString()
    if choice < 0.45:
        return data
    if choice < 0.8:
        return changed_bytes(rng, data)
    extra = bytearray()
    for _ in range(rng.choice((1, 1, 2, 5, 50))):
        extra += _field(rng)
    at = rng.choice((0, len(data), rng.randint(0, len(data))))
    return data[:at] + bytes(extra) + data[at:]


def _field(rng: random.Random) -> bytes:
    number = rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 33, 100, 19000, 2**29 - 1, 0))
    wire = rng.choice((0, 1, 2, 2, 2, 3, 4, 5, 6, 7))
    content = random_bytes(rng, 20)
    if wire == 0:
        content = _varint(rng.choice((0, 1, 127, 2**31, 2**63, 2**64 - 1, 2**70)))
    elif wire == 2:
        content = _varint(rng.choice((len(content), 0, 1, 2**31 - 1, 2**63))) + content
    return _varint(number << 3 | wire) + content


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def json_bytes(rng: random.Random, value: Any) -> bytes:
    """The text of a JSON value: unchanged, changed as value or text, deep, long, or random."""
    choice = rng.random()
    if choice < 0.04:
        return random_bytes(rng)
    if choice < 0.08:
        return _flood(rng)
    if choice < 0.5:
        for _ in range(rng.choice((1, 1, 2))):
            value = _changed_value(rng, value)
    data = json.dumps(value, ensure_ascii=rng.random() < 0.3).encode("utf-8", "surrogatepass")
    if choice > 0.75:
        data = changed_bytes(rng, data)
    elif choice > 0.7:
        data = re.sub(
            rb": ?([\"\d])", lambda match: b": " + rng.choice(_ODD_JSON) + match[1], data, count=1
        )
    elif choice > 0.67:
        data = data.decode("utf-8", "replace").encode(rng.choice(("utf-16", "utf-32", "utf-8-sig")))
    return data


_ODD_JSON = (
    b"NaN,",
    b"Infinity,",
    b"1e999,",
    b"-",
    b"0",
    b"[[[[",
    b'"\\ud800",',
    b"null,",
    b"//",
    b"'",
)


def json_of(rng: random.Random, kind: Descriptor) -> Any:
    """A message of a type as a JSON value."""
    return json_format.MessageToDict(
        random_message(rng, kind), preserving_proto_field_name=rng.random() < 0.5
    )


def _changed_value(rng: random.Random, value: Any) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.85:
        name = rng.choice(list(value))
        changed = dict(value)
        kind = rng.random()
        if kind < 0.1:
            del changed[name]
        elif kind < 0.25:
            changed[odd_text(rng, 2)] = _odd_value(rng)
        else:
            changed[name] = _changed_value(rng, value[name])
        return changed
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], _changed_value(rng, value[at]), *value[at + 1 :]]
    return _odd_value(rng)


def _odd_value(rng: random.Random) -> Any:
    if rng.random() < 0.3:
        return odd_text(rng, 3)
    return rng.choice(
        (None, True, False, 0, -1, 1.5, 2**31, 2**63, 2**64, 10**400, 1e308, "", [], {}, [[]],
         [None], {"": ""}, {"a": {"a": {}}}, float("nan"), "1", "true", *NUMBERS)
    )  # fmt: skip


def _flood(rng: random.Random) -> bytes:
    count = rng.choice((33, 1_000, 100_000))
    opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'{"contents":[', b"]}")))
    kind = rng.randrange(4)
    if kind == 0:
        return opening * count
    if kind == 1:
        return opening * count + b"1" + closing * count
    if kind == 2:
        return b'{"contents": [' + b",".join([rng.choice((b'""', b"1", b"{}"))] * count) + b"]}"
    return b'{"contents": "' + rng.choice((b"\\u0000", b"\\ud83d", b"\\n", b"a")) * count + b'"}'
