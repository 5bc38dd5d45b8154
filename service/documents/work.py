"""Messages between the server and its document workers: lines of JSON, and bytes of files.

A worker reads foreign files, so the server does not trust it: answers are bounded, and nothing in
them is unpickled. Texts stay encoded, batch by batch, until they are needed: decoding all texts of
a large document at once would block the event loop.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from service.documents.document import DocumentLimits, DocumentSegment, bad_document
from service.documents.text_batches import batches
from service.memory.pairs import TextPair
from service.text.options import MimeType

READY = b"ready"
"""The template's first message; another one says why it can't work."""
TAKEN = b"+"
"""The template's answer to a connection, sent before it forks the connection's worker."""
LENGTH = struct.Struct("<Q")
"""Length of an answer, sent before it."""
COMPLETE = b"\1"
"""End mark, sent after an answer."""
STATUS = struct.Struct("<ix")
"""Status from `os.waitpid` of a worker that has not answered. The zero byte at its end marks that
the bytes before are not a complete answer."""
NOT_FORKED = -1
"""Replaces a status if no worker could be forked."""
MAX_CHARACTER_RATIO = 2
"""Most characters in the pairs of a TMX file for each of its bytes. A source is in the file once,
and in a pair with each of its translations."""

_SAMPLE_CHARACTERS = 4_000
_BATCH_PAIRS = 50  # of the longest texts, a megabyte


@dataclass(frozen=True)
class DocumentWork:
    """A file to read, or to write with other texts.

    Attributes:
        file_name: name of the file; the extension determines the format.
        limits: limits of the file that is read and of the file that is written.
        max_characters: most characters of all different texts together.
        translations: translations of the different texts, with a line of `encode_texts` for each
            batch of `DocumentTexts`; None to read the file.
        target_language: language of the translations; "" if it is unknown.
        languages: source and target language of the pairs to read from a TMX file, "" for those of
            the file; None for a document.
    """

    file_name: str
    file: bytes
    limits: DocumentLimits
    max_characters: int
    translations: Sequence[bytes] | None = None
    languages: tuple[str, str] | None = None
    target_language: str = ""

    def encode(self) -> bytes:
        """Encode the work for `read_from`."""
        lines = self.translations
        head = {
            "file_name": self.file_name,
            "limits": dataclasses.asdict(self.limits),
            "max_characters": self.max_characters,
            "file_bytes": len(self.file),
            "num_lines": None if lines is None else len(lines),
            "languages": self.languages,
            "target_language": self.target_language,
        }
        return b"".join([_encode(head), b"\n", self.file, *(lines or ())])

    @classmethod
    def read_from(cls, stream: BinaryIO) -> DocumentWork:
        """Decode the work from a stream, and read no further."""
        head = _decode(stream.readline())
        file, num_lines = stream.read(head["file_bytes"]), head["num_lines"]
        return cls(
            head["file_name"],
            file,
            DocumentLimits(**head["limits"]),
            head["max_characters"],
            None if num_lines is None else [stream.readline() for _ in range(num_lines)],
            None if head["languages"] is None else tuple(head["languages"]),
            head["target_language"],
        )


@dataclass(frozen=True)
class DocumentTexts:
    """The different texts of a document, in batches.

    Attributes:
        num_segments: number of segments of the document, equal ones included.
        num_characters: number of characters of the different texts.
        sample: beginning of the text, for language detection.
    """

    num_segments: int
    num_characters: int
    sample: str
    lines: Sequence[bytes]

    @classmethod
    def of(cls, segments: Sequence[DocumentSegment], max_characters: int) -> DocumentTexts:
        """The texts of a document's segments.

        Raises:
            InvalidArgumentError: the texts have more than `max_characters` together.
        """
        texts = list(dict.fromkeys(segment.text for segment in segments))
        total = sum(map(len, texts))
        if total > max_characters:
            raise bad_document(f"{total:,} characters of text, the limit is {max_characters:,}")
        lines = [
            _encode([batch[0].mime_type.value, [segment.text for segment in batch]])
            for batch in batches(segments)
        ]
        return cls(len(segments), total, _sample_of(texts), lines)

    def batches(self) -> Iterator[tuple[MimeType, list[str]]]:
        """Yield the format and the texts of each batch."""
        for line in self.lines:
            mime_type, texts = _decode(line)
            yield MimeType(mime_type), texts


@dataclass(frozen=True)
class MemoryPairs:
    """The pairs of a TMX file, in batches.

    Attributes:
        num_skipped: number of units or translations that were left out.
        lines: batches of pairs.
    """

    num_skipped: int
    lines: Sequence[bytes]

    @classmethod
    def of(cls, pairs: Sequence[TextPair], num_skipped: int) -> MemoryPairs:
        """Encode some pairs in batches."""
        rows = [dataclasses.astuple(pair) for pair in pairs]
        starts = range(0, len(rows), _BATCH_PAIRS)
        return cls(num_skipped, [_encode(rows[start : start + _BATCH_PAIRS]) for start in starts])

    def batches(self) -> Iterator[list[TextPair]]:
        """Yield the pairs of each batch."""
        for line in self.lines:
            yield [TextPair(*row) for row in _decode(line)]


@dataclass(frozen=True)
class Answer:
    """The result of a worker.

    Attributes:
        kind: "texts", "pairs", "file", "refused" (by the reader), "memory" (too little) or "failed"
            (a defect).
        facts: fields of that kind.
        content: bytes of that kind.
    """

    kind: str
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    content: bytes = b""

    def encode(self) -> bytes:
        """Encode the answer for `decode`."""
        return b"\n".join([_encode({"kind": self.kind, **self.facts}), self.content])

    @classmethod
    def decode(cls, data: bytes) -> Answer:
        """Decode an answer of `encode`."""
        line, _, content = data.partition(b"\n")
        facts = _decode(line)
        return cls(facts.pop("kind"), facts, content)

    @classmethod
    def of_texts(cls, texts: DocumentTexts) -> Answer:
        """An answer with the texts of a document."""
        facts = {
            "num_segments": texts.num_segments,
            "num_characters": texts.num_characters,
            "sample": texts.sample,
        }
        return cls("texts", facts, b"\n".join(texts.lines))

    @classmethod
    def of_pairs(cls, found: MemoryPairs) -> Answer:
        """An answer with the pairs of a TMX file."""
        return cls("pairs", {"num_skipped": found.num_skipped}, b"\n".join(found.lines))

    @property
    def pairs(self) -> MemoryPairs:
        """The pairs of a TMX file, for an answer of the kind "pairs"."""
        lines = self.content.split(b"\n") if self.content else ()
        return MemoryPairs(self.facts["num_skipped"], lines)

    @property
    def texts(self) -> DocumentTexts:
        """The texts of a document, for an answer of the kind "texts"."""
        return DocumentTexts(**self.facts, lines=self.content.split(b"\n") if self.content else ())


def encode_texts(texts: Sequence[str]) -> bytes:
    """Encode the texts of a batch as a line."""
    return _encode(texts) + b"\n"


def decode_texts(lines: Sequence[bytes]) -> list[str]:
    """Decode the texts of all batches."""
    return [text for line in lines for text in _decode(line)]


def _sample_of(texts: Sequence[str]) -> str:
    sample, size = [], 0
    for text in texts:
        sample.append(text[:_SAMPLE_CHARACTERS])
        size += len(text)
        if size > _SAMPLE_CHARACTERS:
            break
    return "\n".join(sample)


def _encode(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _decode(line: bytes) -> Any:
    return json.loads(line.decode("utf-8", "surrogatepass"))
