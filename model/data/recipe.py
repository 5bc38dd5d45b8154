"""A training run as a file: what to train, on what, and how. Read from TOML, checked once."""

from __future__ import annotations

import itertools
import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from model.bundle.config import (
    PRESETS,
    AlignmentHead,
    ConfigError,
    ModelConfig,
    default_alignment_layer,
    preset,
)
from model.data.recipe_sections import (
    Corpus,
    Data,
    GuidedAlignment,
    Languages,
    Optimization,
    Saving,
    Section,
    Validation,
    Vocabulary,
)

DATA_ROOT_VARIABLE = "DRAGOMAN_DATA_ROOT"


STATE_FILE = "state.pt"
"""The file in a run's folder that holds the state of the run."""


class RecipeError(ValueError):
    """A recipe cannot be used. The message names the file and the field."""


class Recipe(Section):
    """A whole training run.

    Attributes:
        name: name in reports and checkpoints.
        output: folder of the run, relative to the current directory.
        extends: base recipe, relative to this file. Fields here replace those of the base; `model`
            replaces its whole table.
        model: `preset` and any field of `ModelConfig`.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    output: Path
    extends: Path | None = None
    languages: Languages
    data: Data
    vocabulary: Vocabulary = Vocabulary()
    model: dict[str, Any]
    optimization: Optimization
    alignment: GuidedAlignment = GuidedAlignment()
    validation: Validation = Validation()
    saving: Saving = Saving()
    _text: str = PrivateAttr("")

    @property
    def text(self) -> str:
        """The file that it was read from, word for word: free of this machine's paths."""
        return self._text

    def decisive_fields(self) -> dict[str, Any]:
        """Settings that a run may not change when it goes on: its weights depend on them.

        The end of a run may change: `max_updates`, the cooldown and guided alignment.
        """
        left_out = {"max_updates", "cooldown_updates"}
        if self.optimization.optimizer == "adamw":  # states of older versions lack these
            left_out |= {"optimizer", "muon_learning_rate", "muon_momentum"}
        optimization = self.optimization.model_dump(mode="json", exclude=left_out)
        optimization["init_from"] = self.optimization.init_from is not None  # it may have moved
        return {
            "languages": self.languages.model_dump(),
            "data": {
                "lowercase": self.data.lowercase,
                "max_tokens": self.data.max_tokens,
                "drop_validation_sources": self.data.drop_validation_sources,
                "train": [[corpus.name, corpus.repeat] for corpus in self.data.train],
                "mixture": self.data.mixture_fields(),
            },
            "vocabulary": self.vocabulary.model_dump(),
            "model": self.model,
            "optimization": optimization,
        }

    @model_validator(mode="after")
    def _check_model(self) -> Recipe:
        if self.model.get("preset") not in PRESETS:
            raise ValueError(
                f"model.preset must be one of {', '.join(PRESETS)}, "
                f"not {self.model.get('preset')!r}"
            )
        if "vocab_size" in self.model:
            raise ValueError("model.vocab_size is set by vocabulary.vocab_size")
        config = self.model_config_for(self.vocabulary.vocab_size)
        longest = min(config.num_source_positions, config.num_target_positions)
        if self.data.max_tokens > longest:
            raise ValueError(
                f"data.max_tokens ({self.data.max_tokens}) is more than model.max_positions "
                f"({longest})"
            )
        self.alignment_head(config)
        if self.alignment.weight > 0.0 and config.cross_attention != "full":
            raise ValueError(
                'alignment.weight needs model.cross_attention = "full": other kinds do not say '
                "which source tokens they look at"
            )
        if self.alignment.weight > 0.0 and self.vocabulary.sampling_alpha > 0.0:
            raise ValueError(
                "alignment.weight needs vocabulary.sampling_alpha = 0: alignments are of words in "
                "the likeliest segmentation"
            )
        return self

    def alignment_head(self, config: ModelConfig) -> AlignmentHead | None:
        """The head that learns to align in the network of `config`; None if none does."""
        if self.alignment.weight == 0.0:
            return None
        layer = self.alignment.layer
        head = AlignmentHead(
            default_alignment_layer(config) if layer is None else layer, self.alignment.head
        )
        try:
            head.check(config)
        except ConfigError as exc:
            raise ValueError(str(exc)) from exc
        return head

    def model_config_for(self, vocab_size: int) -> ModelConfig:
        """The network that this recipe asks for, with the actual vocabulary."""
        overrides = {key: value for key, value in self.model.items() if key != "preset"}
        try:
            return preset(self.model["preset"], vocab_size, **overrides)
        except ConfigError as exc:
            raise ValueError(f"model: {exc}") from exc


def load_recipe(path: Path, *, data_root: Path | None = None) -> Recipe:
    """Read a recipe and make its paths absolute.

    Args:
        path: the TOML file. Its paths are relative to the current directory.
        data_root: overrides `data.root`, and so does DRAGOMAN_DATA_ROOT.

    Raises:
        RecipeError: unreadable, not TOML, an unknown field or a bad value.
    """
    try:
        text, changes = path.read_text(encoding="utf-8"), ""
        base = tomllib.loads(text).get("extends")
        if isinstance(base, str):
            text, changes = (path.parent / base).read_text(encoding="utf-8"), text
        recipe = parse_recipe(text, changes)
    except OSError as exc:
        raise RecipeError(f"{exc.filename}: {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise RecipeError(f"{path}: not TOML: {exc}") from exc
    except ValidationError as exc:
        raise RecipeError(f"{path}: {first_error(exc)}") from exc
    return _with_absolute_paths(recipe, Path.cwd(), data_root)


def parse_recipe(text: str, changes: str = "") -> Recipe:
    """A recipe, some fields of which may be replaced; its text holds both.

    Args:
        text: the recipe as TOML.
        changes: TOML whose fields replace those of the recipe; [model] as a whole.

    Raises:
        tomllib.TOMLDecodeError: one of them is not TOML.
        ValidationError: the result is no recipe.
    """
    fields = tomllib.loads(text)
    for name, value in tomllib.loads(changes).items():
        merge = isinstance(value, dict) and name != "model"
        fields[name] = {**fields.get(name, {}), **value} if merge else value
    recipe = Recipe.model_validate(fields)
    if changes:
        commented = "".join(f"# {line}\n" for line in changes.splitlines())
        text = f"{text.rstrip()}\n\n# Trained with these changes:\n{commented}"
    recipe._text = text
    return recipe


def first_error(exc: ValidationError) -> str:
    """The error in a recipe, in one line that names the field."""
    # An unknown field explains a missing one: it is the same, misspelt.
    errors = exc.errors()
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    field = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = "there is no such field (model/RECIPES.md lists all)"
    elif first["type"] not in ("missing", "value_error"):  # those quote it, or there is none
        message = f"{message}, not {first['input']!r}"
    return f"{field}: {message}" if field else message


def check_files(recipe: Recipe) -> None:
    """Look for the corpora before anything takes time.

    Raises:
        RecipeError: a file is missing; names the place, and the reason for that place.
    """
    root = recipe.data.root
    for field, corpora in (("train", recipe.data.train), ("valid", recipe.data.valid)):
        for corpus, side in itertools.product(corpora, ("source", "target")):
            file: Path = getattr(corpus, side)
            if not file.is_file():
                raise RecipeError(
                    f"{file}: there is no such file. It is the {side} of data.{field}, corpus "
                    f"{corpus.name!r}, looked for in the data root {root}"
                    f"{'' if root.is_dir() else ', which is not a folder'}; another one is set by "
                    f"--data-root, by {DATA_ROOT_VARIABLE} or by data.root in the recipe"
                )
    for corpus in recipe.data.train if recipe.alignment.weight > 0.0 else ():
        if not corpus.alignment.is_file():
            raise RecipeError(
                f"{corpus.alignment}: there is no such file, which alignment.weight needs; make it "
                "with python -m model.data.word_alignment"
            )


def _with_absolute_paths(recipe: Recipe, base: Path, data_root: Path | None) -> Recipe:
    variable = os.environ.get(DATA_ROOT_VARIABLE)
    root = data_root or (Path(variable) if variable else None)
    root = root.resolve() if root else (base / recipe.data.root).resolve()

    def resolve(corpora: tuple[Corpus, ...]) -> tuple[Corpus, ...]:
        return tuple(
            c.model_copy(update={"source": root / c.source, "target": root / c.target})
            for c in corpora
        )

    data = recipe.data.model_copy(
        update={
            "root": root,
            "train": resolve(recipe.data.train),
            "valid": resolve(recipe.data.valid),
        }
    )
    optimization = recipe.optimization
    if optimization.init_from is not None:
        optimization = optimization.model_copy(
            update={"init_from": (base / optimization.init_from).resolve()}
        )
    return recipe.model_copy(
        update={
            "data": data,
            "optimization": optimization,
            "output": (base / recipe.output).resolve(),
        }
    )
