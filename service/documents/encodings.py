"""Conversion between bytes and text: UTF-8, or the encoding of a byte order mark."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from service.documents.document import DocumentLimits, bad_document

UTF_8_NAMES = ("utf-8", "utf8")
"""Names in lower case by which files declare that they are UTF-8."""
# The longer marks first: that of UTF-32 begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


@dataclass(frozen=True)
class DecodedText:
    """The text of a file, and its encoding.

    Attributes:
        text: text without the byte order mark.
        mark: byte order mark; empty without one.
    """

    text: str
    mark: bytes
    encoding: str

    def encode(self, text: str) -> bytes:
        """Encode another text in the same encoding."""
        return self.mark + text.encode(self.encoding)


def decode(data: bytes, limits: DocumentLimits) -> DecodedText:
    """Decode the text of a file.

    Raises:
        InvalidArgumentError: the file is not in the encoding of its mark, or not in UTF-8 without
            one; or it has too many lines.
    """
    mark, encoding = next(
        ((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", "utf-8")
    )
    try:
        text = data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as exc:
        raise bad_document(
            f"is not {encoding.upper()} at byte {len(mark) + exc.start + 1:,}: convert it to UTF-8"
        ) from exc
    if "\0" in text:
        raise bad_document("has NUL characters: it is no text, or UTF-16 without a mark")
    if len(text) > limits.max_lines:
        limits.check("lines", sum(map(text.count, _LINE_BREAKS)) - text.count("\r\n"))
    return DecodedText(text, mark, encoding)
