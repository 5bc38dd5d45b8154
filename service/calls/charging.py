"""What a request costs its key, and what priority the key gives it."""

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

M = TypeVar("M", bound=ModelRequest)
O = TypeVar("O", TranslateOptions, ScoreOptions)  # noqa: E741
Texts = Sequence[str | tuple[str, str]]
"""Texts, or pairs of a text and its translation."""


def charge(request: M, texts: Texts | None) -> M:
    """Charge the current call with its texts, and check its priority.

    The charge is given back if the call fails, unless by its client (`RunningCall`). Without texts,
    which are in a document that is still to be read, the key needs one character at least.

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
    """Give back the characters of texts or pairs that have failed, unless by their client."""
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


def prioritized(options: O, request: ModelRequest) -> O:
    """Options for a request, with its priority if it has one."""
    if request.priority in (None, options.priority):
        return options
    return dataclasses.replace(options, priority=request.priority)


def _num_characters(text: str | tuple[str, str]) -> int:
    """Characters (code points) of a text, or of a pair."""
    return len(text) if isinstance(text, str) else sum(map(len, text))
