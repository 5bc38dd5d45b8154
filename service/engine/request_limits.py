"""Checks a request against a model's limits, and bounds the length of its answer."""

from __future__ import annotations

from model.bundle.limits import default_max_new_tokens
from service.domain.plan import RunnerLimits
from service.domain.requests import GenerationRequest, ScoringRequest
from service.errors import InvalidArgumentError


def check_fits(request: GenerationRequest, limits: RunnerLimits, widest: RunnerLimits) -> None:
    """Compare a request with the model's limits.

    Args:
        request: the request to check.
        limits: the model's limits.
        widest: limits of a single sequence.

    Raises:
        InvalidArgumentError: the model cannot take the request; names the field and the limit.
    """
    _check_length("source_ids", len(request.source_ids), limits.max_source_positions)
    if isinstance(request, ScoringRequest):
        _check_length("target_ids", len(request.target_ids), limits.max_target_positions)
    else:
        request.options.check_fits(widest)


def max_new_tokens(request: GenerationRequest, limits: RunnerLimits) -> int:
    """Most new tokens of a checked request: its own bound, or a default within the model's."""
    if isinstance(request, ScoringRequest):
        return len(request.target_ids)
    options, most = request.options, limits.max_target_positions
    if options.max_new_tokens is not None:
        return options.max_new_tokens
    # Forced tokens are added to the default; with a minimum, there must be room for EOS after it.
    default = len(options.prefix_ids) + default_max_new_tokens(len(request.source_ids), most)
    return min(most, max(default, options.min_new_tokens + 1))


def _check_length(field: str, length: int, most: int) -> None:
    if not 1 <= length <= most:
        raise InvalidArgumentError(field, f"{length} tokens; must be between 1 and {most}")
