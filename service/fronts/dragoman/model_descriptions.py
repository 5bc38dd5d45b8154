"""Describes models to clients."""

from __future__ import annotations

from dragoman.v1 import translation_pb2 as pb
from model.bundle.directions import Directions
from service.fronts.dragoman.conversions import describe_search
from service.models.lifecycle.interface import ModelState
from service.models.served_model import ServedModel

MAX_PAIRS = 100
"""Directions that a model is described with one by one; others are listed as languages."""

_STATES = {
    ModelState.SERVING: pb.MODEL_STATE_SERVING,
    ModelState.ASLEEP: pb.MODEL_STATE_ASLEEP,
    ModelState.LOADING: pb.MODEL_STATE_LOADING,
}


def describe(model: ServedModel, state: ModelState) -> pb.Model:
    """A model as ListModels and GetModel describe it."""
    limits = model.translator.limits
    return pb.Model(
        name=model.name,
        version=model.version,
        language_pairs=_pairs(model.directions),
        source_language_codes=model.directions.sources,
        target_language_codes=model.directions.targets,
        precision=model.precision,
        device=model.device,
        limits=pb.ModelLimits(
            max_contents=limits.max_texts,
            max_content_characters=limits.max_characters,
            max_source_tokens=model.translator.max_source_tokens,
            max_target_tokens=model.translator.max_target_tokens,
            max_rows=model.engine.limits.max_rows,
        ),
        can_score=model.engine.can_score,
        state=_STATES[state],
        origin=model.origin,
        default_search=describe_search(
            model.translator.default_options.search, model.translator.tokenizer.target
        ),
    )


def _pairs(directions: Directions) -> list[pb.LanguagePair]:
    """Each direction, unless there are too many to list."""
    if directions.count > MAX_PAIRS:
        return []
    return [
        pb.LanguagePair(source_language_code=source, target_language_code=target)
        for source, target in directions
    ]
