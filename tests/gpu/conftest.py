"""The model that ships, in half precision on a GPU and in float32 in PyTorch.

    python -m pytest tests/gpu -m gpu                            on a GPU
    DRAGOMAN_TEST_DEVICE=cpu DRAGOMAN_GPU_SENTENCES=20 ...       the same lines on a CPU
    DRAGOMAN_GPU_DEPTH=0 ...                           no graphs, and every launch awaited

Without a GPU all of it is skipped. Nothing here needs pytest-asyncio, a network, or a file that is
not in the repository.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path

import onnxruntime as ort
import pytest
import torch

from bench.gpu.host_stream import open_on
from export.bundle_writer import ExportOptions
from export.exporter import export_checkpoint
from model.bundle.bundle import Bundle
from model.bundle.padding import pad_right
from model.bundle.sessions import SessionSettings
from model.evaluation.search import ReferenceHypothesis, greedy_search
from model.network.checkpoint import load_checkpoint
from model.network.transformer import Transformer
from service.runtime.cuda.memory import read_memory
from service.runtime.cuda.runner import DeviceOptions, DeviceRunner

from .sentences import sentences

DEVICE_VARIABLE = "DRAGOMAN_TEST_DEVICE"
IN_FLIGHT = int(os.environ.get("DRAGOMAN_GPU_DEPTH", "2"))
CHECKPOINT = Path(__file__).parents[2] / "model" / "checkpoints" / "en-de"
_HERE = Path(__file__).parent


@functools.cache
def device() -> str:
    """Where the tests run: "cuda" unless the environment says otherwise."""
    return os.environ.get(DEVICE_VARIABLE, "cuda")


@functools.cache
def why_not() -> str:
    """Why they can't run; empty if they can."""
    if device() == "cpu":
        return ""
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        return "this ONNX Runtime has no CUDA provider (onnxruntime-gpu)"
    return "" if read_memory(0) is not None else "CUDA finds no GPU"


@functools.cache
def reference_device() -> str:
    """Where PyTorch computes what is compared with."""
    return "cuda" if device() == "cuda" and torch.cuda.is_available() else "cpu"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            item.add_marker(pytest.mark.timeout(600))
            if why_not():
                item.add_marker(pytest.mark.skip(reason=why_not()))


@dataclass(frozen=True)
class Case:
    """One model twice, and sources for it."""

    model: Transformer
    bundle: Bundle
    sources: list[tuple[int, ...]]

    def runner(
        self, max_rows: int | None, *, captures: bool = True, depth: int = IN_FLIGHT
    ) -> DeviceRunner:
        """A runner on the device under test."""
        options = DeviceOptions(max_rows, captures and depth > 0, depth)
        return DeviceRunner(self.bundle, SessionSettings(device()), options, stream=open_on)

    def reference(self, sources: list[tuple[int, ...]]) -> list[ReferenceHypothesis]:
        """Greedy search in float32 by PyTorch."""
        found: list[ReferenceHypothesis] = []
        for start in range(0, len(sources), 100):
            some = sources[start : start + 100]
            source_ids = torch.from_numpy(pad_right(some, self.model.config.pad_id))
            found += greedy_search(self.model, source_ids.to(reference_device()))
        return found

    @torch.inference_mode()
    def gap(self, source: tuple[int, ...], ours: list[int], theirs: list[int]) -> float:
        """How much less float32 likes our token than its own where they first differ, in nats."""
        eos_id = self.model.config.eos_id
        pairs = enumerate(zip([*ours, eos_id], [*theirs, eos_id], strict=False))
        at = next(position for position, (one, other) in pairs if one != other)
        source_ids = torch.tensor([source], device=reference_device())
        fed = torch.tensor([[self.model.config.bos_id, *theirs[:at]]], device=reference_device())
        logits = self.model(source_ids, fed)[0, at].double().log_softmax(-1)
        return float(logits[[*theirs, eos_id][at]] - logits[[*ours, eos_id][at]])


@pytest.fixture(scope="session")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    torch.backends.cuda.matmul.allow_tf32 = False
    loaded = load_checkpoint(CHECKPOINT)
    directory = tmp_path_factory.mktemp("gpu") / "bundle"
    export_checkpoint(CHECKPOINT, directory, ExportOptions("fp16"))
    sources = [
        (*loaded.tokenizer.encode(sentence), loaded.config.eos_id) for sentence in sentences()
    ]
    return Case(loaded.model.to(reference_device()), Bundle.load(directory), sources)
