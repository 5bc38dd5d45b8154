"""The flat form of the messages that every sentence needs: tuples of numbers, strings and lists.

Pickle names the class of every object, and the other end looks each of them up: for a request and
its result, that takes ten times as long as pickling their values. Rare kinds of requests and
results stay objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service.batching.events import Events, Iteration
from service.batching.records import EngineRequest, Finished
from service.domain.requests import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    Hypothesis,
    Priority,
    SearchOptions,
)

_GREEDY = SearchOptions()


def flat_requests(requests: Sequence[EngineRequest]) -> list[Any]:
    """The flat form of some requests."""
    return [_flat_request(request) for request in requests]


def requests_of(flat: Sequence[Any]) -> list[EngineRequest]:
    """The requests with this flat form."""
    return [one if isinstance(one, EngineRequest) else _request(*one) for one in flat]


def flat_events(events: Events) -> tuple[Any, ...]:
    """The flat form of events."""
    finished = [(one.id, _flat_result(one.result)) for one in events.finished]
    return events.streamed, finished, [tuple(iteration) for iteration in events.iterations]


def events_of(flat: tuple[Any, ...]) -> Events:
    """The events with this flat form."""
    streamed, finished, iterations = flat
    return Events(
        streamed,
        [
            Finished(id, one if isinstance(one, GenerationResult) else _result(*one))
            for id, one in finished
        ],
        [Iteration(*iteration) for iteration in iterations],
    )


def _flat_request(submitted: EngineRequest) -> Any:
    request = submitted.request
    if type(request) is not GenerationRequest:
        return submitted
    return (
        (submitted.id, submitted.max_new_tokens, submitted.submitted_at),
        request.source_ids,
        None if request.options == _GREEDY else request.options,
        request.deadline,
        request.request_id,
        request.client,
        request.client_id,
        request.priority.value,
    )


def _request(
    submitted: tuple[int, int, float],
    source_ids: tuple[int, ...],
    options: SearchOptions | None,
    deadline: float | None,
    request_id: str,
    client: str,
    client_id: str,
    priority: str,
) -> EngineRequest:
    request = GenerationRequest(
        source_ids, options or _GREEDY, deadline, request_id, client, client_id, Priority(priority)
    )
    return EngineRequest(submitted[0], request, submitted[1], submitted[2])


def _flat_result(result: GenerationResult) -> Any:
    if len(result.hypotheses) != 1 or result.error is not None:
        return result
    [best] = result.hypotheses
    if best.linked is not None or best.weights:
        return result
    return (
        (best.token_ids, best.token_log_probabilities, best.log_probability),
        (best.score, best.ended),
        result.finish_reason.value,
        result.was_admitted,
        result.queue_seconds,
        result.compute_seconds,
        result.first_token_seconds,
        result.encoded_seconds,
        result.encode_seconds,
        result.num_steps,
    )


def _result(
    found: tuple[list[int], list[float], float],
    ending: tuple[float, bool],
    finish_reason: str,
    *times: Any,
) -> GenerationResult:
    token_ids, _, log_probability = found
    hypotheses = [Hypothesis(*found, *ending)]
    reason = FinishReason(finish_reason)
    return GenerationResult(token_ids, reason, log_probability, hypotheses, *times)
