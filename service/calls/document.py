"""Translates documents."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from service.calls.backend import Backend, note_cached, note_memory
from service.calls.call_context import current_call
from service.calls.charging import charge
from service.calls.detected_texts import DetectedText, check_target, detected_texts
from service.calls.requests import TextRequest
from service.calls.routes import route_if_named
from service.calls.text_stages import text_stages
from service.calls.translate import translate_along
from service.documents.document import bad_document
from service.documents.work import encode_texts
from service.errors import DragomanError, InvalidArgumentError
from service.models.routing import Route
from service.text.options import MimeType
from service.translation.results import TextResult, TranslationWarning

_MAX_WARNINGS = 100


@dataclass
class DocumentTotals:
    """Figures of the translated texts of a document.

    Attributes:
        num_source_tokens: tokens that the models read.
        num_target_tokens: tokens that they generated.
        queue_seconds: longest wait of a text.
        compute_seconds: longest computation of a text.
        warnings: the first warnings, at most 100.
        num_warnings: number of all warnings.
        num_cached_characters: characters of sentences that the cache answered.
        num_memory_matches: sentences that the translation memory translated.
    """

    num_source_tokens: int = 0
    num_target_tokens: int = 0
    queue_seconds: float = 0.0
    compute_seconds: float = 0.0
    warnings: list[TranslationWarning] = field(default_factory=list)
    num_warnings: int = 0
    num_cached_characters: int = 0
    num_memory_matches: int = 0

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
            self.num_cached_characters += result.num_cached_characters
            self.num_memory_matches += result.num_memory_matches


@dataclass(frozen=True)
class TranslatedDocument:
    """A translated document.

    Attributes:
        num_segments: number of texts in the file.
        totals: figures of the texts that were translated.
        route: the models; None if the document is in the target language.
        detected: the document's language; None if the request names it.
    """

    content: bytes
    num_segments: int
    totals: DocumentTotals
    route: Route | None
    detected: DetectedText | None


async def translate_document(
    backend: Backend, file_name: str, content: bytes, request: TextRequest
) -> TranslatedDocument:
    """Translate the texts of a file, and write a file with the translations.

    Raises DragomanError.
    """
    call, max_characters = current_call(), backend.any_translator.limits.max_request_characters
    request = charge(request, None)
    route = await _route_before_reading(backend, request)
    document = await backend.documents.read(
        file_name, content, max_characters, call.client, _target_of(route)
    )
    call.grant.charge(document.num_characters)
    call.facts["texts"] = document.num_segments
    detected = None
    if route is None:
        sample = [document.sample]
        [detected] = await detected_texts(backend, request, sample, lambda _: "content")
        if detected.error is not None:
            raise detected.error
        route = detected.route
    totals, lines = DocumentTotals(), []
    for mime_type, batch in document.batches():
        if route is not None:  # otherwise it is in the target language
            batch_request = dataclasses.replace(request, mime_type=mime_type.value)
            results = await translate_along(backend, route, batch, batch_request)
            totals.add(results)
            backend.count_outcomes(results)
            batch = _checked_texts(results)
        lines.append(encode_texts(batch))
    written = await backend.documents.write(
        file_name, content, max_characters, lines, call.client, _target_of(route)
    )
    call.facts.update(
        source_tokens=totals.num_source_tokens, target_tokens=totals.num_target_tokens
    )
    note_cached(totals.num_cached_characters)
    note_memory(totals.num_memory_matches)
    if backend.cache_is_free:
        call.grant.give_back(min(totals.num_cached_characters, document.num_characters))
    return TranslatedDocument(written, document.num_segments, totals, route, detected)


def _target_of(route: Route | None) -> str:
    return "" if route is None else route.legs[-1].target


async def _route_before_reading(backend: Backend, request: TextRequest) -> Route | None:
    """The route of a document; None if its language has to be detected.

    Raises:
        DragomanError: the call fails with any document, so the document need not be read.
    """
    route = route_if_named(backend, request)
    if route is None:
        check_target(backend, request)
        return None
    any_with_tags = dataclasses.replace(request, mime_type=MimeType.HTML.value)
    await text_stages(backend, route, any_with_tags)
    return route


def _checked_texts(results: Sequence[TextResult]) -> list[str]:
    """The translations of a batch.

    Raises:
        DragomanError: the error of a text that was not translated.
    """
    error: DragomanError | None = next((result.error for result in results if result.error), None)
    if isinstance(error, InvalidArgumentError):
        raise bad_document(f"a part can't be translated: {error.description}") from error
    if error is not None:
        raise error
    return [result.text for result in results]
