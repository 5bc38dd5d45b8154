"""Translates documents: a call with a file becomes requests with the texts in it."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.v1 import translation_pb2 as pb
from service.documents.document import DocumentLimits, DocumentSegment, bad_document
from service.errors import DragomanError, InvalidArgumentError
from service.translation.options import TranslatorLimits
from service.translation.results import TextResult

LIMITS = DocumentLimits(max_unpacked_bytes=64 * 2**20)
_SAMPLE_CHARACTERS = 4_000
_REFUSED = ("num_hypotheses", "return_tokens", "return_alignments")


def texts_of(
    request: pb.TranslateDocumentRequest,
    segments: Sequence[DocumentSegment],
    limits: TranslatorLimits,
) -> pb.TranslateRequest:
    """A request with the different texts of a document, for what they cost and their route.

    Raises:
        InvalidArgumentError: they are too long together.
    """
    texts = list(dict.fromkeys(segment.text for segment in segments))
    total, most = sum(map(len, texts)), limits.max_request_characters
    if total > most:
        raise bad_document(f"{total:,} characters of text, the limit is {most:,}")
    return pb.TranslateRequest(
        contents=texts,
        source_language_code=request.source_language_code,
        target_language_code=request.target_language_code,
        model=request.model,
        options=request.options,
        glossary=request.glossary,
    )


def check_options(options: pb.TranslateOptions) -> None:
    """Refuse options of an answer that a document has no place for.

    Raises:
        InvalidArgumentError: one is set; names it.
    """
    for name in _REFUSED:
        if getattr(options, name):
            raise InvalidArgumentError(f"options.{name}", "a document returns only its file")
    if options.search.target_prefix:
        raise InvalidArgumentError(
            "options.search.target_prefix", "every part of a document would begin with it"
        )


def sample_of(texts: Sequence[str]) -> str:
    """The beginning of a document's text, by which its language is detected."""
    sample, size = [], 0
    for text in texts:
        sample.append(text[:_SAMPLE_CHARACTERS])
        size += len(text)
        if size > _SAMPLE_CHARACTERS:
            break
    return "\n".join(sample)


def checked_texts(results: Sequence[TextResult]) -> list[str]:
    """The translations of a batch.

    Raises:
        DragomanError: that of a text which was not translated.
    """
    error: DragomanError | None = next((result.error for result in results if result.error), None)
    if isinstance(error, InvalidArgumentError):
        raise bad_document(f"a part can't be translated: {error.description}") from error
    if error is not None:
        raise error
    return [result.text for result in results]
