"""The files of a Hugging Face model directory: configurations and tensors."""

from __future__ import annotations

import json
import pickle
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from export.errors import ExportError
from export.huggingface.defaults import with_defaults
from model.bundle.manifest import file_sha256

CONFIG_FILE = "config.json"
_POINTER = b"version https://git-lfs.github.com/spec"
_SAFETENSORS, _PICKLED = "model.safetensors", "pytorch_model.bin"
LARGEST_GROWTH = 16
"""Times the bytes of its files that a model can take: float16 becomes float32, and a matrix can
have four names. What would take more was made to do so."""


@dataclass(frozen=True)
class ModelDirectory:
    """A directory in which `transformers` saved a model.

    Attributes:
        config: its config.json, with the values of fields that it leaves out.
        generation: default search: generation_config.json, or else what old versions wrote into
            config.json.
        tokenizer: its tokenizer_config.json; empty if there is none.
    """

    path: Path
    config: Mapping[str, Any]
    generation: Mapping[str, Any]
    tokenizer: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> ModelDirectory:
        """The directory's configurations; weights are read by `tensors`.

        Raises:
            ExportError: it is no such directory, or a file can't be read; names it.
        """
        if not path.is_dir():
            raise ExportError(f"{path} is not a directory: download the model's files into one")
        if not (path / CONFIG_FILE).is_file():
            raise ExportError(f"{path} has no {CONFIG_FILE}: it is not a Hugging Face model")
        config = with_defaults(read_json(path / CONFIG_FILE))
        generation = _read_optional(path / "generation_config.json") or config
        return cls(path, config, generation, _read_optional(path / "tokenizer_config.json"))

    @property
    def config_file(self) -> Path:
        """The file that describes the network."""
        return self.path / CONFIG_FILE

    def name_of(self, field: str) -> str:
        """The name of a field of config.json in that file."""
        return field

    def file(self, name: str) -> Path:
        """A file that the model needs.

        Raises:
            ExportError: it is missing.
        """
        file = self.path / name
        if not file.is_file():
            raise ExportError(f"{file} is missing: download it to the model's other files")
        refuse_pointer(file)
        return file

    def content(self, name: str) -> bytes:
        """The bytes of a file that the model needs.

        Raises:
            ExportError: it is missing or can't be read.
        """
        file = self.file(name)
        try:
            return file.read_bytes()
        except OSError as exc:
            raise ExportError(f"{file}: {exc.strerror}") from exc

    def checksums(self) -> dict[str, str]:
        """Facts that identify the model."""
        return {"config_sha256": file_sha256(self.path / CONFIG_FILE)}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """All weights by name, in float32.

        Raises:
            ExportError: there are no weights, or a file is damaged; names it.
        """
        left = LARGEST_GROWTH * self.num_weight_bytes
        for file in self.weight_files():
            read = _read_pickled if file.suffix == ".bin" else _read_safetensors
            for name, tensor in read(file):
                _check_tensor(file, name, tensor)
                left -= 4 * tensor.numel()
                if left < 0:
                    raise ExportError(
                        f"{file}: the weights up to {name!r} would take more than "
                        f"{LARGEST_GROWTH} times the bytes of the files"
                    )
                yield name, tensor.float() if tensor.is_floating_point() else tensor

    @property
    def num_weight_bytes(self) -> int:
        """Size of the files with the weights."""
        return sum(file.stat().st_size for file in self.weight_files())

    def weight_files(self) -> list[Path]:
        """The files with the weights.

        Raises:
            ExportError: there are no weights, or one is missing; names it.
        """
        for name in (_SAFETENSORS, _PICKLED):
            if (self.path / name).is_file():
                return [self.file(name)]
            index = self.path / f"{name}.index.json"
            if index.is_file():
                parts = read_json(index).get("weight_map")
                if not isinstance(parts, dict):
                    raise ExportError(f"{index} has no weight_map: download it again")
                for part in parts.values():
                    if not isinstance(part, str) or Path(part).name != part:
                        raise ExportError(f"{index}: {part!r} is not a file of this directory")
                return [self.file(part) for part in sorted(set(parts.values()))]
        raise ExportError(f"{self.path} has neither {_SAFETENSORS} nor {_PICKLED}")


def refuse_pointer(file: Path) -> None:
    """Refuse a Git LFS pointer, which `git clone` without Git LFS leaves in place of a file.

    Raises:
        ExportError: it is one, or can't be read; names it.
    """
    try:
        with file.open("rb") as reader:
            is_pointer = reader.read(len(_POINTER)) == _POINTER
    except OSError as exc:
        raise ExportError(f"{file}: {exc.strerror}") from exc
    if is_pointer:
        raise ExportError(f"{file} is a Git LFS pointer, not the file itself: run git lfs pull")


def refuse_inflated(file: Path) -> None:
    """Refuse a ZIP archive with far more content than its size: weights hardly compress.

    Raises:
        ExportError: it does; names it.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except (OSError, ValueError, EOFError, NotImplementedError, zipfile.BadZipFile):
        return  # other programs say what is wrong with it
    if size > LARGEST_GROWTH * file.stat().st_size:
        raise ExportError(
            f"{file} holds {size:,} bytes in {file.stat().st_size:,}: it is no file of weights"
        )


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        ExportError: the file can't be read or is something else; names it.
    """
    refuse_pointer(file)
    try:
        return parse_json(file.read_bytes(), file)
    except OSError as exc:
        raise ExportError(f"{file}: {exc.strerror}") from exc


def parse_json(content: bytes, file: Path) -> dict[str, Any]:
    """A JSON object, from the bytes of a file.

    Raises:
        ExportError: they are something else; names the file.
    """
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as exc:
        raise ExportError(f"{file} is not JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise ExportError(f"{file} is not a JSON object")
    return value


def _read_optional(file: Path) -> dict[str, Any]:
    return read_json(file) if file.is_file() else {}


def _read_safetensors(file: Path) -> Iterator[tuple[str, Tensor]]:
    try:
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  (it is no dictionary)
                # A copy: the mapped file's pages would count beside it where the tensor is changed.
                yield name, tensors.get_tensor(name).clone()
    except (SafetensorError, OSError) as exc:
        raise ExportError(f"{file} is damaged: {exc}") from exc


def _check_tensor(file: Path, name: str, tensor: Tensor) -> None:
    is_plain = tensor.layout is torch.strided and tensor.device.type == "cpu"
    if not is_plain or tensor.is_quantized or tensor.is_complex():
        raise ExportError(f"{file}: {name!r} is not a plain array of numbers ({tensor.dtype})")


def _read_pickled(file: Path) -> Iterator[tuple[str, Tensor]]:
    refuse_inflated(file)
    try:  # weights_only: a pickle could hold code, which is never run
        with warnings.catch_warnings(action="ignore"):  # the error says more than the warning
            tensors = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as exc:
        raise ExportError(
            f"{file} is damaged, or holds other data than weights; nothing of it was run. Use "
            f"a copy in the format safetensors"
        ) from exc
    except (RuntimeError, OSError, EOFError, ValueError, KeyError) as exc:
        raise ExportError(f"{file} is damaged: {exc}") from exc
    if not isinstance(tensors, dict):
        raise ExportError(f"{file} holds no weights by name")
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise ExportError(f"{file}: {name!r} is not a tensor")
        yield name, tensor
