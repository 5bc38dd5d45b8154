"""Describes the models and languages that a caller may use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.calls.backend import Backend
from service.calls.call_context import current_call
from service.models.lifecycle.interface import ModelState
from service.models.served_model import ServedModel


@dataclass(frozen=True)
class ModelStatus:
    """A model and its state."""

    model: ServedModel
    state: ModelState


@dataclass(frozen=True)
class LanguageGroup:
    """Directions of models that have the same: each of `sources` into each other of `targets`."""

    sources: Sequence[str]
    targets: Sequence[str]
    models: Sequence[str]


def list_models(backend: Backend) -> list[ModelStatus]:
    """The models that the caller may use. Raises UnavailableError."""
    return [_status(backend, model) for model in backend.allowed_models]


def get_model(backend: Backend, name: str) -> ModelStatus:
    """The model with a name.

    Raises:
        PermissionDeniedError: the caller may not use it.
        NotFoundError: there is no such model.
        UnavailableError: the models are loading.
    """
    current_call().grant.check_models([name])
    return _status(backend, backend.registry.get(name))


def list_languages(backend: Backend) -> list[LanguageGroup]:
    """The directions of the models that the caller may use. Raises UnavailableError."""
    names: dict[tuple[Sequence[str], Sequence[str]], list[str]] = {}
    for model in backend.allowed_models:
        directions = model.directions
        names.setdefault((directions.sources, directions.targets), []).append(model.name)
    return [LanguageGroup(*languages, models) for languages, models in names.items()]


def reachable_targets(backend: Backend, model: str = "") -> Mapping[str, Sequence[str]]:
    """The languages that the caller can translate into, by the language of the texts.

    Args:
        backend: parts of the server.
        model: the only model that translates; "" for any, or two through a pivot language.

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
    # Alone, it has no pivot: what it translates into may be what it translates from.
    targets = chosen.directions.targets
    return {
        source: [target for target in targets if chosen.fits(source, target)]
        for source in chosen.directions.sources
    }


def _status(backend: Backend, model: ServedModel) -> ModelStatus:
    return ModelStatus(model, backend.registry.lifecycles[model.name].state)
