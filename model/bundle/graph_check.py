"""Checks that a graph is the one that the manifest of its bundle describes.

ONNX Runtime knows the inputs and outputs of a graph, and the sizes of those that hold keys and
values. What it cannot check (the number of positions and tokens) shows when the graph runs.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnxruntime as ort

from model.bundle.bundle import Bundle
from model.bundle.manifest import broken_manifest

# By its name in the manifest, what a graph must be fed with, among others.
_INPUTS = {
    "encoder": {"source_ids", "source_lengths"},
    "decoder_step": {"token_ids", "positions", "cross_key_0"},
    "shortlist_step": {"token_ids", "positions", "cross_key_0", "listed_columns", "columns"},
    "list_columns": {"token_ids"},
    "scoring": {"target_ids", "cross_key_0"},
    "attention": {"source_ids", "source_lengths", "target_ids", "heads"},
}
# How those operators begin whose bits depend on what the precision says (`open_session`).
_INT8_OPERATOR = b"MatMulInteger"
# [batch or rows, heads, positions, width of a head], by layer
_PASTS = {"self_attention": "past_key_0", "ssru": "past_state_0"}  # of decoder_step, by decoder
_KEYS_VALUES = re.compile(r"(?:past|present|cross|present_cross)_(?:key|value)_([0-9]+)")


def check_graph(bundle: Bundle, graph: Path, session: ort.InferenceSession) -> None:
    """Compare the inputs and outputs of a graph with the manifest.

    Raises:
        BundleCorruptError: they contradict each other; names the field.
    """
    inputs = {value.name for value in session.get_inputs()}
    for role, file in bundle.manifest["graphs"].items():
        needed = _INPUTS.get(role, set())
        if role in ("decoder_step", "shortlist_step"):
            needed = needed | {_PASTS[bundle.config.decoder]}
        if bundle.path / file == graph and (missing := needed - inputs):
            raise broken_manifest(
                bundle.path, f"graphs.{role}: {file} has no input {', '.join(sorted(missing))}"
            )
    is_step = graph == bundle.decoder_step_path
    if is_step and ("top_groups" in inputs) != (bundle.token_groups > 0):
        raise broken_manifest(
            bundle.path,
            f"resident.token_groups is {bundle.token_groups}, but {graph.name} chooses "
            f"{'from' if 'top_groups' in inputs else 'without'} groups of tokens",
        )
    is_listed_step = graph.name == bundle.manifest["graphs"].get("shortlist_step")
    if is_step or is_listed_step or graph == bundle.encoder_path:
        is_int8 = _INT8_OPERATOR in bundle.files.read(graph)
        if is_int8 != (bundle.precision == "int8"):
            raise broken_manifest(
                bundle.path,
                f"precision is {bundle.precision}, but {graph.name} multiplies "
                f"{'integers' if is_int8 else 'no integers'}",
            )
    values = [
        (match, value)
        for value in (*session.get_inputs(), *session.get_outputs())
        if (match := _KEYS_VALUES.fullmatch(value.name))
    ]
    if not values:
        return
    config = bundle.config
    _check(bundle, graph, "num_decoder_layers", config.num_decoder_layers,
           1 + max(int(match[1]) for match, _ in values))  # fmt: skip
    for _, value in values:
        _, heads, _, width = value.shape
        _check(bundle, graph, "num_heads", config.num_heads, heads)
        _check(bundle, graph, "d_model", config.d_model, _product(heads, width))
        if (value.type == "tensor(float16)") != (bundle.precision == "fp16"):
            said = f"precision is {bundle.precision}"
        elif (value.type == "tensor(int8)") != (bundle.cache_dtype == "int8"):
            said = "caches.dtype is int8" if bundle.cache_dtype == "int8" else "caches is missing"
        else:
            continue
        raise broken_manifest(
            bundle.path, f"{said}, but {value.name} of {graph.name} is a {value.type}"
        )


def _check(bundle: Bundle, graph: Path, field: str, said: int, found: Any) -> None:
    if isinstance(found, int) and found != said:
        raise broken_manifest(
            bundle.path, f"architecture.{field} is {said}, but {graph.name} has {found}"
        )


def _product(heads: Any, width: Any) -> Any:
    return heads * width if isinstance(heads, int) and isinstance(width, int) else None
