"""Bytes to text and back: UTF-8, or what a byte order mark says."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from service.documents.document import bad_document

# The longer marks first: that of UTF-32 begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True)
class DecodedText:
    """The text of a file, and how it was encoded.

    Attributes:
        text: without the byte order mark.
        mark: the byte order mark; empty without one.
        encoding: name of the codec.
    """

    text: str
    mark: bytes
    encoding: str

    def encode(self, text: str) -> bytes:
        """Another text in the same encoding."""
        return self.mark + text.encode(self.encoding)


def decode(data: bytes) -> DecodedText:
    """The text of a file.

    Raises:
        InvalidArgumentError: it is not in the encoding of its mark, or UTF-8 without one.
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
    return DecodedText(text, mark, encoding)
