"""Opens the graphs of a bundle, for serving and for the proof of an export.

Both use the same code, so that the proof holds for the served model.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime as ort

from model.bundle.background import in_own_thread, lower_priority
from model.bundle.bundle import Bundle
from model.bundle.cuda import CudaError, CudaRuntime, cuda_version, load_cuda
from model.bundle.graph_check import check_graph
from model.bundle.manifest import BundleCorruptError, BundleError
from model.bundle.out_of_memory import is_out_of_memory
from model.bundle.processor import multiplies_int8_exactly, num_usable_cores

# Otherwise, attention to 8-bit caches adds up long rows in parts where threads outnumber rows and
# heads: in another order than in a larger batch. ONNX Runtime reads this when it opens a graph.
os.environ["ORT_GQA_DISABLE_FLASH_ATTENTION"] = "1"

# Smaller weights stay in the graph's file.
_SMALL_WEIGHT_BYTES = 1024

_log = logging.getLogger(__name__)


class BundleDeviceError(BundleError):
    """This device or ONNX Runtime can't run the bundle."""


@dataclass(frozen=True)
class Device:
    """The device of a model.

    Attributes:
        kind: "cpu" or "cuda".
        index: number of the GPU among those that this process sees; 0 on a CPU.
    """

    kind: str = "cpu"
    index: int = 0

    @classmethod
    def parse(cls, text: str) -> Device:
        """Parse "cpu", "cuda" (the first GPU) or "cuda:1".

        Raises:
            BundleDeviceError: it is not such a name.
        """
        match = re.fullmatch(r"(cpu|cuda)(?::([0-9]{1,3}))?", text)
        if match is None or (match[1] == "cpu" and match[2]):
            raise BundleDeviceError(
                f"device must be cpu or cuda, or one of several GPUs as cuda:1, not {text!r}"
            )
        return cls(match[1], int(match[2] or 0))


@dataclass(frozen=True)
class SessionSettings:
    """Settings of the sessions that run the graphs of one bundle.

    Attributes:
        device: as `Device.parse` reads it.
        intra_op_threads: threads that share one operator; None for one a core that
            this process may use.
        exact_int8_products: whether the processor sums 8-bit products exactly; None to detect it.
        profile_prefix: prefix of the files for ONNX Runtime's profile of operators; "" for none.
        compute_stream: the address of the CUDA stream on which everything is launched; 0 for one of
            ONNX Runtime's own.
        opening_niceness: niceness at which the graphs are opened; the calling thread's must be 0.
            The sessions' own threads are as nice as the calling thread.
        uses_shortlist: whether rows choose from shortlists, where the bundle has one.
        waits: whether each run is waited for after its launch, so that errors belong to it.
        packed: folder on a CPU for packed weights, which sessions share, of several processes too.
            One process at a time may open sessions with it; None for weights of the session's own.
    """

    device: str = "cpu"
    intra_op_threads: int | None = None
    exact_int8_products: bool | None = None
    profile_prefix: str = ""
    compute_stream: int = 0
    opening_niceness: int = 0
    uses_shortlist: bool = True
    waits: bool = False
    packed: Path | None = None


def open_session(
    bundle: Bundle,
    graph: Path,
    settings: SessionSettings,
    *,
    captures: bool = False,
    optimized_graph: Path | None = None,
) -> ort.InferenceSession:
    """A session of one of the bundle's graphs, read from the files that the bundle holds.

    Args:
        captures: whether its runs on a GPU can be captured as CUDA graphs.
        optimized_graph: file for the graph as ONNX Runtime has optimised it, for inspection.

    Raises:
        BundleDeviceError: the device can't run the bundle, or the file can't be loaded.
        BundleCorruptError: the graph is not what the manifest says.
    """
    if settings.packed is not None:
        try:
            return _open_packed(bundle, graph, settings)
        except Exception as exc:  # for example, its disk is full
            if is_out_of_memory(exc) or isinstance(exc, BundleCorruptError):
                raise
            with contextlib.suppress(OSError):
                for file in settings.packed.glob(f"{graph.stem}.*"):
                    file.unlink()  # so that smaller weights still find room
            _log.warning(
                "weights of %s are not shared between sessions, since %s has no room for them or "
                "cannot be written: %s", graph.name, settings.packed, exc.__cause__ or exc,
            )  # fmt: skip
    options = _options(bundle, settings)
    if optimized_graph is not None:
        options.optimized_model_filepath = str(optimized_graph)
    weights = _mapped_weights(bundle, options)
    session = _opened(bundle, graph, bundle.files.path(graph), settings, options, captures=captures)
    if weights is not None:
        session.weights = weights  # which it reads as long as it lives
        _let_go(weights)
    return session


def _options(bundle: Bundle, settings: SessionSettings) -> ort.SessionOptions:
    options = ort.SessionOptions()
    # Fatal errors only: others are exceptions, which are logged where they can't block a step.
    options.log_severity_level = 4
    if settings.intra_op_threads is not None:
        options.intra_op_num_threads = settings.intra_op_threads
    elif (num_cores := num_usable_cores()) < (os.cpu_count() or 1):
        # ONNX Runtime would take the machine's, whatever this process may use of them.
        options.intra_op_num_threads = num_cores
    entries = {
        # Sessions take turns: an encode, a step, an encode. Threads of the one that ran last must
        # not spin on the cores that the next one needs, or the event loop.
        "session.force_spinning_stop": "1",
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
    if settings.device != "cpu":
        # A block for each shape that was seen would never be given back, half of the memory of an
        # encoder.
        options.enable_mem_pattern = False
    if settings.profile_prefix:
        options.enable_profiling = True
        options.profile_file_prefix = settings.profile_prefix
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    return options


def _opened(
    bundle: Bundle,
    graph: Path,
    file: str | Path,
    settings: SessionSettings,
    options: ort.SessionOptions,
    *,
    captures: bool = False,
) -> ort.InferenceSession:
    """A session of a file with one of the bundle's graphs, which is checked."""
    providers = _providers(bundle, settings, captures)

    def opened() -> ort.InferenceSession:
        disabled = _disabled_optimizers(settings.opening_niceness)
        return ort.InferenceSession(
            file, options, providers=providers, disabled_optimizers=disabled
        )

    try:
        session = in_own_thread(opened) if settings.opening_niceness else opened()
    except Exception as exc:  # ONNX Runtime has no common base class for its errors
        if is_out_of_memory(exc):
            raise
        raise BundleDeviceError(
            f"ONNX Runtime {ort.__version__} cannot load {graph}: {exc}; export the bundle again"
        ) from exc
    wanted = providers[0] if isinstance(providers[0], str) else providers[0][0]
    if wanted not in session.get_providers():  # it falls back to the CPU, whatever the reason
        raise BundleDeviceError(_no_such_gpu(settings.device, "its own message is above"))
    check_graph(bundle, graph, session)
    return session


def _open_packed(bundle: Bundle, graph: Path, settings: SessionSettings) -> ort.InferenceSession:
    """A session whose weights are packed in a file, which ONNX Runtime maps.

    All sessions of the file, in any process, so have one copy of the weights in memory, and step
    a little faster (`bench/NOTES.md`). The first one writes it.
    """
    assert settings.packed is not None
    packed = settings.packed / graph.name
    if not packed.exists():
        options = _options(bundle, settings)
        weights = _mapped_weights(bundle, options)
        unfinished = packed.with_suffix(".unfinished")
        options.optimized_model_filepath = str(unfinished)
        for key, value in {
            "save_external_prepacked_constant_initializers": "1",
            "optimized_model_external_initializers_file_name": f"{graph.stem}.weights",
            "optimized_model_external_initializers_min_size_in_bytes": str(_SMALL_WEIGHT_BYTES),
        }.items():
            options.add_session_config_entry(f"session.{key}", value)
        _opened(bundle, graph, bundle.files.path(graph), settings, options)
        if weights is not None:
            _let_go(weights)
        unfinished.rename(packed)
    options = _options(bundle, settings)
    # The file has the graph as it was optimised.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return _opened(bundle, graph, packed, settings, options)


def _disabled_optimizers(niceness: int) -> Iterator[str]:
    """The optimizers that are switched off.

    ONNX Runtime reads them after it has started a session's threads and before it prepares the
    graph, which takes nearly all of the time. At this point only the thread that opens can become
    nicer: without privileges, the session's threads could never become faster again.
    """
    lower_priority(niceness)
    yield "SkipLayerNormFusion"


def _mapped_weights(bundle: Bundle, options: ort.SessionOptions) -> mmap.mmap | None:
    """The weights beside the graphs, mapped once for all sessions, and known to the options."""
    path = bundle.weights_path
    if path is None or not bundle.files.size(path):
        return None
    weights = bundle.files.mapped(path)
    options.add_external_initializers_from_files_in_memory([path.name], [weights], [len(weights)])
    # Otherwise each session copies all of its weights.
    options.add_session_config_entry("session.use_external_initializer_file_buffers_directly", "1")
    return weights


def _let_go(weights: mmap.mmap) -> None:
    """Free the memory of weights, most of which were packed. Needed pages are read again."""
    if hasattr(mmap, "MADV_DONTNEED"):  # on Linux
        weights.madvise(mmap.MADV_DONTNEED)


def use_device(device: Device) -> CudaRuntime | None:
    """Let the calling thread use `device`, before its first call.

    Returns:
        CUDA's runtime library; None on a CPU.

    Raises:
        BundleDeviceError: there is no such GPU, or its libraries are missing; says what to do.
        CudaError: the GPU has no memory left.
    """
    if device.kind == "cpu":
        return None
    try:
        runtime = load_cuda()
        runtime.use(device.index)
    except CudaError as exc:
        if is_out_of_memory(exc):
            raise
        raise BundleDeviceError(_no_such_gpu(f"cuda:{device.index}", str(exc))) from exc
    return runtime


def _no_such_gpu(device: str, why: str) -> str:
    return (
        f"ONNX Runtime {ort.__version__} cannot use the GPU {device}: {why}. Is there such a GPU, "
        f"with a driver for CUDA {cuda_version()}? Its libraries come with `pip install "
        f"'onnxruntime-gpu[cuda,cudnn]'`. Or use --device cpu"
    )


def launch_options(settings: SessionSettings, graph: str | None = None) -> ort.RunOptions:
    """Options of a run on the settings' stream, which by default does not wait for its end.

    Args:
        graph: the CUDA graph to capture or replay, in ONNX Runtime's words ("-1" for none); None
            for a session without any.
    """
    options = ort.RunOptions()
    if not settings.waits:
        options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    if graph is not None:
        options.add_run_config_entry("gpu_graph_id", graph)
    return options


def check_device(bundle: Bundle, device: Device) -> None:
    """Check that `device` runs such bundles, and that this ONNX Runtime runs such devices.

    Raises:
        BundleDeviceError: one of them doesn't; says what to do.
    """
    if device.kind == "cpu":
        return
    if bundle.precision != "fp16":
        raise BundleDeviceError(
            f"{bundle.path} is a bundle of precision {bundle.precision}, which a GPU does not "
            f"run: make one with `dragoman export CHECKPOINT --output DIR --precision fp16`, "
            f"or use --device cpu"
        )
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        raise BundleDeviceError(
            "this ONNX Runtime has no CUDA provider: install the extra `gpu` in place of `cpu` "
            "(not beside it), or use --device cpu"
        )


def _providers(bundle: Bundle, settings: SessionSettings, captures: bool) -> list[Any]:
    device = Device.parse(settings.device)
    check_device(bundle, device)
    if device.kind == "cpu":
        return ["CPUExecutionProvider"]
    use_device(device)
    options = {
        "device_id": str(device.index),
        # Not in powers of two: what is left over decides how many rows there can be.
        "arena_extend_strategy": "kSameAsRequested",
        # Flash and memory-efficient attention. With some versions of cuDNN, ONNX Runtime would else
        # choose cuDNN's, which makes a plan for each shape.
        "sdpa_kernel": "3",
        "enable_cuda_graph": "1" if captures else "0",
    }
    if settings.compute_stream:
        options["user_compute_stream"] = str(settings.compute_stream)
    return [("CUDAExecutionProvider", options), "CPUExecutionProvider"]
