"""Reads and writes documents in worker processes, fairly among clients."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Sequence

from service.common.fair_slots import FairSlots
from service.documents.document import DocumentLimits, bad_document
from service.documents.formats import extension_of
from service.documents.work import (
    MAX_CHARACTER_RATIO,
    NOT_FORKED,
    Answer,
    DocumentTexts,
    DocumentWork,
    MemoryPairs,
)
from service.documents.worker_template import (
    TemplateError,
    WorkerEnd,
    WorkerLimits,
    WorkerTemplate,
)
from service.errors import (
    DragomanError,
    InternalError,
    InvalidArgumentError,
    UnavailableError,
)
from service.observability.document_metrics import DocumentMetrics

READERS_MODULE = "service.documents.formats"
"""Name of the module with the functions that read files in the workers."""

_STOP_SECONDS = 1.0
# Pause between two attempts to start the template.
_RETRY_SECONDS = 5.0
# Sizes of an answer with texts: of a character escaped in JSON, of a segment, and of the rest.
_CHARACTER_BYTES, _SEGMENT_BYTES, _HEAD_BYTES = 6, 64, 64 * 1024

_DOING = {"read": "reading it", "write": "writing its translation"}
_DONE = {"read": "read", "write": "written"}
_STOPPED = "the server is shutting down"
_CANT_WORK = "no document can be read now; the server's log says why"
# Reasons by the signal that killed a worker. While its call waits, only the kernel sends SIGKILL.
_REASONS: dict[int, str] = {signal.SIGXCPU: "time", signal.SIGKILL: "out_of_memory"}

_log = logging.getLogger("dragoman.documents")


class DocumentWorkers:
    """Reads and writes documents, each in a process of its own.

    A document is read a second time before it is written, so that no process holds it while its
    texts are translated. The first document starts the template process.

    Args:
        readers: name of the module with `load_readers` and `read_document`.
    """

    def __init__(
        self,
        limits: DocumentLimits,
        resources: WorkerLimits,
        metrics: DocumentMetrics,
        readers: str = READERS_MODULE,
    ) -> None:
        self._limits = limits
        self._resources = resources
        self._metrics = metrics
        self._readers = readers
        self._slots = FairSlots(resources.num_workers)
        metrics.waiting.set_function(lambda: self._slots.num_waiting)
        self._template: WorkerTemplate | None = None
        self._starting: asyncio.Task[str] | None = None
        self._retry_at = 0.0
        self._is_stopped = False

    async def read(
        self,
        file_name: str,
        file: bytes,
        max_characters: int,
        client: str,
        target_language: str = "",
    ) -> DocumentTexts:
        """Read the texts of a document.

        Args:
            file_name: name of the file; the extension determines the format.
            max_characters: most characters of the different texts together.
            target_language: BCP-47 code of the translations to come; "" if it is unknown.

        Raises:
            InvalidArgumentError: the file can't be read, exceeds a limit, or says that it is to be
                translated into another language.
            UnavailableError: no worker can be started, or the server is shutting down.
            InternalError: the reader has a defect; the log says more.
        """
        work = DocumentWork(
            file_name, file, self._limits, max_characters, target_language=target_language
        )
        return (await self._perform("read", work, client)).texts

    async def write(
        self,
        file_name: str,
        file: bytes,
        max_characters: int,
        lines: Sequence[bytes],
        client: str,
        target_language: str = "",
    ) -> bytes:
        """Write a document with other texts.

        Args:
            lines: new texts, with a line of `encode_texts` for each batch that was read.
            target_language: their BCP-47 code; "" if it is unknown.

        Raises:
            DragomanError: the errors of `read`.
        """
        work = DocumentWork(
            file_name, file, self._limits, max_characters, lines, target_language=target_language
        )
        return (await self._perform("write", work, client)).content

    async def read_tmx(self, file: bytes, languages: tuple[str, str], client: str) -> MemoryPairs:
        """Read the pairs of a TMX file.

        Args:
            languages: source and target language of the pairs; "" for those of the file.

        Raises:
            DragomanError: the errors of `read`.
        """
        most = MAX_CHARACTER_RATIO * len(file)
        work = DocumentWork(".tmx", file, self._limits, most, languages=languages)
        return (await self._perform("read", work, client)).pairs

    async def stop(self) -> None:
        """Kill the workers, in bounded time; their calls end with UnavailableError."""
        self._is_stopped = True
        if self._starting is not None:
            await asyncio.wait({self._starting}, timeout=_STOP_SECONDS)
        template, self._template = self._template, None
        if template is not None:
            await template.stop()

    async def _perform(self, kind: str, work: DocumentWork, client: str) -> Answer:
        if work.languages is None:
            extension_of(work.file_name)
        self._limits.check_bytes(len(work.file))
        async with self._slots.slot(client):
            template = await self._running_template()
            began = time.perf_counter()
            try:
                answer = await self._exchange(template, kind, work)
            finally:
                seconds = time.perf_counter() - began
                self._metrics.work_duration.labels(kind).observe(seconds)
        if answer.kind == "refused":
            raise InvalidArgumentError(answer.facts["field"], answer.facts["why"])
        if answer.kind == "memory":
            raise self._ended_early(kind, "memory")
        if answer.kind == "failed":
            _log.error("a document reader failed", extra={"work": kind, **answer.facts})
            raise InternalError(f"the document could not be {_DONE[kind]}")
        return answer

    async def _exchange(self, template: WorkerTemplate, kind: str, work: DocumentWork) -> Answer:
        resources = self._resources
        try:
            async with asyncio.timeout(resources.seconds * resources.elapsed_factor):
                answer = await template.exchange(work.encode(), self._max_answer_bytes(work))
        except asyncio.CancelledError:
            self._ended_early(kind, "cancelled")
            raise
        except TimeoutError as exc:
            raise self._ended_early(kind, "time") from exc
        except ValueError as exc:
            raise self._ended_early(kind, "answer") from exc
        except TemplateError as exc:
            raise self._unavailable(str(exc)) from exc
        if not isinstance(answer, WorkerEnd):
            return Answer.decode(answer)
        if answer.status == NOT_FORKED:
            raise self._unavailable("no process can be forked")
        raise self._ended_early(kind, _REASONS.get(answer.signal_number, "crash"), how=answer.how)

    def _max_answer_bytes(self, work: DocumentWork) -> int:
        limits = self._limits
        if work.translations is not None:
            return limits.max_bytes + _HEAD_BYTES
        texts = _CHARACTER_BYTES * work.max_characters + _SEGMENT_BYTES * limits.max_segments
        return texts + _HEAD_BYTES

    def _ended_early(self, kind: str, reason: str, how: str = "was killed") -> DragomanError:
        """Count and log a worker that gave no answer, and return the error of its call."""
        self._metrics.workers_killed.labels(reason).inc()
        level = logging.INFO if reason == "cancelled" else logging.WARNING
        facts = {"reason": reason, "work": kind, "how": how}
        _log.log(level, "a document worker ended early", extra=facts)
        doing, resources = _DOING[kind], self._resources
        if reason == "time":
            return bad_document(
                f"{doing} takes more than {resources.seconds} s of processor time, the limit"
            )
        if reason == "memory":
            return bad_document(
                f"{doing} takes more than {resources.memory_mib} MiB of memory, the limit"
            )
        if reason == "out_of_memory":
            # Not an error that clients retry: the kernel would kill a process each time.
            return bad_document(f"{doing} takes more memory than the server has")
        return InternalError(f"the document could not be {_DONE[kind]}")

    # --- the template ----------------------------------------------------------------------------

    async def _running_template(self) -> WorkerTemplate:
        """The template, which is started if it does not run. Raises UnavailableError."""
        if self._template is None or self._template.has_ended:
            if self._is_stopped:
                raise UnavailableError(_STOPPED)
            if time.monotonic() < self._retry_at:
                raise UnavailableError(_CANT_WORK)
            if self._starting is None:
                self._starting = asyncio.create_task(self._start(), name="start documents")
            # If a call is cancelled, the start continues for the others.
            if error := await asyncio.shield(self._starting):
                raise UnavailableError(error)
        assert self._template is not None
        return self._template

    async def _start(self) -> str:
        """Start the template; returns an error for the calls that wait for it, or ""."""
        try:
            template = await WorkerTemplate.start(self._resources, self._readers)
        except TemplateError as exc:
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            return str(self._unavailable(str(exc)))
        finally:
            self._starting = None
        if self._is_stopped:
            await template.stop()
            return _STOPPED
        self._template = template
        return ""

    def _unavailable(self, why: str) -> UnavailableError:
        if self._is_stopped:
            return UnavailableError(_STOPPED)
        _log.error("the process for documents can't work", extra={"error": why})
        return UnavailableError(_CANT_WORK)
