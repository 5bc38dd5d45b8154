"""Directions through a third language, in groups."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from model.bundle.directions import Directions
from service.calls.languages import list_pivots
from service.models.registry import Registry
from service.models.served_model import ServedModel


def pivots(*pairs: str) -> list[tuple[tuple[str, ...], tuple[str, ...], str]]:
    nothing = cast(Any, None)
    models = [
        ServedModel(pair, "1", Directions.one(*pair.split("-")), "int8", "cpu", nothing, nothing)
        for pair in pairs
    ]
    backend = SimpleNamespace(registry=Registry(models), allowed_models=models)
    return list_pivots(cast(Any, backend))


def test_languages_around_english_are_one_group() -> None:
    pairs = [pair for code in ("de", "fr", "ja") for pair in (f"{code}-en", f"en-{code}")]
    [(sources, targets, pivot)] = pivots(*pairs)
    assert pivot == "en"
    assert set(sources) == set(targets) == {"de", "fr", "ja"}


def test_sources_with_the_same_targets_are_one_group() -> None:
    assert pivots("de-en", "ja-en", "en-fr") == [(("de", "ja"), ("fr",), "en")]


def test_a_group_has_only_what_all_its_sources_reach() -> None:
    assert pivots("de-en", "fr-en", "en-fr") == [(("de",), ("fr",), "en")]


def test_without_a_pivot_there_is_no_group() -> None:
    assert pivots("en-de", "en-fr") == []
