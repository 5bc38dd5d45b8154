"""Charges requests to keys, and gives them the priorities of their keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

from service.calls.backend import Result
from service.calls.call_context import current_call
from service.calls.requests import ModelRequest
from service.calls.status import CHARGED, code_of
from service.domain.requests import Priority
from service.translation.options import TranslateOptions
from service.translation.pair_scorer import ScoreOptions
from service.translation.results import TextResult

M = TypeVar("M", bound=ModelRequest)
O = TypeVar("O", TranslateOptions, ScoreOptions)  # noqa: E741
Texts = Sequence[str | tuple[str, str]]
"""Texts, or pairs of a text and its translation."""


def charge(request: M, texts: Texts | None) -> M:
    """Charge the texts of the current call to its key, and check its priority.

    If the call fails, the charge is given back, unless the client disconnected or its deadline
    passed (`RunningCall`).

    Args:
        texts: the texts; None for a document that is not read yet. The key then needs at least one
            character left, and is charged later.

    Returns:
        The request, with the priority that the key gives it.

    Raises:
        QuotaError: the key has fewer characters left.
        PermissionDeniedError: the key does not allow the priority.
    """
    grant = current_call().grant
    if grant.principal is None:
        return request
    allowed = grant.priority(request.priority.value if request.priority else "")
    if texts is None:
        grant.check_characters_left()
    else:
        grant.charge(sum(map(_num_characters, texts)))
    return dataclasses.replace(request, priority=Priority(allowed)) if allowed else request


def give_back_failed(results: Sequence[Result], texts: Texts) -> None:
    """Give back the characters of texts or pairs that failed.

    Those that failed because the client disconnected, or its deadline passed, stay charged.
    """
    grant = current_call().grant
    if grant.principal is None:
        return
    grant.give_back(
        sum(
            _num_characters(text)
            for result, text in zip(results, texts, strict=True)
            if result.error and code_of(result.error) not in CHARGED
        )
    )


def give_back_cached(results: Sequence[TextResult], texts: Sequence[str]) -> None:
    """Give back the characters that the cache answered, if the server's settings say so."""
    pairs = zip(results, texts, strict=True)
    current_call().grant.give_back(
        sum(
            min(result.num_cached_characters, len(text))
            for result, text in pairs
            if result.error is None
        )
    )


def prioritized(options: O, request: ModelRequest) -> O:
    """Options for a request, with its priority if it has one."""
    if request.priority in (None, options.priority):
        return options
    return dataclasses.replace(options, priority=request.priority)


def _num_characters(text: str | tuple[str, str]) -> int:
    """Characters (code points) of a text, or of a pair."""
    return len(text) if isinstance(text, str) else sum(map(len, text))
