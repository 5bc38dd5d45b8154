"""The ONNX Runtime runner, and the lanes that a bundle gets on a CPU."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from model.bundle.bundle import Bundle
from model.bundle.config import preset
from model.bundle.out_of_memory import is_out_of_memory
from model.bundle.processor import multiplies_int8_exactly
from model.bundle.sessions import Device, SessionSettings, open_session
from service.domain.plan import EncodeItem, ModelRunner, RowCopy, RunnerLimits, StepOutput, StepPlan
from service.errors import StartupError
from service.runtime.cpu.lane_count import best_lanes, steps_on_one_thread
from service.runtime.cpu.lanes import OnnxLanes, cpu_runner
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
    # 2 layers, keys and values, rows, 64 + 64 + 1 positions, width 32, 4 bytes.
    # 10 rows: 5, and as many in the background.
    assert runner.cache_bytes == 2 * 2 * 10 * 129 * 32 * 4 + 10 * 4
    limited = with_limits(bundle, max_source_positions=9, max_target_positions=7)
    shorter = OnnxRunner(limited, max_rows=5, intra_op_threads=1)
    assert (shorter.limits.max_source_positions, shorter.limits.max_target_positions) == (9, 7)
    assert shorter.cache_bytes == 2 * 2 * 10 * 17 * 32 * 4 + 10 * 4


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


# --- lanes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("max_rows", "threads", "small", "large"),
    [(64, 2, 1, 2), (64, 1, 0, 0), (63, 2, 1, 0), (31, 2, 0, 0), (128, 4, 4, 4), (96, 4, 0, 0)],
)
def test_two_threads_have_one_lane_for_a_small_decoder(
    max_rows: int, threads: int, small: int, large: int
) -> None:
    assert best_lanes(preset("small", 8000), max_rows, threads) == small
    version_4 = preset("small", 16_000, d_model=384, num_heads=6, ffn_dim=1536)
    assert best_lanes(version_4, max_rows, threads) == small
    assert best_lanes(preset("base", 32_000), max_rows, threads) == large
    assert best_lanes(preset("big", 32_000), max_rows, threads) == large


@pytest.mark.parametrize(
    ("max_rows", "threads", "lanes"),
    [
        (64, 2, [64]),
        (31, 2, []),
        (64, 1, []),
        (95, 3, []),
        (96, 3, [32, 32, 32]),
        (64, 16, []),
        (128, 4, [32, 32, 32, 32]),
        (256, 3, [86, 85, 85]),
    ],
)
def test_lanes_share_rows_and_no_lane_is_too_small_for_a_beam(
    tmp_path: Path, max_rows: int, threads: int, lanes: list[int]
) -> None:
    bundle = tiny_bundle(tmp_path / "bundle")
    runner = cpu_runner(bundle, max_rows, SessionSettings(intra_op_threads=threads))
    assert runner.limits.max_rows == max_rows
    if not lanes:
        assert isinstance(runner, OnnxRunner)
        return
    assert isinstance(runner, OnnxLanes)
    for ways in ([lane.alone for lane in runner.lanes], [lane.beside for lane in runner.lanes]):
        assert [way.limits.max_rows for way in ways] == lanes
    assert runner.cache_bytes == OnnxRunner(bundle, max_rows=max_rows).cache_bytes
    runner.close()


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_both_ways_of_every_lane_bring_the_same_bits(tmp_path: Path, precision: str) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", precision=precision)
    sources = random_sources(bundle.config, 5)
    sessions = SessionSettings(intra_op_threads=3)
    lanes = OnnxLanes(bundle, max_rows=24, num_lanes=3, sessions=sessions)
    expected = greedy_steps(OnnxRunner(bundle, max_rows=8), sources, 4)
    for lane in lanes.lanes:
        for way in (lane.alone, lane.beside):
            assert same_steps(greedy_steps(way, sources, 4), expected)


def test_the_weights_are_in_memory_twice_however_many_lanes_there_are(tmp_path: Path) -> None:
    sessions = SessionSettings(intra_op_threads=4)
    bundle = tiny_bundle(tmp_path / "bundle")
    lanes = OnnxLanes(bundle, max_rows=128, num_lanes=4, sessions=sessions)
    assert len(lanes.lanes) == 4
    assert _num_sessions(lanes) == 2


def test_a_tiny_decoder_steps_on_one_thread_and_has_its_weights_once(tmp_path: Path) -> None:
    lanes = cpu_runner(tiny_bundle(tmp_path / "bundle"), 64, SessionSettings(intra_op_threads=2))
    assert isinstance(lanes, OnnxLanes)
    assert _num_sessions(lanes) == 1


@pytest.mark.parametrize(
    ("name", "vocab_size", "whole", "listed"),
    [
        ("student-tiny", 8000, True, True),
        ("student-tiny", 32_000, False, True),
        ("student-base-memory", 32_000, False, False),
        ("student-base", 32_000, False, False),
    ],
)
def test_a_shortlist_makes_a_student_tiny(
    name: str, vocab_size: int, whole: bool, listed: bool
) -> None:
    config = preset(name, vocab_size)
    assert steps_on_one_thread(config, has_shortlist=False) == whole
    assert steps_on_one_thread(config, has_shortlist=True) == listed


def _num_sessions(lanes: OnnxLanes) -> int:
    runners = [way for lane in lanes.lanes for way in (lane.alone, lane.beside)]
    return len({id(way.encoder_session) for way in runners if isinstance(way, OnnxRunner)})


def test_too_many_rows_are_named_before_anything_is_opened(tmp_path: Path) -> None:
    rows = 2**48
    with pytest.raises(StartupError, match=rf"{rows} rows.*--max-rows"):
        cpu_runner(tiny_bundle(tmp_path / "bundle"), rows, SessionSettings(intra_op_threads=2))


def test_a_lane_goes_on_the_other_way_where_it_was(tmp_path: Path) -> None:
    """The two ways are of one cache."""
    bundle = tiny_bundle(tmp_path / "bundle")
    sources = random_sources(bundle.config, 5)
    lanes = OnnxLanes(
        bundle, max_rows=16, num_lanes=2, sessions=SessionSettings(intra_op_threads=2)
    )
    lane = lanes.lanes[1]
    turns = _Turns(lane.alone, lane.beside)
    expected = greedy_steps(OnnxRunner(bundle, max_rows=8), sources, 6)
    assert same_steps(greedy_steps(turns, sources, 6), expected)


class _Turns:
    """Two runners in turn."""

    def __init__(self, *runners: ModelRunner) -> None:
        self._runners = itertools.cycle(runners)

    @property
    def limits(self) -> RunnerLimits:
        raise NotImplementedError

    def execute(self, plan: StepPlan) -> StepOutput:
        return next(self._runners).execute(plan)

    def follow_up(self) -> StepOutput:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
