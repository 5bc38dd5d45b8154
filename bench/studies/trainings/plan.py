"""A plan of trainings to compare: a base recipe, and what each variant of it changes."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bench.studies.trainings.compute import training_multiplications
from model.data.recipe import Recipe, first_error

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_FIELDS = {"question", "base", "equal", "document_tokens", "all", "variants"}
_OWN = ("pairs", "more_text")  # of a variant, not of a recipe
_EQUAL = ("updates", "multiplications", "nothing")


class TrainingPlanError(ValueError):
    """A plan cannot be used. The message names the file and the field."""


@dataclass(frozen=True)
class TrainingVariant:
    """One training of a plan.

    Attributes:
        pairs: training pairs, drawn at random; None takes all.
    """

    name: str
    recipe: Mapping[str, Any]
    pairs: int | None = None


@dataclass(frozen=True)
class TrainingPlan:
    """A comparison of trainings.

    Attributes:
        question: the report's title.
        equal: quantity that all variants share: "updates"; "multiplications" (of a pair of
            `document_tokens` a side), where a cheaper network gets more updates; or "nothing".
        document_tokens: most tokens of the runs that documents are translated in; 0 without
            documents.
    """

    name: str
    question: str
    equal: str
    document_tokens: int
    variants: tuple[TrainingVariant, ...]


def load_plan(path: Path, updates: int | None = None) -> TrainingPlan:
    """Read a plan, a TOML file.

    `base` names a recipe, relative to the plan. The table `all` replaces fields of that recipe for
    all variants, and each table of `variants` for one. A variant may also have `pairs`, and
    `more_text`: corpora in addition to those of the recipe.

    Args:
        updates: number in place of the recipe's `max_updates`, to try the plan out.

    Raises:
        TrainingPlanError: unreadable, an unknown field, or a variant that is no recipe.
    """
    fields = _read(path)
    if unknown := sorted(set(fields) - _FIELDS):
        raise TrainingPlanError(f"{path}: there is no such field: {unknown[0]}")
    for name in ("question", "base", "variants"):
        if not fields.get(name):
            raise TrainingPlanError(f"{path}: {name} is missing")
    equal = fields.get("equal", "updates")
    if equal not in _EQUAL:
        raise TrainingPlanError(f"{path}: equal must be one of {', '.join(_EQUAL)}, not {equal!r}")
    tokens = fields.get("document_tokens", 0)
    if equal == "multiplications" and not tokens:
        raise TrainingPlanError(f'{path}: equal = "multiplications" needs document_tokens')
    base = merged(_read(path.parent / fields["base"]), fields.get("all", {}))
    variants = []
    for name, changes in fields["variants"].items():
        recipe = merged(base, {key: value for key, value in changes.items() if key not in _OWN})
        if more := changes.get("more_text"):
            recipe = merged(recipe, {"data": {"train": [*recipe["data"]["train"], *more]}})
        if updates is not None:
            recipe = merged(recipe, _shortened(recipe, updates))
        recipe |= {"name": f"{path.stem}-{name}", "output": name}
        variants.append(TrainingVariant(name, _checked(recipe, path, name), changes.get("pairs")))
    numbers = {variant.recipe["optimization"]["max_updates"] for variant in variants}
    if equal == "updates" and len(numbers) > 1:
        raise TrainingPlanError(f"{path}: equal: variants differ in optimization.max_updates")
    if equal == "multiplications":
        variants = _with_equal_multiplications(variants, tokens)
    return TrainingPlan(path.stem, fields["question"], equal, tokens, tuple(variants))


def merged(fields: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`fields` with the values of `changes`, table by table."""
    found = dict(fields)
    for name, value in changes.items():
        inner = isinstance(value, Mapping) and isinstance(found.get(name), Mapping)
        found[name] = merged(found[name], value) if inner else value
    return found


def to_toml(fields: Mapping[str, Any]) -> str:
    """A recipe as TOML: plain fields first, then a section for each table."""
    plain = {name: value for name, value in fields.items() if not isinstance(value, Mapping)}
    lines = [f"{_key(name)} = {_value(value)}" for name, value in plain.items()]
    for name, table in fields.items():
        if isinstance(table, Mapping):
            lines += ["", f"[{_key(name)}]"]
            lines += [f"{_key(key)} = {_value(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    # Strings, numbers and booleans look alike in both, but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise TrainingPlanError(f"{path}: {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise TrainingPlanError(f"{path}: not TOML: {exc}") from exc


def _shortened(recipe: Mapping[str, Any], updates: int) -> dict[str, Any]:
    warmup = recipe.get("optimization", {}).get("warmup_updates", updates)
    return {
        "optimization": {
            "max_updates": updates,
            "warmup_updates": max(1, min(warmup, updates // 2)),
            "cooldown_updates": 0,
        },
        "validation": {"every_updates": updates, "max_sentences": 10},
        "saving": {"every_updates": max(1, updates // 2), "average_last": 1},
    }


def _checked(recipe: dict[str, Any], path: Path, name: str) -> dict[str, Any]:
    try:
        Recipe.model_validate(recipe)
    except ValidationError as exc:
        raise TrainingPlanError(f"{path}: variants.{name}: {first_error(exc)}") from exc
    return recipe


def _with_equal_multiplications(
    variants: list[TrainingVariant], tokens: int
) -> list[TrainingVariant]:
    """The variants, with numbers of updates that all cost as much as the first one's."""
    costs = [variant_multiplications(variant, tokens) for variant in variants]
    found = []
    for variant, cost in zip(variants, costs, strict=True):
        updates = round(variant.recipe["optimization"]["max_updates"] * costs[0] / cost)
        changes = {"optimization": {"max_updates": updates}}
        found.append(TrainingVariant(variant.name, merged(variant.recipe, changes), variant.pairs))
    return found


def variant_multiplications(variant: TrainingVariant, tokens: int) -> int:
    """Multiplications of a forward pass of a pair with this number of tokens on either side."""
    recipe = Recipe.model_validate(variant.recipe)
    config = recipe.model_config_for(recipe.vocabulary.vocab_size)
    return training_multiplications(config, tokens, tokens)
