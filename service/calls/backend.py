"""The parts of a server that its use cases share."""

from __future__ import annotations

from collections.abc import Sequence

from service.calls.call_context import current_call
from service.calls.status import code_of
from service.documents.document import DocumentLimits
from service.documents.worker_pool import DocumentWorkers
from service.documents.worker_template import WorkerLimits
from service.errors import DragomanError, InvalidArgumentError, UnavailableError
from service.glossaries.files import GlossaryFiles
from service.glossaries.store import GlossaryStore
from service.memory.store import TranslationMemories
from service.models.registry import Registry
from service.models.served_model import ServedModel
from service.observability.metrics import ServerMetrics
from service.text.detection import LanguageDetector
from service.translation.attention import AttentionResult
from service.translation.engine_call import CallArguments
from service.translation.pair_scorer import PairResult
from service.translation.results import TextResult
from service.translation.translator import Translator

DOCUMENT_LIMITS = DocumentLimits(max_unpacked_bytes=64 * 2**20)

Result = TextResult | PairResult | AttentionResult


class Backend:
    """The models of a server, and the other parts that use cases share.

    Attributes:
        models: the models; None while they are loading.
        glossary_store: glossaries that clients make.
        memories: translation memories.
        cache_is_free: whether sentences that the cache answers are not charged.
    """

    def __init__(
        self,
        metrics: ServerMetrics,
        glossaries: GlossaryFiles | None = None,
        glossary_store: GlossaryStore | None = None,
        documents: DocumentWorkers | None = None,
        memories: TranslationMemories | None = None,
        *,
        cache_is_free: bool = False,
    ) -> None:
        self.cache_is_free = cache_is_free
        self.models: Registry | None = None
        self.metrics = metrics
        self.glossaries = glossaries or GlossaryFiles()
        self.glossary_store = glossary_store or GlossaryStore()
        self.memories = memories or TranslationMemories()
        self.documents = documents or DocumentWorkers(
            DOCUMENT_LIMITS, WorkerLimits(), metrics.documents
        )
        self.detector = LanguageDetector()

    async def start(self) -> None:
        """Open the stores of clients' data. Raises StartupError."""
        await self.glossary_store.start()
        await self.memories.start()

    async def stop(self) -> None:
        """Close these stores."""
        await self.glossary_store.stop()
        await self.memories.stop()

    @property
    def registry(self) -> Registry:
        """The models. Raises UnavailableError while they are loading."""
        if self.models is None:
            raise UnavailableError("the server is starting: its models are not loaded yet")
        return self.models

    @property
    def any_translator(self) -> Translator:
        """A translator; all have the same limits. Raises UnavailableError."""
        return next(iter(self.registry)).translator

    @property
    def allowed_models(self) -> list[ServedModel]:
        """The models that the caller may use. Raises UnavailableError."""
        grant = current_call().grant
        return [model for model in self.registry if grant.allows_model(model.name)]

    def check_count(self, field: str, count: int, unit: str) -> None:
        """Check the number of texts or pairs, and note it for the log. Raises DragomanError."""
        if not count:
            raise InvalidArgumentError(field, f"at least one {unit[:-1]} is needed")
        self.any_translator.limits.check_count(field, count, unit)
        current_call().facts[unit] = count

    def count(self, results: Sequence[Result]) -> None:
        """Count the outcome of each text or pair, and note its tokens for the log."""
        self.count_outcomes(results)
        current_call().facts.update(
            source_tokens=sum(result.num_source_tokens for result in results),
            target_tokens=sum(result.num_target_tokens for result in results),
        )
        note_cached(sum(getattr(result, "num_cached_characters", 0) for result in results))
        note_memory(sum(getattr(result, "num_memory_matches", 0) for result in results))

    def count_outcomes(self, results: Sequence[Result]) -> None:
        """Count the outcome of each text or pair."""
        for result in results:
            error: DragomanError | None = result.error
            self.metrics.text_finished(code_of(error).name if error else "OK")
            for found in getattr(result, "warnings", ()):
                self.metrics.warned(found.kind.value)


def note_cached(num_characters: int) -> None:
    """Note the characters that the cache answered for the log, if there are any."""
    if num_characters:
        current_call().facts["cached_characters"] = num_characters


def note_memory(num_matches: int) -> None:
    """Note the sentences that a translation memory translated for the log, if there are any."""
    if num_matches:
        current_call().facts["memory_matches"] = num_matches


def call_arguments() -> CallArguments:
    """The arguments of a translator that follow from the current call."""
    call = current_call()
    return {
        "deadline": call.deadline,
        "request_id": call.request_id,
        "client": call.client,
        "client_id": call.client_id,
        # With keys, no tenant can find out by the time of an answer what another one has sent.
        "tenant": "" if call.grant.principal is None else call.client,
    }
