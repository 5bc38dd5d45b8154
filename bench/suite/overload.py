"""Overload: a server with more load than it can carry refuses requests and does not fall behind."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import grpc

from bench.criterion import Criterion
from bench.load.units import format_seconds
from bench.suite.cells import Cell, find
from bench.suite.points import OWN
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub

_TIMES_P99 = 2.0
_MEMORY_GROWTH = 0.03
_RECOVERY_SECONDS = 1.0
_CALM, _OVER = "80pct", "150pct"


def touch_rows(server: str, texts: Sequence[str], num_rows: int) -> None:
    """Translate a long text in every row at once.

    The kernel commits the caches' pages when a row first reaches them, so memory grows to a known
    bound. Only growth after this indicates a leak.

    Raises:
        grpc.RpcError: the server does not answer all.
    """
    longest = sorted(texts, key=len)[-num_rows:]
    with grpc.insecure_channel(server) as channel:
        stub = TranslationServiceStub(channel)
        requests = [pb.TranslateRequest(contents=[text]) for text in longest]
        for call in [stub.Translate.future(request, timeout=300.0) for request in requests]:
            call.result()


def criteria(cells: Sequence[Cell]) -> list[Criterion]:
    """Overload at 150 % of our own throughput beside 80 % of it; none without these runs."""
    made = []
    for over in cells:
        found = re.fullmatch(rf"own-{_OVER}(.*)", over.load)
        calm = find(cells, f"own-{_CALM}{found[1]}", OWN) if found else None
        if calm is not None:
            made += [
                Criterion(f"{one.what} at {over.load}", one.kept, one.found)
                for one in judge(calm, over)
            ]
    return made


def judge(calm: Cell, over: Cell) -> list[Criterion]:
    """The criteria for one pair of loads."""
    errors = sum((Counter(run.errors) for run in over.runs), Counter())
    hints = sum(run.num_retry_hints for run in over.runs)
    before, after = (cell.latency.at(99) for cell in (calm, over))
    shown = ["–" if p99 is None else format_seconds(p99) for p99 in (before, after)]
    # Too few scrapes to tell: not flat.
    growth = max(math.inf if (g := run.memory_growth) is None else g for run in over.runs)
    recovery = max(run.recovery_seconds for run in over.runs)
    return [
        Criterion(
            "what can't be done is refused with RESOURCE_EXHAUSTED, nothing else fails",
            list(errors) == ["RESOURCE_EXHAUSTED"],
            f"{errors.total():,} refused: {', '.join(sorted(errors)) or 'none'}",
        ),
        Criterion(
            "each refusal says when to try again",
            bool(errors) and hints == errors.total(),
            f"{hints:,} of {errors.total():,}",
        ),
        Criterion(
            "the p99 of what is accepted is within twice that at 80 %",
            None if before is None or after is None else after <= _TIMES_P99 * before,
            f"{shown[1]} against {shown[0]}",
        ),
        Criterion("memory stays flat", growth <= _MEMORY_GROWTH, f"{growth:+.1%}"),
        Criterion(
            "a second after the load has gone nothing waits any more",
            recovery <= _RECOVERY_SECONDS,
            format_seconds(recovery),
        ),
    ]
