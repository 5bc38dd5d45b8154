"""Describes the models and languages that a caller may use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from service.calls.backend import Backend
from service.calls.call_context import current_call
from service.models.lifecycle.interface import ModelState
from service.models.reachable import PivotGroup, Reachable
from service.models.served_model import ServedModel

Languages = tuple[str, ...]


def list_models(backend: Backend) -> list[tuple[ServedModel, ModelState]]:
    """The models that the caller may use, and their states. Raises UnavailableError."""
    return [_with_state(backend, model) for model in backend.allowed_models]


def get_model(backend: Backend, name: str) -> tuple[ServedModel, ModelState]:
    """The model with a name, and its state.

    Raises:
        PermissionDeniedError: the caller may not use it.
        NotFoundError: there is no such model.
        UnavailableError: the models are loading.
    """
    current_call().grant.check_models([name])
    return _with_state(backend, backend.registry.get(name))


def list_languages(backend: Backend) -> dict[tuple[Languages, Languages], list[str]]:
    """The models that the caller may use, by source and target languages. Raises UnavailableError.

    A model translates from each of its source languages into each other of its target languages.
    """
    names: dict[tuple[Languages, Languages], list[str]] = {}
    for model in backend.allowed_models:
        languages = model.directions.sources, model.directions.targets
        names.setdefault(languages, []).append(model.name)
    return names


def list_pivots(backend: Backend) -> list[PivotGroup]:
    """Directions that pairs of models translate for the caller, where no model does directly.

    Raises UnavailableError.
    """
    return backend.registry.pivot_groups(backend.allowed_models)


def reachable_targets(backend: Backend, model: str = "") -> Mapping[str, Sequence[str]]:
    """The languages that the caller can translate into, by the language of the texts.

    Args:
        model: name of the only model that counts; "" for all models, and for pairs of models that
            translate through a pivot language.

    Raises:
        NotFoundError: there is no such model.
        PermissionDeniedError: the caller may not use it.
        UnavailableError: the models are loading.
    """
    registry = backend.registry
    if not model:
        return registry.reachable_targets(backend.allowed_models)
    chosen = registry.get(model)
    current_call().grant.check_models([model])
    return Reachable([chosen], pivots=()).targets()


def _with_state(backend: Backend, model: ServedModel) -> tuple[ServedModel, ModelState]:
    return model, backend.registry.lifecycles[model.name].state
