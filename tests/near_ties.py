"""Possible results of a beam search if rounding decides between nearly equal candidates."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from model.evaluation.search import ReferenceBeam

Tokens = tuple[int, ...]
# With more branches, nearly every result would be accepted.
_MOST_BRANCHES = 256


def outcomes(
    beam: ReferenceBeam, log_probabilities: Callable[[Sequence[Tokens]], Tensor], slack: float
) -> dict[Tokens, float]:
    """All possible translations of a search if near ties may be decided either way.

    This is the reference search in double precision. It branches wherever two neighbouring totals
    are nearly equal and decide which hypotheses continue or end, or when the search ends.

    Args:
        beam: search that has not begun.
        log_probabilities: returns the log-probabilities [rows, V] of the next token after each of
            some prefixes, in double precision; -inf for tokens that are never chosen.
        slack: difference below which totals or scores are nearly equal.

    Returns:
        The translations, without EOS, and their scores.
    """
    found: dict[Tokens, float] = {}
    waiting, num_branches = [beam], 1
    while waiting:
        beam = waiting.pop()
        if beam.done:
            for one in beam.finished:
                if one.score > beam.finished[0].score - slack:
                    found[one.token_ids] = one.score
            continue
        branches = _advance(beam, log_probabilities, slack)
        num_branches += len(branches) - 1
        assert num_branches <= _MOST_BRANCHES
        waiting += branches
    return found


def _advance(
    beam: ReferenceBeam, log_probabilities: Callable[[Sequence[Tokens]], Tensor], slack: float
) -> list[ReferenceBeam]:
    """The beam one step later, and the alternatives if near ties are decided the other way."""
    width = 2 * beam.options.beam_size + 1
    values, columns = log_probabilities([one.token_ids for one in beam.running]).topk(width)
    assert values.dtype is torch.float64
    ids, logs = [], []
    for row_ids, row in zip(columns.tolist(), values.tolist(), strict=True):
        possible = [(token, log) for token, log in zip(row_ids, row, strict=True) if log > -1e9]
        ids.append([token for token, _ in possible])
        logs.append([log for _, log in possible])
    ranked = sorted(
        (
            (running.total + log, row, column)
            for row, running in enumerate(beam.running)
            for column, log in enumerate(logs[row])
        ),
        reverse=True,
    )
    branches = [_branch(beam, ids, logs)]
    for (upper, *_), (lower, row, column) in itertools.pairwise(ranked[:width]):
        if upper - lower < slack:
            swapped = [list(each) for each in logs]
            swapped[row][column] += upper - lower + 1e-9
            branches.append(_branch(beam, ids, swapped))
    distinct = {_state(branch): branch for branch in reversed(branches)}
    return [turned for branch in distinct.values() for turned in _stopped(branch, slack)]


def _branch(
    beam: ReferenceBeam, ids: Sequence[Sequence[int]], logs: Sequence[Sequence[float]]
) -> ReferenceBeam:
    branch = copy.deepcopy(beam)
    branch.advance(ids, logs)
    return branch


def _state(beam: ReferenceBeam) -> tuple[frozenset[Tokens], frozenset[Tokens]]:
    running = frozenset(one.token_ids for one in beam.running)
    return running, frozenset(one.token_ids for one in beam.finished)


def _stopped(beam: ReferenceBeam, slack: float) -> list[ReferenceBeam]:
    """The beam, and the alternative if it nearly continued or nearly ended."""
    options = beam.options
    if not beam.running or len(beam.finished) < options.beam_size:
        return [beam]
    if options.early_stopping != "heuristic":
        return [beam]
    best = beam.running[0]
    margin = beam.finished[-1].score - options.score(best.total, len(best.token_ids))
    if abs(margin) >= slack:
        return [beam]
    other = copy.deepcopy(beam)
    other.done = not beam.done
    return [beam, other]
