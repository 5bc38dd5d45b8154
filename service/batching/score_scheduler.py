"""Scheduling of scores: the choice of targets to score in an iteration, beside the rows.

A row is encoded once and then steps, so that only some iterations encode; scores, which need no
row, would fill every iteration. So while rows run, scores get at most a quarter of each iteration's
encode budget, from the tokens that translations leave. A score that costs more is still computed,
and later iterations pay for it. Scores have a queue of their own; one that finds no room comes
first in the next iteration.

Requests for attention weights are scored one in an iteration: everything computed together is
reported together, and reports of translations would wait behind megabytes of weights.

Scores also count as work of their client in the queue of translations, but translations do not
count in the queue of scores: scores have the smaller share, and a client with many translations
would never get a score admitted beside clients that only score.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from service.batching.fair_queue import FairQueue
from service.batching.records import Finished, RequestEntry, RequestState
from service.batching.row_queue import RowQueue
from service.decoding.linked_sources import linked_sources, without_hidden
from service.domain.plan import TargetScore
from service.domain.requests import Hypothesis, ScoringRequest

# While rows run, scores get 1 / _PART of the encode budget.
_PART = 4


class ScoreScheduler:
    """The queue of scores, and their budget.

    Args:
        encode_token_budget: most tokens in an iteration; a longer pair is scored alone.
        translations: queue of the translations, in which scores are charged too.
        eos_id: id that ends a target.

    Attributes:
        is_first: whether translations left no room for a score in the last iteration.
    """

    def __init__(self, encode_token_budget: int, translations: RowQueue, eos_id: int) -> None:
        self.is_first = False
        self._budget = encode_token_budget
        self._part = max(1, encode_token_budget // _PART)
        self._translations = translations
        self._eos_id = eos_id
        self._waiting = FairQueue()
        self._debt = 0  # tokens spent beyond the scores' part, which later iterations pay for

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[RequestEntry]:
        return iter(self._waiting)

    @property
    def has_debt(self) -> bool:
        """Whether earlier scores have not been paid for."""
        return self._debt > 0

    @property
    def is_due(self) -> bool:
        """Whether the next iteration would score while rows run."""
        return self._debt < self._part and len(self._waiting) > 0

    def push(self, entry: RequestEntry) -> None:
        """Add a score."""
        self._waiting.push(entry)

    def discard(self, entry: RequestEntry) -> None:
        """Remove a score that is no longer wanted."""
        self._waiting.discard(entry)

    def schedule(self, now: float, num_spent: int = 0, *, beside_rows: bool) -> list[RequestEntry]:
        """Choose the targets to score in this iteration.

        Args:
            now: time in seconds of the engine's clock.
            num_spent: tokens of the encode budget that translations have taken.
            beside_rows: whether rows run.
        """
        part = self._part - self._debt if beside_rows else self._budget
        left = self._budget - num_spent
        chosen: list[RequestEntry] = []
        while part > 0 and (entry := self._waiting.peek()) is not None:
            num_tokens = entry.num_encoded_tokens
            if (chosen or num_spent) and num_tokens > min(part, left):
                break
            selects = isinstance(entry.request, ScoringRequest) and entry.request.selection
            if selects and chosen:
                break
            self._waiting.take()
            self._translations.charge(entry, entry.work)
            part -= num_tokens
            left -= num_tokens
            entry.admit(now)
            chosen.append(entry)
            if selects:
                break
        self._debt = max(0, -part) if beside_rows else 0
        self.is_first = part > 0 and not chosen and len(self._waiting) > 0
        return chosen

    def pay(self) -> None:
        """Let an iteration of rows without a score pay for earlier scores."""
        self._debt = max(0, self._debt - self._part)

    def scored(
        self, entries: Iterable[RequestEntry], scores: Iterable[TargetScore], now: float
    ) -> list[Finished]:
        """Finish the requests of `schedule`, except those cancelled since."""
        return [
            entry.finish(now, [self._hypothesis(entry, score)])
            for entry, score in zip(entries, scores, strict=True)
            if entry.state is not RequestState.FINISHED
        ]

    def _hypothesis(self, entry: RequestEntry, score: TargetScore) -> Hypothesis:
        request = entry.request
        assert isinstance(request, ScoringRequest), "only a given target can be scored"
        ended = request.target_ids[-1] == self._eos_id
        hidden = request.num_hidden_target
        token_ids = list(request.target_ids[hidden : -1 if ended else None])
        log_probabilities = score.log_probabilities[hidden:].tolist()
        total = sum(log_probabilities)  # in order and in double precision, as a search adds them up
        attention = score.attention
        if request.alignment:
            attention = without_hidden(attention, hidden, request.num_hidden_source)
        return Hypothesis(
            token_ids=token_ids,
            token_log_probabilities=log_probabilities,
            log_probability=total,
            score=total,
            ended=ended,
            linked=linked_sources(attention, len(token_ids)) if request.alignment else None,
            attention=attention if request.alignment == "soft" else None,
            weights=score.weights,
        )
