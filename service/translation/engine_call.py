"""A call's use of the engine: submits sentences within the quota, and cancels them at the end."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict, Unpack

from model.bundle.tokenizer import Tokenizer
from service.cache.response_cache import CallCache, ModelCache
from service.common.fairness import begin_preparing, checkpoint
from service.domain.attention import AttentionSelection
from service.domain.requests import (
    AlignmentKind,
    GenerationRequest,
    GenerationResult,
    Priority,
    ScoringRequest,
    SearchOptions,
)
from service.engine.generation import Generation
from service.engine.interface import ServableEngine
from service.engine.latency_model import CompletionEstimate
from service.engine.quota import AdmittedCall
from service.errors import InternalError
from service.observability import tracing
from service.observability.sequence_times import SequenceTimes
from service.translation.preparation import PreparedText
from service.translation.segmentation import SourceSentence

# A sentence, and whether it is the first translated one of its text.
OpeningSentence = tuple[SourceSentence, bool]


class Admission:
    """A call's admission by one or more engines. Close it at the end of the call.

    A call in several parts is admitted once, with its first part; the others may have to wait for
    room, but are not refused.

    Attributes:
        has_begun: whether the call has long texts and may prepare them.
    """

    def __init__(self) -> None:
        self._admitted: dict[ServableEngine, AdmittedCall] = {}
        self.has_begun = False
        self._end_preparing: Callable[[], None] | None = None

    async def begin(self) -> None:
        """Wait until long texts may be prepared."""
        self.has_begun = True
        self._end_preparing = await begin_preparing()

    def of(self, engine: ServableEngine) -> AdmittedCall | None:
        """The call admitted by an engine; None before admission."""
        return self._admitted.get(engine)

    def add(self, engine: ServableEngine, admitted: AdmittedCall) -> AdmittedCall:
        """Store the call that an engine has admitted, and return it."""
        self._admitted[engine] = admitted
        self._prepared()
        return admitted

    def _prepared(self) -> None:
        end, self._end_preparing = self._end_preparing, None
        if end is not None:
            end()

    def close(self) -> None:
        """Cancel unfinished requests, and give back all quotas; may be called repeatedly."""
        self._prepared()
        for admitted in self._admitted.values():
            admitted.close()


class CallArguments(TypedDict, total=False):
    """Arguments that all requests of a call share, besides its options.

    Attributes:
        deadline: `time.monotonic()` seconds after which the result is useless; None for no limit.
        request_id: id of the call in logs.
        client: name of the client, for fairness.
        client_id: id that the client names for one of its own clients, for fairness within its
            share; "" without one.
        admission: admission of a call in several parts.
        tenant: name of the tenant that shares cached results with the call; "" for all. Without it,
            the call does not use the cache.
    """

    deadline: float | None
    request_id: str
    client: str
    client_id: str
    admission: Admission
    tenant: str


@contextlib.contextmanager
def admitted_once(shared: CallArguments) -> Iterator[CallArguments]:
    """The arguments for the parts of a call, which are admitted together."""
    if "admission" in shared:
        yield shared
        return
    with contextlib.closing(Admission()) as admission:
        yield {**shared, "admission": admission}


@dataclass(frozen=True, slots=True)
class SubmittedSentence:
    """A sentence of a text after its submission.

    Attributes:
        sentence: sentence of the text.
        generation: generation of its translation; None if the sentence is copied.
        scorings: scores of the translation's hypotheses, after their submission.
    """

    sentence: SourceSentence
    generation: Generation | None
    scorings: list[Generation] = field(default_factory=list)

    @property
    def copied(self) -> str:
        """The part of the result that is copied from the source."""
        sentence = self.sentence
        return sentence.separator if self.generation else sentence.separator + sentence.text


class EngineCall:
    """Submits the sentences of a call. Always `close` it, to cancel unfinished sentences.

    It asks for admission with the first sentence that needs the model, so that texts without such a
    sentence are answered even if the engine is full.

    Args:
        engine: runs the model.
        options: search options of the first translated sentence of a text, the only one with the
            target prefix.
        priority: priority of every request.
        tokenizer: the model's tokenizer for one direction, which has the language tokens.
        cache: results of the model; None without a cache.
        shared: arguments of all requests.

    Attributes:
        asks_store: whether there is a shared store to be asked before sentences are submitted.
    """

    def __init__(
        self,
        engine: ServableEngine,
        options: SearchOptions,
        priority: Priority,
        tokenizer: Tokenizer,
        cache: ModelCache | None = None,
        **shared: Unpack[CallArguments],
    ) -> None:
        self.started_at = engine.now()
        self._engine = engine
        self._opening = options
        start_ids = tokenizer.target.start_ids
        self._num_hidden = tokenizer.num_hidden
        self._eos_id = tokenizer.eos_id
        same = options.prefix_ids == start_ids
        self._options = options if same else replace(options, prefix_ids=start_ids)
        given = shared.pop("admission", None)
        self._admission = Admission() if given is None else given
        self._owns_admission = given is None
        tenant = shared.pop("tenant", None)
        is_random = options.sampling is not None and options.sampling.seed is None
        self.asks_store = False
        self._cache: CallCache | None = None
        if cache is not None and tenant is not None and not is_random:
            self.asks_store = cache.is_shared
            self._cache = CallCache(
                cache, tenant, lambda each: self._admitted(each).submit(each), engine.now
            )
        self._shared: dict[str, Any] = {**shared, "priority": priority}
        # Twice the rows: as many requests wait as run, so that no row is idle.
        self._max_in_flight = max(2, 2 * engine.limits.max_rows // options.beam_size)
        self._trace = tracing.current.get()
        self._submitted: list[Generation] = []

    def reserve(self, sentence: SourceSentence, after: EngineCall) -> None:
        """Ask for admission now, for a first sentence about as long as `sentence`.

        Raises the errors of `submit`.

        Args:
            sentence: sentence that another call translates first.
            after: the other call; the deadline has to leave time for it.
        """
        is_admitted = self._admission.of(self._engine) is not None
        if not is_admitted and (request := self._request(sentence, True)) is not None:
            self._admit(request, after.estimate(sentence))

    async def enter(self) -> None:
        """Wait until long texts may be prepared, and check whether there is room for the call.

        Raises the errors of `submit` for the shortest sentence: a refused call costs little.
        """
        if self._admission.has_begun:
            return
        await self._admission.begin()
        self._engine.check_room(GenerationRequest((self._eos_id,), self._opening, **self._shared))

    def estimate(self, sentence: SourceSentence) -> CompletionEstimate | None:
        """Estimate the engine's time for a sentence; None while it is idle."""
        request = self._request(sentence, True)
        return None if request is None else self._engine.estimate(request)

    async def submit(self, sentence: SourceSentence, *, opens: bool = False) -> SubmittedSentence:
        """Submit a sentence when the quota allows it.

        Raises:
            ResourceExhaustedError: the engine is full; only before admission.
            DeadlineExceededError: the deadline cannot be met; only before admission.
            UnavailableError: the engine does not serve.
        """
        request = self._request(sentence, opens)
        if request is None:
            return SubmittedSentence(sentence, None)
        return SubmittedSentence(sentence, self._noted(await self._submit(request)))

    def try_submit(
        self, sentence: SourceSentence, *, opens: bool = False
    ) -> SubmittedSentence | None:
        """Submit a sentence now, or return None if the quota is used up.

        The quota always allows a sentence if all submitted sentences of the call have ended.
        Raises the errors of `submit`.
        """
        request = self._request(sentence, opens)
        if request is None:
            return SubmittedSentence(sentence, None)
        generation = self._try_submit(request)
        return None if generation is None else SubmittedSentence(sentence, self._noted(generation))

    async def look_up(self, sentences: Sequence[OpeningSentence]) -> None:
        """Ask the cache's shared store for sentences that will be submitted, if it has one."""
        if self.asks_store:
            requests = (self._request(sentence, opens) for sentence, opens in sentences)
            await self.look_up_requests([each for each in requests if each is not None])

    async def look_up_requests(self, requests: Sequence[GenerationRequest]) -> None:
        """Ask the cache's shared store for requests that will be submitted, if it has one."""
        if self.asks_store and self._cache is not None:
            await checkpoint()
            await self._cache.look_up(requests)

    async def submit_ahead(self, prepared: PreparedText) -> AsyncIterator[SubmittedSentence]:
        """Yield each sentence of a text in order, submitted ahead as far as the quota allows.

        Advance the iterator when the last sentence has ended. Raises the errors of `submit`.
        """
        waiting, opening = deque(prepared.sentences), prepared.opening
        in_flight: deque[SubmittedSentence] = deque()
        while waiting or in_flight:
            while waiting:
                if self._cache is not None:
                    await checkpoint()
                submitted = self.try_submit(waiting[0], opens=waiting[0] is opening)
                if submitted is None:
                    break
                in_flight.append(submitted)
                waiting.popleft()
            if not in_flight:  # another part of the call has used up the quota
                sentence = waiting.popleft()
                in_flight.append(await self.submit(sentence, opens=sentence is opening))
            yield in_flight.popleft()

    def score_request(
        self,
        source_ids: tuple[int, ...],
        target_ids: tuple[int, ...],
        alignment: AlignmentKind | None = None,
        selection: AttentionSelection | None = None,
        num_weights: int = 0,
    ) -> ScoringRequest:
        """A target to score.

        Args:
            source_ids: tokens of the source, with language tokens and EOS.
            target_ids: tokens of the target, with language tokens, and with EOS if it counts.
            alignment: kind of alignment to compute; None for none.
            selection: attention weights to return; with one, language tokens are not hidden.
            num_weights: number of weights computed for the selection.
        """
        num_hidden_source, num_hidden_target = self._num_hidden if selection is None else (0, 0)
        return ScoringRequest(
            source_ids,
            target_ids=target_ids,
            num_hidden_source=num_hidden_source,
            num_hidden_target=num_hidden_target,
            alignment=alignment,
            selection=selection,
            num_weights=num_weights,
            **self._shared,
        )

    async def submit_score(self, request: ScoringRequest) -> Generation:
        """Submit a target to score when the quota allows it. Raises the errors of `submit`."""
        return self._noted(await self._submit(request))

    def close(self) -> None:
        """Cancel unfinished sentences, and release the admission unless other parts share it."""
        submitted, self._submitted = self._submitted, []
        if self._trace is not None:
            self._trace.sequences_ended(_ended(submitted), len(submitted))
        if self._cache is not None:
            self._cache.close()
        if self._owns_admission:
            self._admission.close()
        else:
            for generation in submitted:
                generation.cancel()

    async def _submit(self, request: GenerationRequest) -> Generation:
        """The answer of the cache or, as soon as the quota allows it, of the engine."""
        if self._cache is not None:
            await checkpoint()  # answers of the cache need no room, so nothing else ends the loop
        while (generation := self._try_submit(request)) is None:
            if self._cache is not None and self._cache.is_full:
                await self._cache.room()
            else:
                await self._admitted(request).room()
        return generation

    def _try_submit(self, request: GenerationRequest) -> Generation | None:
        """The answer of the cache or the engine; None if the quota is used up."""
        if self._cache is None:
            return self._admitted(request).try_submit(request)
        if self._cache.is_full:
            return None
        if (found := self._cache.find(request)) is not None:
            return found
        generation = self._admitted(request).try_submit(request)
        if generation is not None:
            self._cache.computes(generation)
        return generation

    def _noted(self, generation: Generation) -> Generation:
        self._submitted.append(generation)
        return generation

    def _admit(
        self, request: GenerationRequest, before: CompletionEstimate | None = None
    ) -> AdmittedCall:
        admitted = self._engine.admit(self._max_in_flight, request, before)
        if self._trace is not None:
            self._trace.admitted()
        return self._admission.add(self._engine, admitted)

    def _admitted(self, request: GenerationRequest) -> AdmittedCall:
        admitted = self._admission.of(self._engine)
        return self._admit(request) if admitted is None else admitted

    def _request(self, sentence: SourceSentence, opens: bool) -> GenerationRequest | None:
        if sentence.source_ids is None:
            return None
        options = self._opening if opens else self._options
        if options.sampling is not None:
            sampling = options.sampling.for_sentence(sentence.source_ids)
            options = replace(options, sampling=sampling)
        return GenerationRequest(sentence.source_ids, options, **self._shared)


async def result_of(generation: Generation) -> GenerationResult:
    """The result of one sentence, possibly with an InternalError that affects only this sentence.

    Raises:
        DragomanError: any other error, which fails the whole call.
    """
    result = await generation.result()
    if result.error is not None and not isinstance(result.error, InternalError):
        raise result.error
    return result


def _ended(generations: Sequence[Generation]) -> Iterator[SequenceTimes]:
    """The timestamps of the generations that have ended."""
    for generation in generations:
        result, begun = generation.ended_as, generation.submitted_at
        if result is None:
            continue
        started = begun + result.queue_seconds
        encoded = result.encoded_seconds
        yield SequenceTimes(
            submitted_at=begun,
            started_at=started,
            ended_at=started + result.compute_seconds,
            encoded_at=None if encoded is None else begun + encoded,
            encode_seconds=result.encode_seconds,
            num_source_tokens=len(generation.request.source_ids),
            num_rows=generation.request.num_rows,
            num_steps=result.num_steps,
            finish_reason=result.finish_reason.value,
        )
