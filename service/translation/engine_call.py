"""One client call inside the engine: its pieces go in as places allow, and all end with it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from service.decoding.requests import (
    AlignmentKind,
    GenerationRequest,
    Priority,
    ScoringRequest,
    SearchOptions,
)
from service.engine.generation import Generation
from service.engine.interface import ServableEngine
from service.engine.quota import AdmittedCall
from service.translation.preparation import Piece


@dataclass(frozen=True, slots=True)
class Part:
    """A piece on its way.

    Attributes:
        piece: what goes.
        generation: its translation; None if it is kept as it is.
        scorings: of the translation's hypotheses, once they are submitted.
    """

    piece: Piece
    generation: Generation | None
    scorings: list[Generation] = field(default_factory=list)


class EngineCall:
    """Submits the pieces of a call. `close` it, whatever happens, to free what is left of it.

    It asks the engine for admission with the first piece that needs the model: texts without one
    are answered even if the engine is full.

    Args:
        engine: runs the model.
        options: of the piece that opens a text.
        start_ids: what the others' translations begin with.
        deadline, request_id, client, priority: of every request (`GenerationRequest`).
    """

    def __init__(
        self,
        engine: ServableEngine,
        options: SearchOptions,
        *,
        deadline: float | None,
        request_id: str,
        client: str,
        priority: Priority,
        start_ids: tuple[int, ...] = (),
    ) -> None:
        self.started_at = engine.now()
        self._engine = engine
        self._opening = options
        same = options.prefix_ids == start_ids
        self._options = options if same else replace(options, prefix_ids=start_ids)
        self._deadline = deadline
        self._request_id = request_id
        self._client = client
        self._priority = priority
        # Twice the rows: as many wait as run, so that no row is idle while the call goes on.
        self._max_in_flight = max(2, 2 * engine.limits.max_rows // options.beam_size)
        self._admission: AdmittedCall | None = None

    async def submit(self, piece: Piece, *, opens: bool = False) -> Part:
        """Submit a piece as soon as there is a place for it.

        Raises:
            ResourceExhaustedError: the engine is full; only before the call was admitted.
            DeadlineExceededError: the deadline cannot be met; likewise.
            UnavailableError: the engine does not serve.
        """
        request = self._request(piece, opens)
        if request is None:
            return Part(piece, None)
        return Part(piece, await self._admitted(request).submit(request))

    def try_submit(self, piece: Piece, *, opens: bool = False) -> Part | None:
        """Submit a piece now, or return None if there is no place. Raises what `submit` raises.

        There always is a place when everything submitted before has ended.
        """
        request = self._request(piece, opens)
        if request is None:
            return Part(piece, None)
        generation = self._admitted(request).try_submit(request)
        return None if generation is None else Part(piece, generation)

    async def score(
        self,
        source_ids: tuple[int, ...],
        target_ids: tuple[int, ...],
        alignment: AlignmentKind | None = None,
    ) -> Generation:
        """Submit a target to score as soon as there is a place for it. Raises what `submit` raises.

        Args:
            source_ids: the source's tokens, EOS included.
            target_ids: the target's tokens, EOS included if it counts.
            alignment: what of it is wanted.
        """
        request = ScoringRequest(
            source_ids,
            deadline=self._deadline,
            request_id=self._request_id,
            client=self._client,
            priority=self._priority,
            target_ids=target_ids,
            alignment=alignment,
        )
        return await self._admitted(request).submit(request)

    def close(self) -> None:
        """Cancel what has not ended and leave the engine."""
        if self._admission is not None:
            self._admission.close()

    def _admitted(self, request: GenerationRequest) -> AdmittedCall:
        if self._admission is None:
            self._admission = self._engine.admit(self._max_in_flight, request)
        return self._admission

    def _request(self, piece: Piece, opens: bool) -> GenerationRequest | None:
        if piece.source_ids is None:
            return None
        options = self._opening if opens else self._options
        if options.sampling is not None:
            sampling = options.sampling.for_sentence(piece.source_ids)
            options = replace(options, sampling=sampling)
        return GenerationRequest(
            piece.source_ids,
            options,
            self._deadline,
            self._request_id,
            self._client,
            self._priority,
        )
