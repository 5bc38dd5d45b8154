"""Parses requests, after a check of the number of their fields.

An empty entry of a repeated field takes two bytes on the wire and some sixty once it is parsed: a
message of a few megabytes can become half a gigabyte, and block the event loop for seconds. So the
entries of a large message are counted on the wire before it is parsed, up to the first one beyond
the limit. Protobuf's parser holds Python's global lock: parsing in a thread would block the event
loop just as long.

Wire format: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message

from service.errors import InvalidArgumentError

SMALL_BYTES = 16 * 1024
"""Messages up to this size are parsed without a check: they become half a megabyte at most."""
# The limit of other fields (options, languages, those of newer clients), and its increase for each
# entry, which may be a message itself.
_MAX_OTHER_FIELDS = 1000
_MAX_FIELDS_AN_ENTRY = 4
_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}


class UndecodableError(InvalidArgumentError):
    """The bytes of the request are not a message of the method's type."""


class RequestParser:
    """Parses the requests of one service.

    Args:
        service: full name of the service; its contract must be imported.
        max_entries: limits of repeated fields in one request, by field name.
        pool: descriptor pool with the contract; by default, the pool of the generated stubs.
    """

    def __init__(
        self,
        service: str,
        max_entries: Mapping[str, int],
        pool: descriptor_pool.DescriptorPool | None = None,
    ) -> None:
        self.service = service
        self.max_entries = max_entries
        contract: ServiceDescriptor = (pool or descriptor_pool.Default()).FindServiceByName(service)
        self._types = {method.name: method.input_type for method in contract.methods}
        self._classes = {
            name: message_factory.GetMessageClass(kind) for name, kind in self._types.items()
        }

    def parse(self, method: str, data: bytes) -> Message:
        """The request of `method` that `data` holds.

        Raises:
            UndecodableError: `data` is not such a request.
            InvalidArgumentError: too many entries; names the field and the limit.
        """
        if len(data) > SMALL_BYTES:
            self._check_entries(data, self._types[method])
        try:
            return self._classes[method].FromString(data)
        except DecodeError as exc:
            raise _undecodable(self._types[method]) from exc

    def new(self, method: str, **fields: str) -> Message:
        """A request of `method` with some fields set."""
        return self._classes[method](**fields)

    def _check_entries(self, data: bytes, kind: Descriptor) -> None:
        counts: Counter[str] = Counter()
        most_others = _MAX_OTHER_FIELDS
        for path, name in _fields(data, 0, len(data), kind, ""):
            limit = self.max_entries.get(name)
            counts[path if limit else ""] += 1
            if not limit:
                if counts[""] > most_others:
                    raise InvalidArgumentError("request", f"more than {most_others:,} fields")
                continue
            most_others += _MAX_FIELDS_AN_ENTRY
            if counts[path] > limit:
                raise InvalidArgumentError(path, f"more than {limit:,}, the limit")


def _undecodable(kind: Descriptor) -> UndecodableError:
    return UndecodableError(
        "request", f"not a {kind.full_name}: bad wire format, or a string that is not UTF-8"
    )


def _fields(
    data: bytes, start: int, stop: int, kind: Descriptor, prefix: str
) -> Iterator[tuple[str, str]]:
    """Path and name of each field in `data`, nested ones included; "" if unknown.

    Raises:
        UndecodableError: `data` is not such a message.
    """
    position = start
    while position < stop:
        tag, position = _varint(data, position, stop, kind)
        wire_type = tag & 7
        field = kind.fields_by_number.get(tag >> 3)
        name = field.name if field is not None else ""
        yield prefix + name, name
        if wire_type == _LENGTH_DELIMITED:
            size, position = _varint(data, position, stop, kind)
            end = position + size
            if field is not None and field.message_type is not None and end <= stop:
                yield from _fields(data, position, end, field.message_type, f"{prefix}{name}.")
            position = end
        elif wire_type == _VARINT:
            _, position = _varint(data, position, stop, kind)
        elif wire_type in _FIXED_SIZES:
            position += _FIXED_SIZES[wire_type]
        else:  # a group, which the contract has none of, or undefined
            raise _undecodable(kind)
    if position != stop:
        raise _undecodable(kind)


def _varint(data: bytes, position: int, stop: int, kind: Descriptor) -> tuple[int, int]:
    """The number at `position`, and the position after it."""
    number = shift = 0
    while position < stop and shift < 70:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
    raise _undecodable(kind)
