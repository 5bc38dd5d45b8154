"""Settings of a server's device, and its metrics."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

from bench.gpu.host_stream import open_on
from bench.submission import submit
from model.bundle.sessions import SessionSettings
from service.batching.events import Iteration
from service.domain.requests import FinishReason, GenerationRequest
from service.engine.engine import Engine
from service.engine.metrics import ModelMetrics
from service.errors import ResourceExhaustedError, StartupError
from service.models.loading import load_model
from service.observability.metrics import ServerMetrics
from service.runtime.cuda.runner import DeviceOptions, DeviceRunner
from service.settings import Settings
from service.settings_sources import load_settings
from service.worker import opening as model_opening
from tests.factories import tiny_bundle
from tests.fake_runner import FakeRunner


def here(**values: Any) -> Settings:
    """Settings of a server that runs its models in this process."""
    return Settings(in_process=True, threads=1, **values)


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:0", "cuda:7"])
def test_a_device_is_a_kind_and_perhaps_a_number(device: str) -> None:
    assert load_settings({"device": device}, {}).device == device


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cpu:0", "cuda 1", "CUDA"])
def test_other_devices_are_refused_by_name(device: str) -> None:
    with pytest.raises(
        StartupError, match=r"DRAGOMAN_DEVICE: must be cpu, cuda, or one of .*cuda:1"
    ):
        load_settings({}, {"DRAGOMAN_DEVICE": device})


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("No", False)])
def test_a_switch_in_the_environment(text: str, value: bool) -> None:
    assert load_settings({}, {"DRAGOMAN_NO_CUDA_GRAPHS": text}).no_cuda_graphs is value
    with pytest.raises(StartupError, match=r"DRAGOMAN_NO_CUDA_GRAPHS: must be true or false"):
        load_settings({}, {"DRAGOMAN_NO_CUDA_GRAPHS": f"{text}?"})


def test_a_switch_in_a_file_and_by_flag(tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text("no_cuda_graphs = true\n")
    assert load_settings({"no_cuda_graphs": None}, {}, file).no_cuda_graphs
    assert load_settings({"no_cuda_graphs": True}, {}).no_cuda_graphs
    file.write_text("no_cuda_graphs = 1\n")
    with pytest.raises(StartupError, match="must be true or false, not 1"):
        load_settings({}, {}, file)


def test_more_sources_join_at_once_on_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 256 rows some ten end at a step: 512 tokens would not hold those who take their places."""
    bundle = tiny_bundle(tmp_path / "bundle", resident=True)

    def budget() -> int:
        engine = load_model(bundle.path, here(), ServerMetrics()).engine
        assert isinstance(engine, Engine)
        return engine.config.encode_token_budget

    assert budget() == 512
    runner = DeviceRunner(
        bundle, SessionSettings("cpu", 1), DeviceOptions(max_rows=4), stream=open_on
    )
    monkeypatch.setattr(model_opening, "_runner", lambda *_: runner)
    assert budget() == 4096
    runner.close()


@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_a_gpu_names_the_export_that_it_wants(tmp_path: Path, precision: str) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", precision=precision)
    with pytest.raises(
        StartupError, match=rf"precision {precision}, which a GPU.*--precision fp16"
    ):
        load_model(bundle.path, Settings(device="cuda"), ServerMetrics())


def test_a_gpu_that_is_not_there_is_a_startup_error(tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", precision="fp16")
    with pytest.raises(StartupError, match=r"the extra `gpu`|cannot use the GPU"):
        load_model(bundle.path, Settings(device="cuda:99", max_rows=1), ServerMetrics())


def test_the_metrics_of_a_device(tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", resident=True)
    runner = DeviceRunner(
        bundle, SessionSettings("cpu", 1), DeviceOptions(max_rows=20), stream=open_on
    )
    metrics = ServerMetrics()
    observer = ModelMetrics(metrics, "m")
    observer.set_device(runner)
    observer.on_iterations([Iteration(0, 17, num_rows=17, step_seconds=0.001)])
    observer.on_iterations([Iteration(0, 32, num_rows=32, step_seconds=0.001)])

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, {"model": "m", **labels})

    assert value("dragoman_padded_rows_total") == 15
    assert value("dragoman_graph_captures") == 0
    assert value("dragoman_device_memory_bytes", use="cache") == runner.cache_bytes
    runner.close()
    assert value("dragoman_device_memory_bytes", use="arena") == 0  # a scrape may come at any time
    alive = weakref.ref(runner)
    del runner
    gc.collect()
    assert alive() is None  # metrics keep nothing of it
    assert value("dragoman_device_memory_bytes", use="arena") == 0


def test_a_version_on_a_gpu_shows_its_figures_when_it_takes_over(tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", resident=True)
    options = DeviceOptions(max_rows=20)
    runner = DeviceRunner(bundle, SessionSettings("cpu", 1), options, stream=open_on)
    metrics = ServerMetrics()
    observer = ModelMetrics(metrics, "m", is_current=False)
    observer.set_device(runner)

    def memory() -> float | None:
        return metrics.registry.get_sample_value(
            "dragoman_device_memory_bytes", {"model": "m", "use": "cache"}
        )

    assert memory() is None
    observer.on_current()
    assert memory() == runner.cache_bytes
    runner.close()


def test_a_model_that_fails_its_trial_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU its memory would be missing to the version that goes on serving."""
    bundle = tiny_bundle(tmp_path / "bundle")
    runner = FakeRunner()
    runner.fail_next(RuntimeError("broken"))
    monkeypatch.setattr(model_opening, "_runner", lambda *_: runner)
    with pytest.raises(StartupError, match="broken"):
        load_model(bundle.path, here(), ServerMetrics())
    assert runner.closed


def test_an_engine_that_never_started_frees_its_model() -> None:
    """A version that is refused once it is open."""
    runner = FakeRunner()
    Engine.of_runner(runner).abandon()
    assert runner.closed


@pytest.mark.parametrize(
    "message",
    [
        "Status Message: bfc_arena.cc:376 Failed to allocate memory for requested buffer of size 7",
        "CUDA failure 2: out of memory ; GPU=0 ; hostname=x",
    ],
)
async def test_too_little_memory_in_service_refuses_and_lives_on(message: str) -> None:
    runner = FakeRunner()
    runner.fail_next(RuntimeError(message))
    engine = Engine.of_runner(runner)
    await engine.start()
    try:
        request = GenerationRequest((5, 6, 3))
        failed = await submit(engine, request).result()
        assert failed.finish_reason is FinishReason.ERROR
        assert isinstance(failed.error, ResourceExhaustedError)
        assert message not in str(failed.error)
        again = await submit(engine, request).result()
        assert again.error is None
    finally:
        await engine.stop()
