"""A checkpoint: what training leaves behind and export reads.

A folder with `config.json`, `model.safetensors`, `tokenizer.model` and, where one made it, the
recipe. Tied matrices are stored once.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from model.bundle.config import AlignmentHead, ConfigError, ModelConfig
from model.bundle.tokenizer import TOKENIZER_FILE, Tokenizer, TokenizerError
from model.network.transformer import Transformer

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
RECIPE_FILE = "recipe.toml"
FORMAT_VERSION = 1
_TEMPORARY_MARK = "partial-"  # files of other programs are left alone

_DTYPES = {"fp32": torch.float32, "fp16": torch.float16}


class CheckpointError(ValueError):
    """A checkpoint cannot be read. The message names the file."""


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint.

    Attributes:
        model: the network in evaluation mode, in float32 however it was stored.
        languages: {"source": code, "target": code}.
        provenance: origin of the weights.
        alignment_head: the head that was trained to align; None if none was.
        trained_length: tokens of a source, end-of-sentence included, up to which the training text
            had enough examples; None in checkpoints that do not say.
    """

    model: Transformer
    config: ModelConfig
    tokenizer: Tokenizer
    languages: Mapping[str, str]
    provenance: Mapping[str, Any]
    alignment_head: AlignmentHead | None = None
    trained_length: int | None = None


def save_checkpoint(
    folder: Path,
    model: Transformer,
    tokenizer: Tokenizer,
    *,
    languages: Mapping[str, str],
    provenance: Mapping[str, Any] | None = None,
    recipe: str | None = None,
    alignment_head: AlignmentHead | None = None,
    trained_length: int | None = None,
    dtype: Literal["fp32", "fp16"] = "fp32",
) -> None:
    """Write a checkpoint. `folder` is replaced only when the new one is complete.

    One process at a time may write to `folder`: what another one left behind when it was killed
    half-way is removed.

    Args:
        languages: {"source": code, "target": code}.
        provenance: plain JSON values that say where the weights come from.
        alignment_head: the head that was trained to align.
        trained_length: as in `Checkpoint`.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{folder.name}.{_TEMPORARY_MARK}"
    for left in folder.parent.glob(glob.escape(prefix) + "*"):
        shutil.rmtree(left, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    config: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "model": model.config.to_dict(),
        "languages": dict(languages),
        "provenance": dict(provenance or {}),
    }
    if alignment_head is not None:
        config["alignment"] = asdict(alignment_head)
    if trained_length is not None:
        config["trained_length"] = trained_length
    (temporary / CONFIG_FILE).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    if recipe is not None:
        (temporary / RECIPE_FILE).write_text(recipe, encoding="utf-8")
    (temporary / TOKENIZER_FILE).write_bytes(tokenizer.serialized())
    tensors = {
        name: tensor.detach().to("cpu", _DTYPES[dtype]).contiguous()
        for name, tensor in _distinct(model).items()
    }
    safetensors.torch.save_file(tensors, temporary / WEIGHTS_FILE)
    # safetensors and mkdtemp make private files; a checkpoint is to be read by others.
    temporary.chmod(0o755)
    for file in temporary.iterdir():
        file.chmod(0o644)
    if folder.exists():
        shutil.rmtree(folder)
    os.replace(temporary, folder)


def checkpoint_folder(path: Path) -> Path:
    """The folder of a checkpoint: `path` or, in the folder of a run, its best one.

    That is `final` when the run has ended, and `best` until then.
    """
    places = (path, path / "final", path / "best")
    return next((place for place in places if (place / CONFIG_FILE).is_file()), path)


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read what `save_checkpoint` wrote.

    Args:
        folder: a checkpoint's folder, or a run's, as in `checkpoint_folder`.

    Raises:
        CheckpointError: a file is missing, damaged or of another format.
    """
    folder = checkpoint_folder(folder)
    config_path = folder / CONFIG_FILE
    try:
        fields = json.loads(config_path.read_text(encoding="utf-8"))
        if fields["format_version"] != FORMAT_VERSION:
            raise CheckpointError(
                f"{config_path}: format_version is {fields['format_version']}, "
                f"this program reads {FORMAT_VERSION}"
            )
        config = ModelConfig.from_dict(fields["model"])
        languages = fields["languages"]
        alignment_head = _alignment_head(fields, config)
        trained_length = _trained_length(fields)
    except OSError as exc:
        raise CheckpointError(f"{config_path}: {exc.strerror}; is this a checkpoint?") from exc
    except KeyError as exc:
        raise CheckpointError(f"{config_path}: there is no field {exc}") from exc
    except (json.JSONDecodeError, UnicodeDecodeError, TypeError, ConfigError) as exc:
        raise CheckpointError(f"{config_path}: {exc}") from exc
    try:
        tokenizer = Tokenizer.load(folder / TOKENIZER_FILE)
    except TokenizerError as exc:
        raise CheckpointError(str(exc)) from exc
    if tokenizer.vocab_size != config.vocab_size:
        raise CheckpointError(
            f"{folder / TOKENIZER_FILE} has {tokenizer.vocab_size} pieces, "
            f"the model's vocab_size is {config.vocab_size}"
        )
    model = Transformer(config)
    _load_weights(model, folder / WEIGHTS_FILE)
    model.eval()
    return Checkpoint(
        model,
        config,
        tokenizer,
        languages,
        fields.get("provenance", {}),
        alignment_head,
        trained_length,
    )


def _alignment_head(fields: Mapping[str, Any], config: ModelConfig) -> AlignmentHead | None:
    if "alignment" not in fields:
        return None
    found = AlignmentHead(**fields["alignment"])
    found.check(config)
    return found


def _trained_length(fields: Mapping[str, Any]) -> int | None:
    length = fields.get("trained_length")
    if length is not None and (type(length) is not int or length < 2):
        raise ConfigError(f"trained_length must be an integer of at least 2, not {length!r}")
    return length


def _distinct(model: Transformer) -> dict[str, Tensor]:
    """The state dict with every shared matrix under the first of its names only."""
    seen: set[int] = set()
    distinct = {}
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            distinct[name] = tensor
    return distinct


def _load_weights(model: Transformer, path: Path) -> None:
    try:
        tensors = safetensors.torch.load_file(path)
    except OSError as exc:
        raise CheckpointError(f"{path}: {exc.strerror or exc}") from exc
    except SafetensorError as exc:
        raise CheckpointError(f"{path}: damaged: {exc}") from exc
    expected = _distinct(model)
    for problem, names in (
        ("missing", expected.keys() - tensors.keys()),
        ("unknown", tensors.keys() - expected.keys()),
    ):
        if names:
            raise CheckpointError(f"{path}: {problem} tensor {sorted(names)[0]!r}")
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            raise CheckpointError(
                f"{path}: {name} has shape {list(tensor.shape)}, "
                f"the configuration says {list(expected[name].shape)}"
            )
    # Tied names share storage, so copying into the stored name fills the others too.
    with torch.no_grad():
        for name, tensor in tensors.items():
            expected[name].copy_(tensor)
