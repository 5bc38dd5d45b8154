"""Attention weights of a bundle in this process, without a server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.exits import fail, require_runtime

if TYPE_CHECKING:
    from dragoman.client import AttentionView
    from dragoman.v1 import translation_pb2 as pb
    from model.bundle.bundle import Bundle


def attention_of_bundle(path: Path, text: str, translation: str, **options: Any) -> AttentionView:
    """The result of `Client.attention`, by the same code that serves it; otherwise fails.

    Args:
        translation: its translation; "" for the model's own.
        options: as of `Client.attention`.
    """
    require_runtime("cpu")
    from dragoman import conversions, requests
    from dragoman.v1 import translation_pb2 as pb
    from model.bundle.bundle import Bundle
    from model.bundle.directions import DirectionError
    from model.bundle.manifest import BundleError
    from model.bundle.tokenizer import TokenizerError
    from service.errors import DragomanError

    try:
        source, target = options.pop("source"), options.pop("target")
        request = requests.attention_request(
            text, translation, source, target, "", requests.attention_options(**options)
        )
        response = asyncio.run(_answered(Bundle.load(path), request))
    except DirectionError as exc:
        fail(f"--{'from' if exc.side == 'source' else 'to'}: {exc}")
    except (BundleError, TokenizerError, DragomanError, ValueError) as exc:
        fail(in_options(str(exc)))
    assert isinstance(response, pb.AttentionResponse)
    return conversions.attention_view(response, (), text)


def in_options(message: str) -> str:
    """An error of the contract's fields, in the command's options."""
    for field, option in (("layers", "--layer"), ("heads", "--head"), ("kinds", "--kind")):
        message = message.replace(f"options.{field}:", f"{option}:")
    return message


async def _answered(bundle: Bundle, request: pb.AttentionRequest) -> pb.AttentionResponse:
    from model.bundle.sessions import SessionSettings
    from service.domain.attention import AttentionShape
    from service.engine.engine import Engine, EngineConfig
    from service.fronts.dragoman.conversions import attention_options_of, attention_response
    from service.runtime.cpu.runner import OnnxRunner
    from service.runtime.scoring import OnnxScorer
    from service.translation.default_search import default_search
    from service.translation.translator import Translator

    directions, search = bundle.directions, default_search(bundle)
    sessions = SessionSettings()
    runner = OnnxRunner(bundle, max_rows=search.beam_size, sessions=sessions)
    scorer = None
    if bundle.scoring_path is not None:
        scorer = OnnxScorer(bundle, sessions, runner.encoder_session)
    engine = Engine(
        runner,
        EngineConfig(bos_id=bundle.config.bos_id, eos_id=bundle.config.eos_id),
        scorer=scorer,
    )
    translator = Translator(
        engine,
        bundle.tokenizer(),
        source_language=bundle.source_language,
        directions=None if directions.is_one else directions,
        default_search=search,
        attention=AttentionShape.of(bundle),
    )
    await engine.start()
    try:
        source, target = directions.choose(
            request.source_language_code, request.target_language_code
        )
        between = translator.between(source, target)
        options = attention_options_of(request.options, translator.default_options)
        result = await between.attention.extract(
            request.source_text, request.translated_text, options
        )
        return await attention_response(result, bundle.name)
    finally:
        await engine.stop()
