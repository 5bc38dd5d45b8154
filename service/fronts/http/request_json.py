"""Parses requests in JSON, with a limit of the number of their values.

As `service.calls.request_parsing` does for the wire format, and for the same reason: small bodies
can hold millions of values.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from service.calls.request_parsing import RequestParser, UndecodableError
from service.errors import InvalidArgumentError

_MAX_DEPTH = 32
# Smaller bodies can't have too many values.
_SMALL_BYTES = 1024
# Of a request without repeated fields, and for each entry that these may have.
_MAX_OTHER_VALUES = 1000
_MAX_VALUES_AN_ENTRY = 8
_MAX_SHOWN = 300
# The escape of half a pair of UTF-16, which is no character without the other half.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# With the alphabet for URLs too, without padding, and in lines.
_BASE64 = re.compile(r"[A-Za-z0-9+/_\r\n-]*+={0,2}\s*+")
# That protobuf's parser raises for some values, apart from its own.
_OTHER_ERRORS = (ValueError, TypeError, AttributeError, OverflowError)
_Scan = Callable[[str, int], Any]
_FAILED = re.compile(r"Failed to parse (\w+) field: ")


class _Decoder(json.JSONDecoder):
    """Reads values one by one in Python, and counts them; strings are read in C.

    The library's own scanner in C would hold Python's lock for the whole body.
    """

    def __init__(self, max_values: int) -> None:
        super().__init__(object_pairs_hook=without_duplicates)
        self._max_values = self._num_left = max_values
        self._depth = 0
        self.parse_object = self._object
        self.parse_array = self._array
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]

    def _object(self, start: Any, strict: bool, scan: _Scan, *others: Any) -> Any:
        with self._within():
            return json.decoder.JSONObject(start, strict, self._counted(scan), *others)  # type: ignore[attr-defined]

    def _array(self, start: Any, scan: _Scan) -> Any:
        with self._within():
            return json.decoder.JSONArray(start, self._counted(scan))  # type: ignore[attr-defined]

    @contextlib.contextmanager
    def _within(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise InvalidArgumentError("body", f"nested deeper than {_MAX_DEPTH} levels")
        yield
        self._depth -= 1

    def _counted(self, scan: _Scan) -> _Scan:
        def counted(text: str, position: int) -> Any:
            self._num_left -= 1
            if self._num_left < 0:
                raise InvalidArgumentError("body", f"more than {self._max_values:,} values")
            return scan(text, position)

        return counted


class JsonRequestParser:
    """Parses JSON requests of one service.

    Attributes:
        max_values: most values in one request.
    """

    def __init__(self, parser: RequestParser) -> None:
        self._parser = parser
        entries = sum(parser.max_entries.values())
        self.max_values = _MAX_OTHER_VALUES + _MAX_VALUES_AN_ENTRY * entries

    def parse(self, method: str, data: bytes) -> Message:
        """The request of `method` that `data` holds, as JSON in UTF-8; empty is `{}`.

        Raises:
            UndecodableError: `data` is not JSON.
            InvalidArgumentError: a field is unknown, given twice or of a wrong type, or has too
                many entries; names the field.
        """
        fields = self.load(data)
        message = self._parser.new(method)
        if not isinstance(fields, dict):
            raise UndecodableError("body", f"must be a JSON object, not {_kind(fields)}")
        self._check_fields(fields, message.DESCRIPTOR, "")
        fill(message, fields)
        return message

    def load(self, data: bytes) -> Any:
        """Parse JSON in UTF-8; an empty body is `{}`.

        Raises:
            UndecodableError: `data` is not JSON.
            InvalidArgumentError: it has too many values, or strings that are not Unicode.
        """
        fields = self._loaded(data) if data.strip() else {}
        if _SURROGATE.search(data):
            _check_unicode(fields, "")
        return fields

    def _loaded(self, data: bytes) -> Any:
        try:
            # Decoded here: from bytes, `json` would take UTF-16 and UTF-32 too.
            text = data.decode("utf-8-sig")
            if len(data) <= _SMALL_BYTES and text.count("[") + text.count("{") <= _MAX_DEPTH:
                return json.loads(text, object_pairs_hook=without_duplicates)
            return _Decoder(self.max_values).decode(text)
        except UnicodeDecodeError as exc:
            raise UndecodableError("body", f"not UTF-8: {exc.reason} at byte {exc.start}") from exc
        except ValueError as exc:
            raise UndecodableError("body", f"not JSON: {exc}"[:_MAX_SHOWN]) from exc

    def _check_fields(self, fields: dict[str, Any], kind: Any, prefix: str) -> None:
        """Refuse unknown fields and long lists, by name."""
        by_name = {name: field for field in kind.fields for name in (field.name, field.json_name)}
        for name, value in fields.items():
            field = by_name.get(name)
            path = prefix + _shown(name)
            if field is None:
                known = ", ".join(sorted(each.name for each in kind.fields))
                raise InvalidArgumentError(path, f"no such field in {kind.name}, which has {known}")
            if isinstance(value, list):
                self._check_list(field, value, path)
            elif field.is_repeated and value is not None:
                raise InvalidArgumentError(path, f"must be a list, not {_kind(value)}")
            elif isinstance(value, dict) and field.message_type is not None:
                self._check_fields(value, field.message_type, f"{path}.")
            elif isinstance(value, str) and field.type == FieldDescriptor.TYPE_BYTES:
                _check_base64(value, path)

    def _check_list(self, field: FieldDescriptor, values: list[Any], path: str) -> None:
        limit = self._parser.max_entries.get(field.name)
        if limit is not None and len(values) > limit:
            raise InvalidArgumentError(path, f"{len(values):,} is more than {limit:,}, the limit")
        if field.message_type is not None:
            for index, value in enumerate(values):
                if isinstance(value, dict):
                    self._check_fields(value, field.message_type, f"{path}[{index}].")


def fill(message: Message, fields: dict[str, Any]) -> None:
    """Set the fields of a message. Raises InvalidArgumentError, which names the field."""
    try:
        json_format.ParseDict(fields, message)
    except (json_format.ParseError, *_OTHER_ERRORS) as exc:
        raise _bad_field(str(exc)) from exc


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Raises InvalidArgumentError for the first name that is there twice."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise InvalidArgumentError(_shown(name), "given twice")
            seen.add(name)
    return fields


def _check_base64(text: str, path: str) -> None:
    """Refuse other characters, which protobuf would leave out."""
    found = _BASE64.match(text)
    assert found is not None, "the pattern matches nothing as well"
    if found.end() < len(text):
        raise InvalidArgumentError(path, f"not base64: {text[found.end()]!r} at {found.end():,}")


def _check_unicode(value: Any, path: str) -> None:
    """Refuse strings and names that can't be written in UTF-8, which messages can't hold."""
    if isinstance(value, dict):
        for name, inner in value.items():
            inner_path = f"{path}.{_shown(name)}".removeprefix(".")
            _check_unicode(name, inner_path)
            _check_unicode(inner, inner_path)
    elif isinstance(value, list):
        for inner in value:
            _check_unicode(inner, path)
    elif isinstance(value, str) and not _is_unicode(value):
        raise InvalidArgumentError(path or "body", "has half of a surrogate pair")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(name: str) -> str:
    """A name for an error."""
    return name[:_MAX_SHOWN].encode(errors="backslashreplace").decode() or '""'


def _bad_field(message: str) -> InvalidArgumentError:
    """The error of protobuf's parser, with the field that it names."""
    field = ".".join(_FAILED.findall(message)) or "body"
    problem = _FAILED.sub("", message).split("\n")[0].removesuffix("...").removesuffix(".")
    return InvalidArgumentError(field, problem[:_MAX_SHOWN])


def _kind(value: Any) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "true or false",
        type(None): "null",
    }
    return names.get(type(value), "a number")
