"""Parameters and files of a body in `multipart/form-data` (RFC 7578)."""

from __future__ import annotations

import logging

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from service.errors import InvalidArgumentError
from service.fronts.http.fields import Fields, NamedFile

MULTIPART = "multipart/form-data"
_MAX_PARTS = 1_000
_MAX_HEADERS = 8
_MAX_HEADER_BYTES = 2048
_DISPOSITION = "content-disposition"

# As for uvicorn, bad requests are the client's fault, and logging each would fill the log.
logging.getLogger("python_multipart").setLevel(logging.ERROR)


def parse_multipart(data: bytes, content_type: str) -> Fields:
    """The parameters and files of a body.

    Takes some hundredths of a second for ten megabytes: to be called in a thread.

    Raises:
        InvalidArgumentError: it is no such body, is cut off, is not in UTF-8 (files can be
            anything), or has more than 1,000 parts or too many headers.
    """
    boundary = parse_options_header(content_type)[1].get(b"boundary", b"")
    if not boundary:
        raise InvalidArgumentError("content-type", "has no boundary")
    parts = _Parts()
    try:
        parser = MultipartParser(
            boundary,
            {
                "on_part_begin": parts.begin,
                "on_header_field": parts.read_header_name,
                "on_header_value": parts.read_header_value,
                "on_header_end": parts.end_header,
                "on_part_data": parts.read_content,
                "on_part_end": parts.end,
                "on_end": parts.end_all,
            },
            max_header_count=_MAX_HEADERS,
            max_header_size=_MAX_HEADER_BYTES,
        )
        parser.write(data)
        parser.finalize()
    except FormParserError as exc:
        raise InvalidArgumentError("body", f"not {MULTIPART}: {exc}"[:300]) from exc
    if not parts.is_whole:
        raise InvalidArgumentError("body", f"not {MULTIPART}: it is cut off")
    return Fields.of_pairs(parts.pairs)


class _Parts:
    """Collects the parts of a body, as the parser reads them.

    Attributes:
        pairs: names and values.
        is_whole: whether the last boundary was read.
    """

    def __init__(self) -> None:
        self.pairs: list[tuple[str, str | NamedFile]] = []
        self.is_whole = False
        self.begin()

    def begin(self) -> None:
        self._headers: dict[str, bytes] = {}
        self._name, self._value = b"", b""
        self._content = bytearray()

    def read_header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def read_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def end_header(self) -> None:
        self._headers.setdefault(self._name.decode("latin-1").lower(), self._value)
        self._name, self._value = b"", b""

    def read_content(self, data: bytes, start: int, end: int) -> None:
        self._content += data[start:end]

    def end(self) -> None:
        if len(self.pairs) == _MAX_PARTS:
            raise InvalidArgumentError("body", f"more than {_MAX_PARTS:,} parts, the limit")
        disposition = self._headers.get(_DISPOSITION, b"").decode("latin-1")
        kind, options = parse_options_header(disposition)
        if kind != b"form-data" or b"name" not in options:
            raise InvalidArgumentError("body", f"a part has no {_DISPOSITION} with a name")
        name = _text("body", options[b"name"])
        if (file_name := options.get(b"filename")) is None:
            self.pairs.append((name, _text(name, bytes(self._content))))
        else:
            file = NamedFile(_text(name, file_name), bytes(self._content))
            self.pairs.append((name, file))
        self._content = bytearray()

    def end_all(self) -> None:
        self.is_whole = True


def _text(field: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise InvalidArgumentError(field, f"not UTF-8: {exc.reason}") from exc
