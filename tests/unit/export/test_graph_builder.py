"""The graph builder: names, constants, reproducibility."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from export.graph_builder import GraphBuilder


def build_affine() -> onnx.ModelProto:
    graph = GraphBuilder("affine")
    x = graph.input("x", "float32", ["rows", 2])
    with graph.scope("scaled"):
        y = graph.op("Mul", x, graph.constant([2.0, 3.0], np.float32))
    graph.op("Add", y, graph.constant(1.0, np.float32), output="y")
    graph.output("y", "float32", ["rows", 2])
    return graph.build()


def test_a_graph_computes_what_was_written() -> None:
    session = ort.InferenceSession(build_affine().SerializeToString())
    (y,) = session.run(["y"], {"x": np.array([[1, 1], [0, -1]], np.float32)})
    assert y.tolist() == [[3, 4], [1, -2]]


def test_equal_calls_give_equal_bytes() -> None:
    first, second = build_affine(), build_affine()
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(
        deterministic=True
    )


def test_equal_constants_are_stored_once() -> None:
    graph = GraphBuilder("constants")
    a = graph.constant(np.arange(6).reshape(2, 3), np.int64)
    assert graph.constant(np.arange(6).reshape(2, 3), np.int64) == a
    assert graph.constant(np.arange(6), np.int64) != a
    assert graph.constant(np.arange(6).reshape(2, 3), np.int32) != a


def test_scopes_show_in_names_and_end() -> None:
    model = build_affine()
    assert [node.name.split("_")[0] for node in model.graph.node] == ["scaled/Mul", "y"]


def test_a_broken_graph_is_not_built() -> None:
    graph = GraphBuilder("broken")
    graph.op("Relu", "no such value", output="y")
    graph.output("y", "float32", [])
    with pytest.raises(onnx.checker.ValidationError):
        graph.build()
