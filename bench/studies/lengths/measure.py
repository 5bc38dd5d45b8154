"""Time and memory of an encoder at one length, measured in a process of its own."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.processes import PeakMemory

# Read by onnxruntime when it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

if TYPE_CHECKING:
    from model.network.transformer import Transformer

ENGINES = ("onnxruntime", "pytorch")
KINDS = ("full", "local", "strided", "lsh", "linformer")


@dataclass(frozen=True)
class LengthCase:
    """A case to measure.

    Attributes:
        engine: one of `ENGINES`: the exported graph, or PyTorch's reference.
        kind: value of `ModelConfig.encoder_attention`.
        length: tokens of the source.
        preset: sizes of the network.
        window, rank: `ModelConfig.attention_window` and `attention_rank`.
        threads: number of the engine's threads.
        repeats: encodes, after one that is not counted.
    """

    engine: str
    kind: str
    length: int
    preset: str = "small"
    window: int = 128
    rank: int = 128
    threads: int = 1
    repeats: int = 3


@dataclass(frozen=True)
class LengthCost:
    """The cost of a case.

    Attributes:
        seconds: CPU time of an encode, the median; on one thread what an idle machine takes.
        peak_bytes: memory beyond that of the loaded network, at its peak.
    """

    case: LengthCase
    seconds: float
    peak_bytes: int


def measure(case: LengthCase) -> LengthCost:
    """Encode a random source of the length; in this process, whose memory counts."""
    import numpy as np
    import torch

    from model.bundle.config import preset
    from model.network.transformer import Transformer

    torch.manual_seed(0)
    torch.set_num_threads(case.threads)
    config = preset(
        case.preset,
        8_000,
        encoder_attention=case.kind,
        attention_window=case.window,
        attention_rank=case.rank,
        max_source_positions=case.length,
    )
    model = Transformer(config).eval()
    source_ids = np.random.default_rng(0).integers(4, config.vocab_size, (1, case.length))
    prepare = _onnx_encode if case.engine == "onnxruntime" else _torch_encode
    encode = prepare(model, source_ids, case.threads)
    seconds = []
    with PeakMemory() as memory:
        for _ in range(1 + case.repeats):
            started = time.process_time()
            encode()
            seconds.append(time.process_time() - started)
    return LengthCost(case, statistics.median(seconds[1:]), memory.peak_bytes)


def _torch_encode(model: Transformer, source_ids: object, threads: int) -> Callable[[], object]:
    import torch

    ids = torch.as_tensor(source_ids)

    def encode() -> object:
        with torch.inference_mode():
            return model.encode(ids)

    return encode


def _onnx_encode(model: Transformer, source_ids: object, threads: int) -> Callable[[], object]:
    import numpy as np
    import onnxruntime as ort

    from export.encoder_graph import build_encoder
    from export.weights import Weights

    arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    graph = build_encoder(model.config, Weights(arrays, model.config), "fp32")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(graph.SerializeToString(), options, ["CPUExecutionProvider"])
    ids = np.asarray(source_ids)
    feeds = {"source_ids": ids, "source_lengths": np.array([ids.shape[1]], np.int32)}
    return lambda: session.run(None, feeds)
