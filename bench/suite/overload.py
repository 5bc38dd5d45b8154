"""Whether a server under more load than it can carry refuses, rather than falls behind."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import grpc

from bench.load.results import Results
from bench.load.sample import Sample
from bench.load.units import format_seconds
from bench.suite.cells import Cell, find
from bench.suite.points import OWN
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub

_TIMES_P99 = 2.0
_MEMORY_GROWTH = 0.03
_RECOVERY_SECONDS = 1.0
_CALM, _OVER = "80pct", "150pct"


@dataclass(frozen=True)
class Verdict:
    """One thing that is asked of a server under overload.

    Attributes:
        what: it is.
        kept: whether it is so; None if there are too few samples to say.
        found: what was measured.
    """

    what: str
    kept: bool | None
    found: str

    def __str__(self) -> str:
        verdict = {True: "kept", False: "**BROKEN**", None: "not known"}[self.kept]
        return f"{verdict}: {self.what} ({self.found})"


def touch_rows(server: str, texts: Sequence[str], num_rows: int) -> None:
    """Have every row translate a long text, all at once.

    The caches' pages are committed when a row first gets that far. It is their size that is bounded
    (the server says by how much), and only after this does a growth of the memory tell of a leak.

    Raises:
        grpc.RpcError: the server does not answer all.
    """
    longest = sorted(texts, key=len)[-num_rows:]
    with grpc.insecure_channel(server) as channel:
        stub = TranslationServiceStub(channel)
        requests = [pb.TranslateRequest(contents=[text]) for text in longest]
        for call in [stub.Translate.future(request, timeout=300.0) for request in requests]:
            call.result()


def verdicts(cells: Sequence[Cell]) -> list[Verdict]:
    """What is asked, at 150 % of our own throughput beside 80 % of it; none without these runs."""
    made = []
    for over in cells:
        found = re.fullmatch(rf"own-{_OVER}(.*)", over.load)
        calm = find(cells, f"own-{_CALM}{found[1]}", OWN) if found else None
        if calm is not None:
            suffix = f" at {over.load}"
            made += [
                Verdict(verdict.what + suffix, verdict.kept, verdict.found)
                for verdict in judge(calm, over)
            ]
    return made


def judge(calm: Cell, over: Cell) -> list[Verdict]:
    """The verdicts on one pair of loads."""
    failed = [s for results in over.runs for s in results.run.measured() if s.failed]
    codes = sorted({sample.reply.code for sample in failed})
    hints = sum(sample.reply.retry_after is not None for sample in failed)
    p99s = [cell.latency.at(99) for cell in (calm, over)]
    growth = max(memory_growth(results) for results in over.runs)
    recovery = max(recovery_seconds(results) for results in over.runs)
    shown = ["–" if p99 is None else format_seconds(p99) for p99 in p99s]
    before, after = p99s
    return [
        Verdict(
            "what can't be done is refused with RESOURCE_EXHAUSTED, nothing else fails",
            codes == ["RESOURCE_EXHAUSTED"],
            f"{len(failed):,} refused: {', '.join(codes) or 'none'}",
        ),
        Verdict(
            "each refusal says when to try again",
            bool(failed) and hints == len(failed),
            f"{hints:,} of {len(failed):,}",
        ),
        Verdict(
            "the p99 of what is accepted is within twice that at 80 %",
            None if before is None or after is None else after <= _TIMES_P99 * before,
            f"{shown[1]} against {shown[0]}",
        ),
        Verdict("memory stays flat", growth <= _MEMORY_GROWTH, f"{growth:+.1%}"),
        Verdict(
            "a second after the load has gone nothing waits any more",
            recovery <= _RECOVERY_SECONDS,
            format_seconds(recovery),
        ),
    ]


def memory_growth(results: Results) -> float:
    """Of the resident memory, from the second quarter of a run to its last; a share."""
    memory = [
        snapshot.values["process_resident_memory_bytes"]
        for snapshot in results.snapshots
        if "process_resident_memory_bytes" in snapshot.values
        and results.run.plan.warmup <= snapshot.seconds <= results.run.seconds
    ]
    if len(memory) < 4:
        return float("inf")
    quarter = len(memory) // 4
    early = statistics.median(memory[quarter : 2 * quarter])
    return statistics.median(memory[-quarter:]) / early - 1


def recovery_seconds(results: Results) -> float:
    """How long after the end of the load the last sentence still waited for its row."""
    return max([0.0, *(_began(s) - results.run.seconds for s in results.run.samples if s.ok)])


def _began(sample: Sample) -> float:
    return sample.sent + sample.reply.queue_seconds
