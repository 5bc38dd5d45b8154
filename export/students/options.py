"""The options of a student, `special:model.yml`: those that are supported and those to write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from export.errors import ExportError
from export.marian.configuration import OPTIONS_ARRAY, parse_yaml
from model.bundle.config import ModelConfig

# Only these values are the network of `network.py`; an option that is missing has the first.
_SUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("rnn",),
    "dec-cell": ("ssru",),
    "transformer-rnn-projection": (False,),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-ffn-activation": ("relu",),
    "transformer-preprocess": ("",),
    "transformer-postprocess": ("dan",),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-postprocess-top": ("",),
    "transformer-train-positions": (False,),
    "transformer-no-projection": (False,),
    "transformer-no-bias": (False,),
    "transformer-no-affine": (False,),
    "transformer-rms-norm": (False,),
    "transformer-tied-layers": ([],),
    "output-omit-bias": (False,),
    "lemma-dim-emb": (0,),
    "input-types": ([],),
    "right-left": (False,),
    "ulr": (False,),
}
# The others of Marian 1.12.14, with which most of Mozilla's models were trained. None of them
# changes such a network.
_OTHERS: Mapping[str, Any] = {
    "bert-train-type-embeddings": True,
    "bert-type-vocab-size": 2,
    "dec-cell-base-depth": 2,
    "dec-cell-high-depth": 1,
    "dim-rnn": 1024,
    "enc-cell": "gru",
    "enc-cell-depth": 1,
    "enc-type": "bidirectional",
    "factors-combine": "sum",
    "factors-dim-emb": 0,
    "layer-normalization": False,
    "lemma-dependency": "",
    "skip": False,
    "transformer-aan-activation": "swish",
    "transformer-aan-depth": 2,
    "transformer-aan-nogate": False,
    "transformer-dim-aan": 2048,
    "transformer-guided-alignment-layer": "last",
    "transformer-pool": False,
    "transformer-train-position-embeddings": False,  # BERT's
    "ulr-dim-emb": 0,
    "ulr-trainable-transformation": False,
    "version": "v1.12.14",
}
_UNKNOWN_TO_IT = ("transformer-train-positions", "transformer-rms-norm")  # to Marian 1.12.14


def checked_options(file: Path, text: bytes) -> dict[str, Any]:
    """The options in `special:model.yml`.

    Raises:
        ExportError: it is damaged, or an option isn't supported; names it.
    """
    options = parse_yaml(text, f"{file} ({OPTIONS_ARRAY})")
    for name, supported in _SUPPORTED.items():
        value = options.get(name, supported[0])
        if value not in supported:
            wanted = " or ".join(map(repr, supported))
            raise ExportError(
                f"{file} ({OPTIONS_ARRAY}): {name} is {value!r:.200}, which is not supported: of "
                f"binary models, only students with {name} {wanted} are"
            )
    return options


def student_options(config: ModelConfig, num_pieces: int, **changes: Any) -> dict[str, Any]:
    """`special:model.yml` as `mozilla/translations` trains and publishes students.

    Args:
        config: our sizes and options.
        num_pieces: size of the vocabulary.
        changes: other values of some options.
    """
    is_shared = config.embedding_tying == "all"
    return {
        **{name: values[0] for name, values in _SUPPORTED.items() if name not in _UNKNOWN_TO_IT},
        **_OTHERS,
        "dim-emb": config.d_model,
        "dim-vocabs": [num_pieces, num_pieces],
        "enc-depth": config.num_encoder_layers,
        "dec-depth": config.num_decoder_layers,
        "transformer-heads": config.num_heads,
        "transformer-dim-ffn": config.ffn_dim,
        "transformer-decoder-dim-ffn": 0,
        "tied-embeddings": not is_shared,
        "tied-embeddings-all": is_shared,
        "tied-embeddings-src": False,
        **changes,
    }
