"""The plan of the GPU benchmark, and a tiny one that runs every line on a CPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuPlan:
    """Models, batch sizes and durations.

    Attributes:
        models: names of speed models (presets), and "shipped".
        rows: batch sizes of single steps.
        concurrency: texts in flight in the engine.
        beams: beam sizes.
        step_repeats: steps that are timed at each batch size.
        seconds: duration of a point in the engine or over gRPC.
        grpc_calls, texts_per_call: calls in flight, and texts in each.
        length: target tokens of the timed steps.
    """

    models: tuple[str, ...] = ("base", "big", "shipped")
    rows: tuple[int, ...] = (1, 8, 32, 64, 128, 256, 512)
    concurrency: tuple[int, ...] = (1, 8, 64, 256, 512)
    beams: tuple[int, ...] = (1, 4)
    step_repeats: int = 200
    seconds: float = 5.0
    grpc_calls: int = 16
    texts_per_call: int = 16
    length: int = 28


FULL = GpuPlan()
SMOKE = GpuPlan(
    models=("tiny", "shipped"),
    rows=(1, 4),
    concurrency=(1, 4),
    beams=(1, 2),
    step_repeats=3,
    seconds=0.5,
    grpc_calls=2,
    texts_per_call=2,
    length=5,
)
