"""Scores translations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from service.calls.backend import Backend, call_arguments
from service.calls.charging import charge, give_back_failed, prioritized
from service.calls.requests import ModelRequest
from service.calls.routes import named_route
from service.models.routing import Route
from service.translation.pair_scorer import PairResult, ScoreOptions


async def score(
    backend: Backend,
    pairs: Sequence[tuple[str, str]],
    request: ModelRequest,
    options: Callable[[], ScoreOptions] = ScoreOptions,
) -> tuple[Sequence[PairResult], Route]:
    """Score pairs of a text and its translation with one model.

    A pair that can't be scored has its error in its result, and does not fail the others.

    Returns:
        A result for each pair, in order, and the route of the model.

    Raises:
        DragomanError: the request is invalid or refused.
    """
    request = charge(request, pairs)
    backend.check_count("pairs", len(pairs), "pairs")
    route = named_route(backend, request)
    async with backend.registry.lease(route) as served:
        results = await served.legs[0].translator.scorer.score(
            pairs, prioritized(options(), request), **call_arguments()
        )
    backend.count(results)
    give_back_failed(results, pairs)
    return results, route
