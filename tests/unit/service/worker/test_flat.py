"""Requests and results cross between processes unchanged, in whichever form."""

from __future__ import annotations

import dataclasses

import pytest

from service.batching.events import Events, Iteration
from service.batching.records import EngineRequest, Finished
from service.domain.requests import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    Hypothesis,
    Priority,
    ScoringRequest,
    SearchOptions,
)
from service.errors import UnavailableError
from service.worker.messages import Add, Frames, framed

REQUEST = GenerationRequest(
    source_ids=(5, 6, 3),
    options=SearchOptions(max_new_tokens=9, prefix_ids=(4,)),
    deadline=12.5,
    request_id="a",
    client="b",
    client_id="c",
    priority=Priority.HIGH,
)
BEST = Hypothesis([7, 8], [-0.5, -0.25, -1.0], log_probability=-1.75, score=-0.5, ended=True)
RESULT = GenerationResult(
    token_ids=[7, 8],
    finish_reason=FinishReason.EOS,
    log_probability=-1.75,
    hypotheses=[BEST],
    was_admitted=False,
    queue_seconds=1.0,
    compute_seconds=2.0,
    first_token_seconds=3.0,
    encoded_seconds=4.0,
    encode_seconds=5.0,
    num_steps=6,
)


def crossed(message: object) -> object:
    """The message at the other end."""
    [found] = Frames().feed(framed(message))
    return found


@pytest.mark.parametrize("request_", [REQUEST, GenerationRequest((5, 3)), ScoringRequest((5, 3))])
def test_requests_cross_unchanged(request_: GenerationRequest) -> None:
    sent = EngineRequest(id=1, request=request_, max_new_tokens=7, submitted_at=0.5)
    message = crossed(Add([sent]))
    assert isinstance(message, Add)
    assert [vars(one) for one in message.requests] == [vars(sent)]


@pytest.mark.parametrize(
    "result",
    [
        RESULT,
        dataclasses.replace(RESULT, hypotheses=[BEST, BEST]),
        GenerationResult([], FinishReason.CANCELLED, error=None),
    ],
)
def test_results_cross_unchanged(result: GenerationResult) -> None:
    iteration = Iteration(*range(1, len(Iteration._fields) + 1))
    sent = Events([(1, [7, 8])], [Finished(2, result)], [iteration])
    assert crossed(sent) == sent


def test_errors_cross_with_what_was_found() -> None:
    error = UnavailableError("gone")
    result = dataclasses.replace(RESULT, finish_reason=FinishReason.ERROR, error=error)
    message = crossed(Events(finished=[Finished(2, result)]))
    assert isinstance(message, Events)
    [(_, found)] = message.finished
    assert str(found.error) == "gone"
    assert dataclasses.replace(found, error=error) == result


@pytest.mark.parametrize("example", [REQUEST, RESULT])
def test_these_examples_leave_no_field_out(example: GenerationRequest | GenerationResult) -> None:
    for field in dataclasses.fields(example):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        assert field.name == "error" or getattr(example, field.name) != default
