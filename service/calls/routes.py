"""Chooses the models that answer a request."""

from __future__ import annotations

from model.bundle.languages import is_language_code
from service.calls.backend import Backend
from service.calls.call_context import current_call
from service.calls.requests import ModelRequest
from service.errors import DragomanError, InvalidArgumentError
from service.models.routing import Route

AUTO = "auto"
"""The source language of a request that asks for detection."""


def find_route(backend: Backend, request: ModelRequest, source: str) -> Route:
    """The route of a request.

    Args:
        source: BCP-47 code of the source language; "" if only one is possible.

    Raises:
        InvalidArgumentError: a language is missing, and there are several choices.
        NotFoundError: there is no such model, or none between the languages.
        PermissionDeniedError: the key does not allow a model of the route.
        UnavailableError: the models are loading.
    """
    route = backend.registry.route(
        request.model, source, request.target, allow_pivot=request.allow_pivot
    )
    current_call().grant.check_models(leg.model.name for leg in route.legs)
    return route


def named_route(backend: Backend, request: ModelRequest) -> Route:
    """The route of a request from its source language, noted for the log and the metrics.

    Raises the errors of `find_route`.
    """
    facts = current_call().facts
    try:
        route = find_route(backend, request, request.source)
    except DragomanError:
        facts.update(
            source_language=for_log(request.source), target_language=for_log(request.target)
        )
        raise
    facts.update(
        model=route.model.name,
        source_language=route.legs[0].source,
        target_language=route.legs[-1].target,
    )
    if route.pivot_model:
        facts.update(pivot_model=route.pivot_model, pivot_language=route.pivot_language)
        backend.metrics.call_pivoted(route.pivot_model, route.model.name)
    return route


def route_if_named(backend: Backend, request: ModelRequest) -> Route | None:
    """The route, as `named_route`; None if the language of each text has to be detected.

    Raises the errors of `find_route`.
    """
    if request.source.lower() == AUTO:
        return None
    try:
        return named_route(backend, request)
    except InvalidArgumentError as exc:
        if request.source or exc.field != "source_language_code":
            raise
        return None


def for_log(code: str) -> str:
    """A client's language code, for the log; "invalid" for other text, which logs must not have."""
    return code if not code or is_language_code(code) else "invalid"
