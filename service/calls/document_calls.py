"""Translates documents: a call with a file becomes requests with the texts in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dragoman.v1 import translation_pb2 as pb
from service.documents.document import DocumentLimits, bad_document
from service.errors import DragomanError, InvalidArgumentError
from service.translation.results import TextResult, TranslationWarning

LIMITS = DocumentLimits(max_unpacked_bytes=64 * 2**20)
_MAX_WARNINGS = 100
_REFUSED = ("num_hypotheses", "return_tokens", "return_alignments")


@dataclass
class DocumentTotals:
    """Figures of all texts of a document that were translated.

    Attributes:
        num_source_tokens: read.
        num_target_tokens: generated.
        queue_seconds: the longest wait of a text.
        compute_seconds: the longest computation of a text.
        warnings: what is wrong with translations, the first ones.
        num_warnings: number of all.
    """

    num_source_tokens: int = 0
    num_target_tokens: int = 0
    queue_seconds: float = 0.0
    compute_seconds: float = 0.0
    warnings: list[TranslationWarning] = field(default_factory=list)
    num_warnings: int = 0

    def add(self, results: Sequence[TextResult]) -> None:
        """Add the results of a batch."""
        for result in results:
            self.num_source_tokens += result.num_source_tokens
            self.num_target_tokens += result.num_target_tokens
            self.queue_seconds = max(self.queue_seconds, result.queue_seconds)
            self.compute_seconds = max(self.compute_seconds, result.compute_seconds)
            room = _MAX_WARNINGS - len(self.warnings)
            self.warnings += result.warnings[:room]
            self.num_warnings += len(result.warnings)


def request_of(request: pb.TranslateDocumentRequest) -> pb.TranslateRequest:
    """A request for the texts of a document, which is still to be read."""
    return pb.TranslateRequest(
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
