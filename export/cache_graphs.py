"""Small graphs without weights that move data within the caches of a GPU.

Rows of a batch join, leave and move while their state stays on the device. The server has neither
PyTorch nor CuPy, so a graph is its way to run a kernel: ONNX Runtime runs these on the model's
device, with their outputs bound to the buffers of their inputs.

The graphs know nothing of layers, rows or positions. To them a cache is a table of vectors [N, Dh];
its arrays [2L, R, H, T, Dh] lie in memory as such a table. The same vectors move in each of its
A = 2L * H slices, so indices are given once, relative to the beginning of a slice.
"""

from __future__ import annotations

import numpy as np
import onnx

from export.graph_builder import GraphBuilder
from model.bundle.config import ModelConfig


def build_cache_graphs(config: ModelConfig, dtype: str) -> list[tuple[str, onnx.ModelProto]]:
    """All graphs for caches of "float16" or "float32", with their names in the manifest."""
    return [
        ("copy_rows", build_copy_rows(config, dtype)),
        ("set_rows", build_set_rows()),
        ("store_sources", build_store_sources(config, dtype)),
    ]


def build_copy_rows(config: ModelConfig, dtype: str) -> onnx.ModelProto:
    """Moves vectors within a cache. All are read before any is written.

    Inputs:
        table [N, Dh].
        offsets int64 [A]: beginning of each slice.
        sources, targets int64 [m]: relative to it.
    Outputs:
        copied [N, Dh]: the table; bind it to the buffer of the input.
    """
    graph = GraphBuilder("copy_rows")
    table = graph.input("table", dtype, ["vectors", config.head_dim])
    offsets = graph.input("offsets", "int64", ["slices"])
    sources = graph.input("sources", "int64", ["moved"])
    targets = graph.input("targets", "int64", ["moved"])
    moved = graph.op("Gather", table, _places(graph, offsets, sources), axis=0)
    _write(graph, table, _places(graph, offsets, targets), moved, "copied")
    graph.output("copied", dtype, ["vectors", config.head_dim])
    return graph.build()


def build_store_sources(config: ModelConfig, dtype: str) -> onnx.ModelProto:
    """Writes the encoder's outputs for a batch of sources into the rows that translate them.

    Inputs:
        encoded_key_{i}, encoded_value_{i} [B, H, S, Dh]: the encoder's outputs.
        encoded_offsets int64 [A]: beginning of each slice in their concatenation.
        cross [N, Dh], cross_offsets int64 [A]: the cross-attention cache.
        cross_last [M, Dh], cross_last_offsets int64 [A]: the cache of the last positions.
        sources, targets int64 [m]: vectors and their places in `cross`, relative to a slice.
        last_sources, last_targets int64 [n]: the same for `cross_last`.
    Outputs:
        stored [N, Dh], stored_last [M, Dh]: the caches; bind them to the buffers of the inputs.
    """
    graph = GraphBuilder("store_sources")
    shape: list[int | str] = ["batch", config.num_heads, "source", config.head_dim]
    encoded = [
        graph.input(f"encoded_{kind}_{layer}", dtype, shape)
        for layer in range(config.num_decoder_layers)
        for kind in ("key", "value")
    ]
    offsets = graph.input("encoded_offsets", "int64", ["slices"])
    everything = graph.op("Concat", *encoded, axis=0)
    vectors = graph.reshape(everything, -1, config.head_dim)
    for cache, prefix, output in (("cross", "", "stored"), ("cross_last", "last_", "stored_last")):
        table = graph.input(cache, dtype, [f"{cache}_vectors", config.head_dim])
        places = graph.input(f"{cache}_offsets", "int64", ["slices"])
        sources = graph.input(f"{prefix}sources", "int64", [f"{prefix}moved"])
        targets = graph.input(f"{prefix}targets", "int64", [f"{prefix}moved"])
        moved = graph.op("Gather", vectors, _places(graph, offsets, sources), axis=0)
        _write(graph, table, _places(graph, places, targets), moved, output)
        graph.output(output, dtype, [f"{cache}_vectors", config.head_dim])
    return graph.build()


def build_set_rows() -> onnx.ModelProto:
    """Sets the state of some rows, without touching the others.

    Inputs:
        token_ids int64 [R], positions, running, source_lengths int32 [R]: state of all rows.
        rows int64 [m]: rows to set.
        values int64 [4, m]: their new state, in the order above.
    Outputs:
        set_token_ids, set_positions, set_running, set_source_lengths [R]: bind them to the buffers
            of the inputs.
    """
    graph = GraphBuilder("set_rows")
    states = [("token_ids", "int64")]
    states += [(name, "int32") for name in ("positions", "running", "source_lengths")]
    inputs = [graph.input(name, dtype, ["all"]) for name, dtype in states]
    rows = graph.input("rows", "int64", ["some"])
    values = graph.input("values", "int64", [len(states), "some"])
    for number, (state, (name, dtype)) in enumerate(zip(inputs, states, strict=True)):
        value = graph.op("Gather", values, graph.constant(number, np.int64), axis=0)
        if dtype != "int64":
            value = graph.cast(value, dtype)
        graph.op("ScatterElements", state, rows, value, output=f"set_{name}", axis=0)
        graph.output(f"set_{name}", dtype, ["all"])
    return graph.build()


def _places(graph: GraphBuilder, offsets: str, relative: str) -> str:
    """[A * m] indices of vectors: offsets [A] plus relative [m], slice by slice."""
    column = graph.op("Unsqueeze", offsets, graph.ints(1))
    places = graph.op("Add", column, relative)  # [A, m]
    return graph.reshape(places, -1)


def _write(graph: GraphBuilder, table: str, places: str, vectors: str, output: str) -> None:
    """table[places] = vectors."""
    column = graph.op("Unsqueeze", places, graph.ints(1))
    graph.op("ScatterND", table, column, vectors, output=output)
