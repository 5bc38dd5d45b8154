"""Extracts attention weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from service.calls.backend import Backend, call_arguments
from service.calls.call_context import current_call
from service.calls.charging import charge, prioritized
from service.calls.requests import ModelRequest
from service.calls.routes import named_route
from service.models.routing import Route
from service.translation.attention import AttentionOptions, AttentionResult
from service.translation.options import TranslateOptions


async def attention(
    backend: Backend,
    pair: tuple[str, str],
    request: ModelRequest,
    options: Callable[[TranslateOptions], AttentionOptions],
) -> tuple[AttentionResult, Route]:
    """The attention weights of a text and its translation, and the route of the model.

    If the translation is "", the model makes it. `options` is a function from the model's default
    options to those of the request. Raises DragomanError.
    """
    request = charge(request, [pair])
    route = named_route(backend, request)
    async with backend.registry.lease(route) as served:
        translator = served.legs[0].translator
        asked = options(translator.default_options)
        asked = dataclasses.replace(asked, translation=prioritized(asked.translation, request))
        result = await translator.attention.extract(*pair, asked, **call_arguments())
    backend.count([result])
    current_call().facts["texts"] = 1
    return result, route
