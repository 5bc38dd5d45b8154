"""The plan of a training on one GPU: all its numbers. Read from TOML, checked once."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from model.bundle.config import ModelConfig
from model.data.recipe_sections import Section
from model.gpu.training import TimedSchedule

_FREE_IDS = 8


class TimedTraining(Section):
    """A training of some seconds.

    Attributes:
        seconds: length of the training.
        batch_tokens: tokens on each side of a batch, padding counted.
        rate, matrix_rate, cooldown: as in `TimedSchedule`.
        label_smoothing: probability that label smoothing spreads over the vocabulary.
        max_updates: limit, for a rehearsal.
    """

    seconds: float = Field(gt=0.0)
    batch_tokens: int = Field(ge=16)
    rate: float = Field(gt=0.0)
    matrix_rate: float = Field(gt=0.0)
    cooldown: float = Field(ge=0.0, le=1.0)
    label_smoothing: float = Field(default=0.1, ge=0.0, lt=1.0)
    max_updates: int | None = Field(default=None, ge=1)

    def schedule(self) -> TimedSchedule:
        """The learning rates."""
        return TimedSchedule(self.seconds, self.rate, self.matrix_rate, self.cooldown)


class TeacherPlan(TimedTraining):
    """The teacher, which learns both directions from the pairs.

    Attributes:
        network: fields of `ModelConfig`, without the vocabulary.
        forward_share: share of the target tokens in the target language.
    """

    network: dict[str, Any]
    forward_share: float = Field(gt=0.0, lt=1.0)

    @field_validator("network")
    @classmethod
    def _check_network(cls, network: dict[str, Any]) -> dict[str, Any]:
        _network(network, 0)
        return network

    def network_config(self, num_pieces: int) -> ModelConfig:
        """The network for a vocabulary of `num_pieces`; ids for directions come after these."""
        return _network(self.network, num_pieces)


class TranslationPlan(Section):
    """The back-translation of text in the target language.

    Attributes:
        longest: limit of a sentence in tokens, EOS counted.
        every: only each `every`-th sentence within the limit is translated.
        left_out: share of the translations that are left out, the least confident ones.
        batch_tokens, most_rows: as in `model.gpu.translation.translate`.
    """

    longest: int = Field(ge=2)
    every: int = Field(default=1, ge=1)
    left_out: float = Field(ge=0.0, lt=1.0)
    batch_tokens: int = Field(ge=16)
    most_rows: int = Field(ge=1)


class StudentPlan(TimedTraining):
    """A student, which starts from the weights of a checkpoint.

    Attributes:
        back_share: share of the target tokens that back-translations give, the rest are of pairs.
        alignment_weight: factor on the loss of guided alignment.
        align_after: share of the seconds after which that is added.
    """

    back_share: float = Field(ge=0.0, lt=1.0)
    alignment_weight: float = Field(ge=0.0)
    align_after: float = Field(default=0.5, ge=0.0, le=1.0)


class BackTranslationPlan(Section):
    """A teacher, its back-translations, and a student for each direction.

    Attributes:
        temperature: draws corpora as in `model.data.mixture`.
        longest: limit of a side in tokens, EOS counted.
        weights: factors on corpora's shares, in place of those of the recipe.
        forward: student of the direction of the pairs.
        backward: student of the other direction.
    """

    temperature: float = Field(ge=1.0, le=100.0)
    longest: int = Field(ge=2)
    weights: Mapping[str, float] = {}
    teacher: TeacherPlan
    translation: TranslationPlan
    forward: StudentPlan
    backward: StudentPlan

    @model_validator(mode="after")
    def _check_shares(self) -> BackTranslationPlan:
        if self.backward.back_share > 0.0:
            raise ValueError(
                "backward.back_share must be 0: the teacher translates the target language only"
            )
        return self


def load_plan(path: Path) -> BackTranslationPlan:
    """Read a plan.

    Raises:
        ValueError: not TOML, an unknown or missing field, or a bad value.
    """
    return BackTranslationPlan.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))


def _network(fields: Mapping[str, Any], num_pieces: int) -> ModelConfig:
    return ModelConfig.from_dict({**fields, "vocab_size": num_pieces + _FREE_IDS})
