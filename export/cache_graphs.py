"""Small graphs without weights that keep the caches of a GPU in order.

The rows of a batch come, go and change places while everything they need stays on the device. In a
server without PyTorch or CuPy, a graph is the way to have a kernel run: these are run by ONNX
Runtime on whatever the model runs on, and their outputs are bound to the buffers of their inputs.

They know nothing of layers, rows or positions. A cache is a table of vectors [N, Dh], of which the
runner knows which one is where; its arrays [2L, R, H, T, Dh] are such a table as they lie in
memory. What has to be moved is the same in each of the A = 2L * H slices of it, so that it is given
once, relative to where each slice begins.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from export.graph_builder import GraphBuilder
from model.config import ModelConfig


def build_cache_graphs(config: ModelConfig, dtype: str) -> list[tuple[str, onnx.ModelProto]]:
    """All of them, for caches of "float16" or "float32", with their names in the manifest."""
    return [
        ("blank", build_blank()),
        ("copy_rows", build_copy_rows(config, dtype)),
        ("set_rows", build_set_rows()),
        ("store_sources", build_store_sources(config, dtype)),
    ]


def build_copy_rows(config: ModelConfig, dtype: str) -> onnx.ModelProto:
    """Moves vectors within one cache, all read before any is written.

    Inputs:
        table [N, Dh].
        offsets int64 [A]: where each slice begins.
        sources, targets int64 [m]: relative to that.
    Outputs:
        copied [N, Dh]: the table; to be bound to its buffer.
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
    """Writes what the encoder made of a batch of sources into the rows that translate them.

    Inputs:
        encoded_key_{i}, encoded_value_{i} [B, H, S, Dh]: the encoder's outputs.
        encoded_offsets int64 [A]: where each slice begins in all of them, one after another.
        cross [N, Dh], cross_offsets int64 [A]: the cross-attention cache.
        cross_last [M, Dh], cross_last_offsets int64 [A]: the cache of the last positions.
        sources, targets int64 [m]: which vectors go where in `cross`, relative to the slices.
        last_sources, last_targets int64 [n]: likewise in `cross_last`.
    Outputs:
        stored [N, Dh], stored_last [M, Dh]: to be bound to the buffers of the caches.
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
    vectors = graph.op("Reshape", everything, graph.constant([-1, config.head_dim], np.int64))
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
    """Says anew what some rows are to be fed, without touching the others.

    Inputs:
        token_ids int64 [R], positions, running, source_lengths int32 [R]: of all rows.
        rows int64 [m]: which.
        values int64 [4, m]: what, in the order above.
    Outputs:
        set_token_ids, set_positions, set_running, set_source_lengths [R]: to be bound to the
            buffers of the inputs.
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
    column = graph.op("Unsqueeze", offsets, graph.constant([1], np.int64))
    places = graph.op("Add", column, relative)  # [A, m]
    return graph.op("Reshape", places, graph.constant([-1], np.int64))


def _write(graph: GraphBuilder, table: str, places: str, vectors: str, output: str) -> None:
    """table[places] = vectors."""
    column = graph.op("Unsqueeze", places, graph.constant([1], np.int64))
    graph.op("ScatterND", table, column, vectors, output=output)


def build_blank() -> onnx.ModelProto:
    """Memory of the device, filled with zeros, that the runtime allocates at exactly that size.

    Of the widest elements, whatever it is used for: on a GPU the runtime counts what it fills in 32
    bits, and beyond 2^31 elements writes where it should not.

    Inputs: `count` int64 [1], on the host. Outputs: `zeros` int64 [count].
    """
    graph = GraphBuilder("blank")
    shape = graph.input("count", "int64", [1])
    zero = numpy_helper.from_array(np.zeros(1, np.int64))
    graph.op("ConstantOfShape", shape, output="zeros", value=zero)
    graph.output("zeros", "int64", ["count"])
    return graph.build()
