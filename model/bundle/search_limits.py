"""Limits of search options in requests, bundles and imported models.

Free of torch, so that the server can use it.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Literal, get_args

LengthPenaltyKind = Literal["power", "gnmt"]
EarlyStopping = Literal["heuristic", "first", "never"]

# Larger ones are of no use, and would overflow: a million tokens ^ 50 is 1e300.
_MAX_LENGTH_PENALTY = 50.0
_MAX_REPETITION_PENALTY = 100.0
# Each costs every row of the batch one more candidate.
MAX_SUPPRESSED = 256
# Rows of a batch, of which a beam needs as many as it is wide.
MAX_ROWS = 4096


class SearchLimitError(ValueError):
    """An option of a search is out of range.

    Attributes:
        field: the option.
        description: its limit.
    """

    def __init__(self, field: str, description: str) -> None:
        super().__init__(f"{field}: {description}")
        self.field = field
        self.description = description


def check_search(
    *,
    max_new_tokens: int | None = None,
    beam_size: int = 1,
    length_penalty: float = 1.0,
    length_penalty_kind: str = "power",
    early_stopping: str = "heuristic",
    min_new_tokens: int = 0,
    suppressed_ids: Sized = (),
    repetition_penalty: float = 1.0,
    no_repeat_ngram_size: int = 0,
) -> None:
    """Compare options, by the names of `service.domain.requests.SearchOptions`, with their range.

    Raises:
        SearchLimitError: a value is out of range.
    """
    if max_new_tokens is not None:
        _check_at_least("max_new_tokens", max_new_tokens, 1)
    _check_at_least("beam_size", beam_size, 1)
    check_between("length_penalty", length_penalty, -_MAX_LENGTH_PENALTY, _MAX_LENGTH_PENALTY)
    _check_one_of("length_penalty_kind", length_penalty_kind, get_args(LengthPenaltyKind))
    _check_one_of("early_stopping", early_stopping, get_args(EarlyStopping))
    _check_at_least("min_new_tokens", min_new_tokens, 0)
    _check_at_most("suppressed_ids", len(suppressed_ids), MAX_SUPPRESSED)
    check_between("repetition_penalty", repetition_penalty, 1.0, _MAX_REPETITION_PENALTY)
    _check_at_least("no_repeat_ngram_size", no_repeat_ngram_size, 0)


def check_search_fits(
    *,
    max_new_tokens: int | None,
    min_new_tokens: int,
    no_repeat_ngram_size: int,
    beam_size: int,
    max_target_positions: int,
    max_rows: int,
    vocab_size: int,
) -> None:
    """Compare options with what a model can hold.

    Raises:
        SearchLimitError: the model can never do such a search.
    """
    _check_at_most("max_new_tokens", max_new_tokens or 1, max_target_positions)
    _check_at_most("min_new_tokens", min_new_tokens, max_target_positions)
    if max_new_tokens is not None and min_new_tokens > max_new_tokens:
        raise SearchLimitError(
            "min_new_tokens", f"{min_new_tokens} is more than max_new_tokens, {max_new_tokens}"
        )
    _check_at_most("no_repeat_ngram_size", no_repeat_ngram_size, max_target_positions)
    # A step takes twice as many candidates as there are hypotheses.
    _check_at_most("beam_size", beam_size, min(max_rows, vocab_size // 2))


def _check_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise SearchLimitError(name, f"must be at least {least}, not {value}")


def _check_at_most(name: str, value: int, most: int) -> None:
    if value > most:
        raise SearchLimitError(name, f"{value} is more than {most}, the limit")


def check_between(name: str, value: float, least: float, most: float) -> None:
    """Raises SearchLimitError if `value` is not from `least` to `most`, as NaN is."""
    if not least <= value <= most:
        raise SearchLimitError(name, f"must be between {least:g} and {most:g}, not {value}")


def _check_one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise SearchLimitError(name, f"must be one of {', '.join(allowed)}, not {value!r}")
