"""Changes to a foreign model's directory."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch


def only_pickled(path: Path, content: Any) -> Path:
    (path / "model.safetensors").unlink()
    torch.save(content, path / "pytorch_model.bin", pickle_module=pickle)
    return path / "pytorch_model.bin"
