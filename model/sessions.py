"""How the graphs of a bundle are opened, for serving and for proving an export alike.

One place for both: what is proven has to be what is served.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import onnxruntime as ort

from model.bundle import Bundle, BundleError
from model.processor import multiplies_int8_exactly, num_usable_cores


class BundleDeviceError(BundleError):
    """This device or ONNX Runtime can't run the bundle."""


@dataclass(frozen=True)
class SessionSettings:
    """How the graphs of one bundle are run.

    Attributes:
        device: "cpu" or "cuda".
        intra_op_threads: threads that share one operator; None for one a core that
            this process may use.
        spinning: idle threads wait for work actively: faster steps, busier cores.
        exact_int8_products: whether the processor has them; None to look.
    """

    device: str = "cpu"
    intra_op_threads: int | None = None
    spinning: bool = True
    exact_int8_products: bool | None = None


def open_session(
    bundle: Bundle,
    graph: Path,
    settings: SessionSettings,
    *,
    rests: bool = False,
    optimized_graph: Path | None = None,
) -> ort.InferenceSession:
    """A session of one of the bundle's graphs.

    Args:
        bundle: what it belongs to.
        graph: the graph's file.
        settings: device and threads.
        rests: the session runs now and then beside a busier one, and must not spin in between.
        optimized_graph: where to write what ONNX Runtime makes of the graph, to look at it.

    Raises:
        BundleDeviceError: the device can't run the bundle, or the file can't be loaded.
    """
    providers = _providers(bundle, settings.device)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if settings.intra_op_threads is not None:
        options.intra_op_num_threads = settings.intra_op_threads
    elif (num_cores := num_usable_cores()) < (os.cpu_count() or 1):
        # ONNX Runtime would take the machine's, whatever this process may use of them.
        options.intra_op_num_threads = num_cores
    entries = {
        "session.intra_op.allow_spinning": "1" if settings.spinning else "0",
        "session.force_spinning_stop": "1" if rests else "0",
    }
    # The exported graphs are fused as they should be. The higher levels would put
    # SkipLayerNormalization back, which is slower on a CPU than what it replaces.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    exact = settings.exact_int8_products
    if bundle.precision == "int8" and not (multiplies_int8_exactly() if exact is None else exact):
        # Weights become unsigned with a zero point of 128, whose kernels widen before they
        # multiply: the same integers, slower. It is one of the "extended" optimisations.
        entries["session.x64quantprecision"] = "1"
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    if optimized_graph is not None:
        options.optimized_model_filepath = str(optimized_graph)
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    try:
        return ort.InferenceSession(
            graph, options, providers=providers, disabled_optimizers=["SkipLayerNormFusion"]
        )
    except Exception as exc:  # ONNX Runtime has no common base class for its errors
        raise BundleDeviceError(
            f"ONNX Runtime {ort.__version__} cannot load {graph}: {exc}; export the bundle again"
        ) from exc


def _providers(bundle: Bundle, device: str) -> list[str]:
    if device == "cpu":
        return ["CPUExecutionProvider"]
    if device != "cuda":
        raise BundleDeviceError(f"device must be cpu or cuda, not {device!r}")
    if bundle.precision != "fp16":
        raise BundleDeviceError(
            f"{bundle.path} is a bundle of precision {bundle.precision}, which a GPU does not "
            f"run: make one with `dragoman export CHECKPOINT --output DIR --precision fp16`, "
            f"or use --device cpu"
        )
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        raise BundleDeviceError(
            "this ONNX Runtime has no CUDA provider: install dragoman[gpu] in place of "
            "dragoman[cpu], or use --device cpu"
        )
    return ["CUDAExecutionProvider", "CPUExecutionProvider"]
