"""Translates a text as a stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from service.calls.backend import Backend, call_arguments
from service.calls.call_context import current_call
from service.calls.charging import charge, give_back_cached
from service.calls.detected_texts import DetectedText, detected_texts
from service.calls.requests import TextRequest
from service.calls.routes import route_if_named
from service.calls.text_stages import text_options, text_stages
from service.calls.translate import Translated
from service.domain.requests import FinishReason
from service.text.markup.markup_translator import plain_texts
from service.translation.results import TextResult


async def stream(
    backend: Backend, text: str, request: TextRequest
) -> AsyncGenerator[str | Translated, None]:
    """Yield the parts of a translation as they are made, then the whole. Raises DragomanError."""
    request = charge(request, [text])
    current_call().facts["texts"] = 1
    detected: list[DetectedText] = []
    if (route := route_if_named(backend, request)) is None:
        await backend.any_translator.check_text(text)
        plain = await plain_texts([text], await text_options(request))
        detected = await detected_texts(backend, request, plain, lambda _: "content")
        route, error = detected[0].route, detected[0].error
        if error is not None:
            raise error
    if route is None:  # it is in the target language
        if text:
            yield text
        yield Translated([TextResult(text, FinishReason.EOS)], None, detected)
        return
    async with backend.registry.lease(route) as served:
        translator, options = await text_stages(backend, served, request, streams=True)
        async with aclosing(translator.stream(text, options, **call_arguments())) as events:
            async for event in events:
                if isinstance(event, TextResult):
                    backend.count([event])
                    if backend.cache_is_free:
                        give_back_cached([event], [text])
                    yield Translated([event], route, detected)
                elif event.text:
                    yield event.text
