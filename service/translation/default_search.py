"""The default search of a model's authors, for requests that choose none."""

from __future__ import annotations

import dataclasses
from typing import Any

from model.bundle.bundle import Bundle
from model.bundle.manifest import broken_manifest
from service.domain.plan import RunnerLimits
from service.domain.requests import SearchOptions
from service.errors import InvalidArgumentError, StartupError

# Options that belong to a request.
_NO_DEFAULTS = {"num_hypotheses", "prefix_ids", "sampling", "listed_ids"}
_KNOWN = {field.name for field in dataclasses.fields(SearchOptions)} - _NO_DEFAULTS


def default_search(bundle: Bundle) -> SearchOptions:
    """The bundle's `search`; greedy search if it has none.

    If its limit of tokens is above the model's own, it is lowered. As in requests, language tokens
    don't count.

    Raises:
        BundleCorruptError: a field is unknown or has an invalid value; names it.
    """
    fields: dict[str, Any] = {
        n: tuple(v) if isinstance(v, list) else v for n, v in bundle.search.items()
    }
    if unknown := sorted(fields.keys() - _KNOWN):
        raise broken_manifest(bundle.path, f"search.{unknown[0]} is unknown: update dragoman")
    if type(longest := fields.get("max_new_tokens")) is int:
        num_hidden = len(bundle.manifest["tokenizer"].get("start_ids", ()))
        fields["max_new_tokens"] = min(longest, bundle.max_target_positions - num_hidden)
    size = bundle.config.vocab_size
    if any(type(i) is not int or not 0 <= i < size for i in fields.get("suppressed_ids", ())):
        raise broken_manifest(bundle.path, "search.suppressed_ids are not token ids")
    try:
        return SearchOptions(**fields)
    except InvalidArgumentError as exc:
        raise broken_manifest(bundle.path, f"search.{exc.field}: {exc.description}") from exc
    except TypeError as exc:
        raise broken_manifest(bundle.path, f"search: {exc}") from exc


def check_rows(name: str, search: SearchOptions, limits: RunnerLimits) -> None:
    """Compare a model's default search with its number of rows.

    Raises:
        StartupError: a beam is wider than all rows; says what to do.
    """
    if search.beam_size > limits.max_rows:
        raise StartupError(
            f"the model {name!r} searches with a beam of {search.beam_size} by default, which "
            f"needs as many rows in one lane; there are {limits.max_rows}: raise --max-rows"
        )
