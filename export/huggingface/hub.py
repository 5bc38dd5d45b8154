"""Finds a model's directory, on this machine or on the Hugging Face hub."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from export.errors import ExportError

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_FILES = ["*.json", "*.spm", "*.model", "*.txt", "*.safetensors", "pytorch_model*.bin", "README.md"]
_FILES += ["*.npz", "*.yml"]  # native Marian


def locate(source: str, revision: str | None = None) -> tuple[Path, dict[str, Any]]:
    """The directory of a model, and facts about its origin.

    Args:
        source: a directory, or a name on the hub, from which the model is downloaded.
        revision: branch, tag or commit of a model on the hub; by default the newest commit.

    Raises:
        ExportError: there is no such directory, and the hub has no such model or can't be reached.
    """
    path = Path(source)
    if path.exists() or not _HUB_NAME.fullmatch(source):
        return path, {}
    try:
        import huggingface_hub
    except ModuleNotFoundError as exc:
        raise ExportError(
            f"there is no directory {source}; to download a model of this name, pip install "
            f"huggingface_hub"
        ) from exc
    try:
        commit = huggingface_hub.HfApi().model_info(source, revision=revision).sha
        patterns = _FILES
        found = huggingface_hub.snapshot_download(source, revision=commit, allow_patterns=patterns)
    except Exception as exc:  # the library lets through whatever its HTTP client raises
        reason = str(exc).strip().partition("\n")[0]
        raise ExportError(
            f"there is no directory {source}, and the Hugging Face hub gave no model (no "
            f"network?): {reason}"
        ) from exc
    return Path(found), {"hub": source, "revision": commit}
