"""Finds the files of a native Marian model, and reads its configuration.

Marian (Junczys-Dowmunt et al., 2018) saves weights and options as `model.npz`, with the options in
the array `special:model.yml`. Beside it lie `decoder.yml`, which names the files and the search,
and a vocabulary for each language.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from export.errors import ExportError
from export.huggingface.directory import refuse_inflated, refuse_pointer

OPTIONS_ARRAY = "special:model.yml"

# Only these values are the Transformer of `model/network/transformer.py`; what is missing has the
# first.
_SUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-decoder-dim-ffn": (0,),
    "transformer-ffn-activation": ("swish", "relu"),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-no-projection": (False,),
    "transformer-no-bias": (False,),
    "transformer-no-affine": (False,),
    "transformer-rms-norm": (False,),
    "transformer-tied-layers": ([],),
    "output-omit-bias": (False,),
    "lemma-dim-emb": (0,),
    "factors-combine": ("sum",),
    "input-types": ([],),
    "right-left": (False,),
    "ulr": (False,),
}
_REASONS = {
    "average-attention": "an average attention network, which is not supported",
    "gelu": "Marian's own approximation of GELU, which is not supported",
}
# The operations before each sublayer, after it and after each stack.
_NORMS = {("", "dan", ""): "post", ("n", "da", "n"): "pre"}


@dataclass(frozen=True)
class MarianFiles:
    """The files of a model.

    Attributes:
        weights: the .npz.
        vocabularies: files of source and target: .yml, .json or .spm each.
        decoder: options of decoder.yml; empty without one.
    """

    weights: Path
    vocabularies: tuple[Path, Path]
    decoder: Mapping[str, Any]

    @classmethod
    def find(cls, path: Path) -> MarianFiles:
        """The files in a directory.

        Raises:
            ExportError: one is missing, or several could be it; names them.
        """
        decoder = _decoder(path)
        models = [path / Path(name).name for name in _texts(decoder, "models")]
        models = models or [f for f in _npz_files(path) if not f.name.endswith(".optimizer.npz")]
        if len(models) != 1:
            names = ", ".join(file.name for file in models) or "none"
            raise ExportError(
                f"{path}: a model is one .npz, not an ensemble; there are {names}: keep one in the "
                f"directory, and in decoder.yml"
            )
        vocabularies = [path / Path(name).name for name in _texts(decoder, "vocabs")]
        vocabularies = vocabularies or _vocabularies(path)
        for file in (*models, *vocabularies):
            if not file.is_file():
                raise ExportError(f"{file} is missing: copy it to the model's other files")
        if len(vocabularies) not in (1, 2):
            raise ExportError(
                f"{path} has {len(vocabularies)} vocabularies: name the source's and the target's "
                f"in decoder.yml (vocabs)"
            )
        return cls(models[0], (vocabularies[0], vocabularies[-1]), decoder)


@dataclass(frozen=True)
class MarianOptions:
    """The options of `special:model.yml` that say what the network is.

    Attributes:
        norm: place of the layer normalisation; see `ModelConfig`.
        num_positions: rows of the learned position table; None for sinusoids.
    """

    fields: Mapping[str, Any]
    norm: str
    num_positions: int | None

    @classmethod
    def read(cls, weights: Path) -> MarianOptions:
        """Read the configuration in a .npz.

        Raises:
            ExportError: it is damaged, or an option has a value that isn't supported; names it.
        """
        with open_npz(weights) as arrays:
            if OPTIONS_ARRAY not in arrays.files:
                raise ExportError(f"{weights} has no {OPTIONS_ARRAY}: it is not a Marian model")
            text = read_array(weights, arrays, OPTIONS_ARRAY).tobytes().rstrip(b"\0")
            learned = "Wpos" in arrays.files
            num_positions = (
                len(np.atleast_1d(read_array(weights, arrays, "Wpos"))) if learned else None
            )
        fields = parse_yaml(text, f"{weights} ({OPTIONS_ARRAY})")
        for name, supported in _SUPPORTED.items():
            value = fields.get(name, supported[0])
            if value not in supported and not (
                name == "transformer-decoder-dim-ffn" and value == fields.get("transformer-dim-ffn")
            ):
                reason = _REASONS.get(str(value), "which is not supported")
                raise ExportError(f"{weights}: {name} is {value!r:.200}, {reason}")
        places = ("preprocess", "postprocess", "postprocess-top")
        norm = tuple(str(fields.get(f"transformer-{place}") or "") for place in places)
        if norm not in _NORMS:
            raise ExportError(
                f"{weights}: transformer-preprocess, -postprocess and -postprocess-top are "
                f"{norm}; supported are {', '.join(map(str, _NORMS))}"
            )
        return cls(fields, _NORMS[norm], num_positions)

    def get(self, name: str, kind: type, default: Any = None) -> Any:
        """An option of this type.

        Raises:
            ExportError: it is missing, or something else.
        """
        value = self.fields.get(name, default)
        if type(value) is not kind:
            raise ExportError(
                f"{OPTIONS_ARRAY}: {name} is {value!r:.200}, not of type {kind.__name__}"
            )
        return value

    @property
    def ties_all(self) -> bool:
        """Whether both embeddings and the output share a matrix."""
        both = self.get("tied-embeddings-src", bool, False) and self.ties_output
        return both or bool(self.get("tied-embeddings-all", bool, False))

    @property
    def ties_output(self) -> bool:
        """Whether the target's embedding and the output share a matrix."""
        return any(self.get(f"tied-embeddings{kind}", bool, False) for kind in ("", "-all"))


def is_marian(path: Path) -> bool:
    """Whether a directory holds a native Marian model, and none of `transformers`."""
    return path.is_dir() and not (path / "config.json").exists() and bool(_npz_files(path))


def open_npz(file: Path) -> Any:
    """The arrays of a file, read when they are asked for.

    Raises:
        ExportError: it can't be read.
    """
    refuse_pointer(file)
    refuse_inflated(file)
    try:
        arrays = np.load(file, allow_pickle=False)
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise ValueError("it is one array")
        return arrays
    except OSError as exc:
        raise ExportError(f"{file}: {exc.strerror or 'is damaged'}") from exc
    except (ValueError, EOFError, MemoryError, zipfile.BadZipFile) as exc:
        raise ExportError(f"{file} is damaged, or no .npz: copy it again") from exc


def read_array(file: Path, arrays: Any, name: str) -> Any:
    """One array of an open file.

    Raises:
        ExportError: it can't be read, or holds Python objects, which could run code.
    """
    try:
        return arrays[name]
    except (
        ValueError,
        OSError,
        EOFError,
        MemoryError,  # it says to have more numbers than there is memory for
        zipfile.BadZipFile,
        NotImplementedError,
    ) as exc:
        raise ExportError(f"{file}: {name!r} is damaged, or no array of numbers: {exc}") from exc


def parse_yaml(text: bytes, where: str) -> dict[str, Any]:
    """Options by name.

    Raises:
        ExportError: they can't be read; `where` is named.
    """
    try:
        import yaml
    except ModuleNotFoundError as exc:
        raise ExportError(f"{where} needs PyYAML: pip install pyyaml") from exc

    class Loader(yaml.SafeLoader):  # type: ignore[misc, unused-ignore]
        """Without aliases, by which a few lines can stand for any number of values."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("aliases (*name) are not supported")
            return super().compose_node(parent, index)

    try:
        value = yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as exc:
        raise ExportError(f"{where} is not YAML: {str(exc).splitlines()[0]}") from exc
    if not isinstance(value, dict):
        raise ExportError(f"{where} holds no options by name")
    return {str(name): each for name, each in value.items()}


def _npz_files(path: Path) -> list[Path]:
    return sorted(path.glob("*.npz"))


def _decoder(path: Path) -> dict[str, Any]:
    candidates = [path / "decoder.yml", *sorted(path.glob("*.decoder.yml"))]
    for file in candidates:
        if file.is_file():
            return parse_yaml(file.read_bytes(), str(file))
    return {}


def _texts(fields: Mapping[str, Any], name: str) -> Sequence[str]:
    values = fields.get(name) or []
    return [str(value) for value in (values if isinstance(values, list) else [values])]


def _vocabularies(path: Path) -> list[Path]:
    """Without decoder.yml: vocab.yml, or one of each language."""
    listed = sorted(
        {*path.glob("*vocab*.yml"), *path.glob("*vocab*.json"), *path.glob("*vocab*.spm")}
    )
    if len(listed) > 1:
        raise ExportError(
            f"{path} has several vocabularies ({', '.join(file.name for file in listed)}): say in "
            f"decoder.yml (vocabs) which is the source's, and which the target's"
        )
    if not listed:
        raise ExportError(f"{path} has no vocabulary: decoder.yml (vocabs) has to name them")
    return listed
