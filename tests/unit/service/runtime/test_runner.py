"""The ONNX Runtime runner: greedy against the reference, copies, limits, start-up errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from model.bundle.bundle import Bundle
from model.bundle.out_of_memory import is_out_of_memory
from model.bundle.processor import multiplies_int8_exactly
from model.bundle.sessions import Device, SessionSettings, open_session
from service.domain.plan import EncodeItem, RowCopy, StepPlan
from service.errors import StartupError
from service.runtime.cpu.runner import OnnxRunner
from tests.factories import random_sources, tiny_bundle, with_limits
from tests.runner_loops import NO_ROWS, first_plan, follow_ups, greedy_steps, rows_equal, same_steps


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return tiny_bundle(tmp_path_factory.mktemp("runner") / "bundle")


def test_limits_and_memory_are_those_of_the_bundle(bundle: Bundle) -> None:
    runner = OnnxRunner(bundle, max_rows=5, intra_op_threads=1)
    limits = runner.limits
    assert (limits.max_rows, limits.top_k, limits.vocab_size) == (5, 8, 320)
    assert (limits.max_source_positions, limits.max_target_positions) == (64, 64)
    # 2 layers, keys and values, 5 rows, 64 + 64 + 1 positions, width 32, 4 bytes.
    assert runner.cache_bytes == 2 * 2 * 5 * 129 * 32 * 4 + 5 * 4
    limited = with_limits(bundle, max_source_positions=9, max_target_positions=7)
    shorter = OnnxRunner(limited, max_rows=5, intra_op_threads=1)
    assert (shorter.limits.max_source_positions, shorter.limits.max_target_positions) == (9, 7)
    assert shorter.cache_bytes == 2 * 2 * 5 * 17 * 32 * 4 + 5 * 4


def test_the_last_position_of_both_sides_can_be_used(bundle: Bundle) -> None:
    runner = OnnxRunner(bundle, max_rows=2, intra_op_threads=1)
    longest = (*range(4, 67), 3)
    assert len(longest) == runner.limits.max_source_positions
    outputs = greedy_steps(runner, [longest, (3,)], runner.limits.max_target_positions)
    assert np.isfinite(outputs[-1].top_logits).all()


def test_padding_is_what_fills_up_the_encoders_batches(bundle: Bundle) -> None:
    runner = OnnxRunner(bundle, max_rows=4, intra_op_threads=1)
    sources = [(7, 3), (4, 5, 6, 3), (4, 3)]
    items = [EncodeItem((row,), source) for row, source in enumerate(sources)]
    assert runner.execute(StepPlan((), items, *NO_ROWS)).num_padding == 2 + 0 + 2
    assert runner.execute(StepPlan((), items[1:2], *NO_ROWS)).num_padding == 0
    assert runner.execute(StepPlan((), (), *NO_ROWS)).num_padding == 0


def test_a_plan_without_rows_only_copies_and_encodes(bundle: Bundle) -> None:
    runner = OnnxRunner(bundle, max_rows=4, intra_op_threads=1)
    source = random_sources(bundle.config, 1)[0]
    empty = runner.execute(StepPlan((), [EncodeItem((3,), source)], *NO_ROWS))
    assert empty.top_ids.shape == (0, 8)
    assert empty.log_sum_exp.shape == (0,)
    assert empty.encode_seconds > 0
    runner.execute(StepPlan([RowCopy(3, 0, 0, 0)], (), *NO_ROWS))
    start = np.array([2]), np.zeros(1, np.int32)
    copied = runner.execute(StepPlan((), (), *start))
    fresh = runner.execute(StepPlan((), [EncodeItem((0,), source)], *start))
    assert rows_equal(copied, 0, fresh, 0)
    assert copied.step_seconds > 0


@pytest.mark.parametrize("top_k", [1, 4])
def test_a_step_follows_with_the_same_bits(bundle: Bundle, top_k: int) -> None:
    sources = random_sources(bundle.config, 3)
    runner = OnnxRunner(bundle, max_rows=4, intra_op_threads=1)
    wanted = greedy_steps(runner, sources, 6, top_k=top_k)
    assert same_steps(follow_ups(runner, first_plan(sources, top_k=top_k), 6), wanted)


def test_outputs_are_the_callers_to_keep(bundle: Bundle) -> None:
    runner = OnnxRunner(bundle, max_rows=4, intra_op_threads=1)
    outputs = greedy_steps(runner, random_sources(bundle.config, 3), 5)
    kept = [output.top_ids.copy() for output in outputs]
    greedy_steps(runner, random_sources(bundle.config, 3, seed=9), 5)
    assert all((output.top_ids == copy).all() for output, copy in zip(outputs, kept, strict=True))


@pytest.mark.skipif(
    not multiplies_int8_exactly(), reason="the products of this processor can saturate"
)
def test_int8_without_exact_products_takes_unsigned_weights(tmp_path: Path) -> None:
    """The slower form for processors without VNNI computes the same bits here."""
    bundle = tiny_bundle(tmp_path / "bundle", precision="int8", d_model=64, ffn_dim=96)
    sources = random_sources(bundle.config, 6)
    outputs = []
    for exact in (True, False):
        settings = SessionSettings(intra_op_threads=1, exact_int8_products=exact)
        outputs.append(greedy_steps(OnnxRunner(bundle, sessions=settings), sources, 6))
        optimized = tmp_path / f"{exact}.onnx"
        open_session(bundle, bundle.decoder_step_path, settings, optimized_graph=optimized)
        model = onnx.load(optimized, load_external_data=False)
        types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
        weights = {
            types[node.input[1]]
            for node in model.graph.node
            if node.op_type == "MatMulIntegerToFloat"
        }
        assert weights == {onnx.TensorProto.INT8 if exact else onnx.TensorProto.UINT8}
    assert same_steps(*outputs)


@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_a_gpu_wants_an_fp16_bundle(tmp_path: Path, precision: str) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", precision=precision)
    with pytest.raises(StartupError, match=r"--precision fp16.*or use --device cpu"):
        OnnxRunner(bundle, sessions=SessionSettings("cuda"))


def test_other_devices_are_named(bundle: Bundle, tmp_path: Path) -> None:
    for wrong in ("tpu", "cuda:", "cuda:x", "cpu:1", "cuda:-1", ""):
        with pytest.raises(StartupError, match=f"device must be cpu or cuda, .* not '{wrong}'"):
            OnnxRunner(bundle, sessions=SessionSettings(wrong))
    half = tiny_bundle(tmp_path / "bundle", precision="fp16")
    for device in ("cuda", "cuda:1"):
        with pytest.raises(StartupError, match=r"no CUDA provider: install the extra `gpu`"):
            OnnxRunner(half, sessions=SessionSettings(device))


def test_one_of_several_gpus_can_be_named() -> None:
    assert Device.parse("cuda") == Device("cuda", 0)
    assert Device.parse("cuda:3") == Device("cuda", 3)
    assert Device.parse("cpu") == Device("cpu", 0)


@pytest.mark.parametrize(
    "message",
    [
        "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running "
        "MatMul node. Status Message: bfc_arena.cc:376 AllocateRawInternal Failed to allocate "
        "memory for requested buffer of size 1073741824",
        "CUDA failure 2: out of memory ; GPU=0 ; expr=cudaMalloc((void**)&p, size)",
        "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0",
        "std::bad_alloc",
        "[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: "
        "you tried to allocate 274877906944 bytes. Error code 12 (Cannot allocate memory)",
    ],
)
def test_too_little_memory_is_known_by_what_is_said(message: str) -> None:
    assert is_out_of_memory(RuntimeError(message))
    assert not is_out_of_memory(RuntimeError("CUDA failure 700: an illegal memory access"))
    assert is_out_of_memory(MemoryError())


def test_a_graph_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path / "bundle")
    bundle.decoder_step_path.write_bytes(b"not a graph")
    with pytest.raises(StartupError, match=r"decoder_step\.onnx"):
        OnnxRunner(bundle)


def test_too_many_rows_for_the_machine_is_a_startup_error(bundle: Bundle) -> None:
    with pytest.raises(StartupError, match=r"bytes for 1000000000000 rows.*--max-rows"):
        OnnxRunner(bundle, max_rows=10**12)


def test_serving_needs_neither_torch_nor_onnx() -> None:
    program = (
        "import sys, service.runtime.cpu.runner\n"
        "assert not {'torch', 'onnx', 'safetensors'} & set(sys.modules), 'too much imported'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[4])
