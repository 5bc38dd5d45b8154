"""One part of the benchmark on a GPU: `python -m bench.gpu.run step --output DIR`."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

from bench.gpu.plan import FULL, SMOKE, GpuPlan
from bench.gpu.results import PointLog

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("preflight", "prepare", "step", "engine", "grpc", "profile")


def main() -> int:
    """Run a part for every model. A failure does not stop the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--output", type=Path, required=True, help="where results go")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "bench-gpu")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu")
    parser.add_argument("--smoke", action="store_true", help="tiny, to see that it runs")
    parser.add_argument("--models", default="", help="only these, separated by spaces")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no point after")
    given = parser.parse_args()
    plan = SMOKE if given.smoke else FULL
    if given.part == "preflight":
        from bench.gpu import preflight

        return preflight.main(given.output, given.device)
    results = PointLog(given.output / "results" / f"{given.part}.jsonl", given.seconds)
    names = given.models.split() or plan.models
    failed = [name for name in names if not _run(given.part, name, given, plan, results)]
    return 1 if failed else 0


def _run(part: str, name: str, given: argparse.Namespace, plan: GpuPlan, results: PointLog) -> bool:
    from bench.gpu.models import prepare

    try:
        model = prepare(name, given.work)
        if part == "step":
            from bench.gpu import steps

            steps.measure(model, given.device, plan, results)
        elif part == "profile":
            from bench.gpu import steps

            steps.profile(model, given.device, plan, results)
        elif part == "engine":
            from bench.gpu import engine

            engine.measure(model, given.device, plan, results)
        elif part == "grpc":
            from bench.gpu import served

            log = given.output / "logs" / f"grpc-{name}.log"
            served.measure(model, given.device, plan, results, log)
    except Exception:
        traceback.print_exc()
        given.output.mkdir(parents=True, exist_ok=True)
        with (given.output / "failures.txt").open("a", encoding="utf-8") as file:
            file.write(f"{part}, {name}: {traceback.format_exc().strip().splitlines()[-1]}\n")
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
