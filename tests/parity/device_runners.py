"""A runner of GPUs on the host's stand-in, and the CPU's beside it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from bench.gpu.host_stream import HostStream
from model.bundle.bundle import Bundle
from model.bundle.sessions import SessionSettings
from service.runtime.cpu.runner import OnnxRunner
from service.runtime.cuda.runner import DeviceOptions, DeviceRunner
from service.runtime.cuda.stream import CudaStream
from tests.factories import tiny_bundle

CPU = SessionSettings("cpu", intra_op_threads=1)
MAX_ROWS = 24
SHAPES = [
    {},
    # The CPU's runner chooses from groups of tokens here.
    {"vocab_size": 4096, "num_decoder_layers": 3, "num_heads": 4, "norm": "pre"},
    {"vocab_size": 331, "output_bias": True, "positions": "sinusoidal", "activation": "gelu"},
    {"vocab_size": 2048, "decoder": "ssru", "embed_start": False, "num_decoder_layers": 3},
]


def device_runner(
    bundle: Bundle, max_rows: int = MAX_ROWS, depth: int = 2, stream: CudaStream | None = None
) -> DeviceRunner:
    options = DeviceOptions(max_rows=max_rows, depth=depth)
    return DeviceRunner(bundle, CPU, options, stream=lambda _: stream or HostStream())


@pytest.fixture(
    scope="module",
    params=[(precision, shape) for precision in ("fp32", "fp16") for shape in SHAPES],
    ids=lambda p: f"{p[0]}-{'-'.join(map(str, p[1].values())) or 'tiny'}",
)
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    precision, shape = request.param
    directory = tmp_path_factory.mktemp("device") / "bundle"
    return tiny_bundle(directory, precision=precision, resident=True, **shape)


@pytest.fixture(scope="module")
def runners(bundle: Bundle) -> Iterator[tuple[DeviceRunner, OnnxRunner]]:
    device = device_runner(bundle)
    yield device, OnnxRunner(bundle, max_rows=MAX_ROWS, intra_op_threads=1)
    device.close()


def start(num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    return np.full(num_rows, 2, np.int64), np.zeros(num_rows, np.int32)
