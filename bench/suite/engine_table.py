"""The engine against CTranslate2: ratios, floors and aims, from a run's raw samples."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.load.capacity import capacity_of, read_trials
from bench.load.capacity_report import CAPACITY_FILE
from bench.load.statistics import MAX_SECONDS
from bench.load.units import format_seconds
from bench.suite.artifacts import OPUS
from bench.suite.cells import Cell, RawRuns, cells_of, find
from bench.suite.points import MAIN_SHARE, OWN, PEER, Load

SUITE = "engine"
IN_PROCESS = "in-process"
SHIPPED = "shipped"

ALONE = Load(concurrency=1)
FEW = Load(concurrency=8)
MANY = Load(concurrency=64)
BEAMS = Load(concurrency=16, beam_size=4)
OPEN = Load(share=MAIN_SHARE)
SHIPPED_OPEN = Load(share=0.65)

# With more failures than lie above a p99, the p99 would be infinite.
_MOST_FAILED = 0.01
_NAMES = ("ours", "CTranslate2's")


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        floor, aim: least allowed ratio, and desired ratio.
        more_is_better: whether a higher ratio is better.
        ratio: our figure divided by theirs; None if it was not measured.
        ours, theirs: the two figures as text.
        why_not: reason why a measurement gave no ratio.
    """

    name: str
    floor: float
    aim: float
    more_is_better: bool = True
    ratio: float | None = None
    ours: str = "–"
    theirs: str = "–"
    why_not: str = ""

    def reaches(self, wanted: float) -> bool:
        """Whether the ratio is at least as good as `wanted`."""
        if self.ratio is None:
            return False
        return self.ratio >= wanted if self.more_is_better else self.ratio <= wanted

    @property
    def verdict(self) -> str:
        """The result in words."""
        if self.ratio is None:
            return f"no ratio: {self.why_not}" if self.why_not else "not measured"
        if self.reaches(self.aim):
            return "aim reached"
        return "floor held" if self.reaches(self.floor) else "**floor missed**"

    def cells(self) -> list[str]:
        """The cells of this row, one for each column of `HEADER`."""
        ratio = "–" if self.ratio is None else f"{self.ratio:.3g}"
        sign = "≥" if self.more_is_better else "≤"
        wanted = [f"{sign} {self.floor:g}", f"{sign} {self.aim:g}"]
        return [self.name, self.ours, self.theirs, ratio, *wanted, self.verdict]


HEADER = ["", "ours", "against", "ratio", "floor", "aim", ""]


def floors_held(rows: Sequence[Row]) -> bool:
    """Whether every row was measured and none is below its floor."""
    return all(row.reaches(row.floor) for row in rows)


def rows(directory: Path, models: Mapping[str, RawRuns]) -> list[Row]:
    """All lines; those without a measurement say so.

    Args:
        models: its raw runs by the name of the model.
    """
    speed = next((name for name in models if not name.startswith((SHIPPED, OPUS))), "base int8")
    shipped, opus = (_named(models, start) for start in (SHIPPED, OPUS))
    raw = models.get(speed, {})
    cells = cells_of(raw)
    base = speed.replace(" ", "-")
    inside = _in_process(directory / "runs" / base / IN_PROCESS)
    beams = Row("16 clients, beam 4, base: tokens/s", 1.0, 1.5)
    return [
        *_greedy(raw, _BASE),
        _of_runs(beams, cells, BEAMS, _BASE.figure),
        _open(cells),
        _capacity(directory / "capacity" / base),
        *_greedy(shipped, _SHIPPED),
        *_shipped_open(cells_of(shipped)),
        _engine_loop(inside),
        _front(inside, cells),
        _memory(cells),
        *_greedy(opus, _OPUS),
    ]


def _named(models: Mapping[str, RawRuns], start: str) -> RawRuns:
    """The runs of the model whose name starts with this; empty if there is no such model."""
    return next((raw for name, raw in models.items() if name.startswith(start)), {})


def render(rows: Sequence[Row]) -> list[str]:
    """The table as lines of Markdown, and how each line is measured."""
    lines = [HEADER, ["---"] * len(HEADER), *(row.cells() for row in rows)]
    return [
        *("| " + " | ".join(line) + " |" for line in lines),
        "",
        "Ratios of medians over repetitions in which the systems alternate; CTranslate2 at the "
        "best of its sweep for each line. One client: the median latency of the requests that both "
        "answered, which are the same texts. p99: of the requests of all repetitions; one that "
        "fails or is refused counts as infinitely late. Poisson, median latency: of the requests "
        "that were answered, in all repetitions. No ratio where more than 1 % of a side's "
        "requests failed, a run was not valid or a search ended early. Engine and session: time of "
        "a decoder step in the engine (scheduling, choice of tokens, metrics) "
        "against a loop that does nothing but run that graph, with 1, 8 and 64 rows; the worst. "
        "gRPC: tokens for each second of CPU of the server, of all its processes, against those of "
        "the engine, called in a process of its own with the same texts and as many users: so what "
        "the generator computes does not count.",
    ]


def _pair(cells: Sequence[Cell], load: Load) -> tuple[Cell, Cell] | None:
    own, peer = (find(cells, load.name, system) for system in (OWN, PEER))
    return None if own is None or peer is None else (own, peer)


@dataclass(frozen=True)
class _Wanted:
    """Floors and aims of a model's closed loops.

    Attributes:
        unit, figure: counted unit, and its field in `RunFigures`.
        alone, few, many, late: floor and aim for the median latency of one client, for the
            throughput with 8 and with 64, and for the p99 with 64.
    """

    model: str
    alone: tuple[float, float]
    few: tuple[float, float]
    many: tuple[float, float]
    late: tuple[float, float]
    unit: str = "tokens/s"
    figure: str = "tokens_per_second"


_BASE = _Wanted("base", (0.4, 0.2), (1.8, 3.0), (1.7, 2.0), (1.0, 0.7))
_SHIPPED = _Wanted(
    "included model", (0.5, 0.3), (1.6, 2.0), (1.3, 1.8), (1.0, 0.6), "sentences/s",
    "texts_per_second",
)  # fmt: skip
_OPUS = _Wanted("OPUS-MT's size", (0.4, 0.2), (1.8, 3.0), (2.0, 2.5), (1.0, 0.6))


def _greedy(raw: RawRuns, wanted: _Wanted) -> list[Row]:
    """The closed loops of greedy requests."""
    cells = cells_of(raw)

    def name(clients: str, figure: str) -> str:
        return f"{clients}, greedy, {wanted.model}: {figure}"

    alone = Row(name("one client", "median latency"), *wanted.alone, more_is_better=False)
    few, many = (
        Row(name("8 clients", wanted.unit), *wanted.few),
        Row(name("64 clients", wanted.unit), *wanted.many),
    )
    late = Row(name("64 clients", "p99"), *wanted.late, more_is_better=False)
    return [
        _alone(alone, raw, cells),
        _of_runs(few, cells, FEW, wanted.figure),
        _of_runs(many, cells, MANY, wanted.figure),
        _late(late, cells, MANY),
    ]


def _alone(row: Row, raw: RawRuns, cells: Sequence[Cell]) -> Row:
    pair = _pair(cells, ALONE)
    if pair is None:
        return row
    medians: tuple[list[float], list[float]] = ([], [])
    for runs in zip(*(raw[ALONE.name, system] for system in (OWN, PEER)), strict=False):
        latencies = [
            {s.number: s.latency for s in results.run.measured() if s.ok} for results in runs
        ]
        common = sorted(latencies[0].keys() & latencies[1].keys())
        if common:
            for side, values in zip(medians, latencies, strict=True):
                side.append(statistics.median(values[number] for number in common))
    return _checked(_compared(row, *medians, format_seconds), pair)


def _of_runs(row: Row, cells: Sequence[Cell], load: Load, figure: str) -> Row:
    pair = _pair(cells, load)
    if pair is None:
        return row
    ours, theirs = ([getattr(run, figure) for run in cell.runs] for cell in pair)
    return _checked(_compared(row, ours, theirs, "{:,.0f}".format), pair)


def _open(cells: Sequence[Cell]) -> Row:
    row = Row("Poisson at 80 % of CTranslate2's capacity: p99", 0.4, 0.2, more_is_better=False)
    return _late(row, cells, OPEN)


def _shipped_open(cells: Sequence[Cell]) -> list[Row]:
    name = "Poisson at 65 % of CTranslate2's capacity, included model"
    half = Row(f"{name}: median latency", 1.0, 0.6, more_is_better=False)
    late = Row(f"{name}: p99", 1.0, 0.6, more_is_better=False)
    pair = _pair(cells, SHIPPED_OPEN)
    if pair is not None:
        medians = (cell.latency.at(50) for cell in pair)
        ours, theirs = ([] if median is None else [median] for median in medians)
        half = _checked(_compared(half, ours, theirs, format_seconds), pair)
    return [half, _late(late, cells, SHIPPED_OPEN)]


def _late(row: Row, cells: Sequence[Cell], load: Load) -> Row:
    """The p99 of all requests at a load."""
    pair = _pair(cells, load)
    if pair is None:
        return row
    ours, theirs = (
        [] if cell.p99_with_failed is None else [_or_never(cell.p99_with_failed)] for cell in pair
    )
    return _checked(_compared(row, ours, theirs, _seconds_or_never), pair)


def _capacity(directory: Path) -> Row:
    row = Row("capacity at the same p99: requests/s", 1.3, 2.5)
    found = (capacity_of(read_trials(directory / system)) for system in (OWN, PEER))
    ours, theirs = ([] if rate is None else [rate] for rate in found)
    row = _compared(row, ours, theirs, "{:.3g}".format)
    if row.ratio is None:
        return row
    ended = [_ended_early(directory / system / CAPACITY_FILE) for system in (OWN, PEER)]
    why = [f"the search of {name} {text}" for name, text in zip(_NAMES, ended, strict=True) if text]
    return dataclasses.replace(row, ratio=None, why_not=", ".join(why)) if why else row


def _ended_early(file: Path) -> str:
    """The reason why the result of a capacity search does not count; "" if it does."""
    if not file.exists():
        return "did not end"
    facts: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return f"ended early: {facts['ended_early']}" if facts["ended_early"] else ""


def _engine_loop(inside: Sequence[Mapping[str, Any]]) -> Row:
    row = Row("engine, of a bare loop of its decoder step", 0.9, 0.97)
    if not inside:
        return row
    made = []
    for num_rows in inside[0]["steps"]:
        ours, bare = (
            statistics.median(
                block["seconds"] / block["steps"]
                for repetition in inside
                for block in repetition["steps"][num_rows][loop]
            )
            for loop in ("engine", "bare")
        )
        texts = [f"{format_seconds(seconds)} a step of {num_rows}" for seconds in (ours, bare)]
        made.append((bare / ours, texts))
    ratio, (ours_text, bare_text) = min(made)
    return Row(row.name, row.floor, row.aim, ratio=ratio, ours=ours_text, theirs=bare_text)


def _front(inside: Sequence[Mapping[str, Any]], cells: Sequence[Cell]) -> Row:
    row = Row("gRPC end to end, of the engine in process: tokens per CPU second", 0.9, 0.97)
    own = find(cells, MANY.name, OWN)
    if own is None or not inside:
        return row
    served = [run.tokens_per_cpu_second for run in own.runs if run.tokens_per_cpu_second]
    called = [one["closed"]["tokens"] / one["closed"]["cpu_seconds"] for one in inside]
    return _compared(row, served, called, "{:,.0f}".format)


def _memory(cells: Sequence[Cell]) -> Row:
    row = Row("64 clients, base: memory of the server", 1.0, 0.7, more_is_better=False)
    pair = _pair(cells, MANY)
    if pair is None:
        return row
    ours, theirs = ([run.memory_bytes for run in cell.runs if run.memory_bytes] for cell in pair)
    return _compared(row, ours, theirs, lambda size: f"{size / 2**20:,.0f} MiB")


def _compared(
    row: Row, ours: Iterable[float], theirs: Iterable[float], form: Callable[[float], str]
) -> Row:
    """The row with the ratio of the two medians; unchanged if a side has no value."""
    ours, theirs = list(ours), list(theirs)
    if not ours or not theirs:
        return row
    own, other = statistics.median(ours), statistics.median(theirs)
    ratio = own / other if other else None
    return Row(row.name, row.floor, row.aim, row.more_is_better, ratio, form(own), form(other))


def _checked(row: Row, pair: tuple[Cell, Cell]) -> Row:
    """The row with its failed requests; it has no ratio if too many failed or a run is invalid.

    A system that answers fewer requests answers them faster, so its figures are not of the same
    work.
    """
    sides = [
        f"{text} ({cell.num_failed:,} failed)" if cell.num_failed else text
        for text, cell in zip((row.ours, row.theirs), pair, strict=True)
    ]
    row = dataclasses.replace(row, ours=sides[0], theirs=sides[1])
    why = [
        f"{cell.failed_share:.1%} of {name} failed"
        for name, cell in zip(_NAMES, pair, strict=True)
        if cell.failed_share > _MOST_FAILED
    ]
    why += [
        f"a run of {name} is not valid: {run.problems[0]}"
        for name, cell in zip(_NAMES, pair, strict=True)
        for run in cell.runs
        if run.problems
    ]
    return dataclasses.replace(row, ratio=None, why_not=", ".join(why)) if why else row


def _or_never(seconds: float) -> float:
    """Seconds; infinite from the histogram's maximum on."""
    return math.inf if seconds >= MAX_SECONDS else seconds


def _seconds_or_never(seconds: float) -> str:
    return format_seconds(seconds) if math.isfinite(seconds) else "∞"


def _in_process(directory: Path) -> list[dict[str, Any]]:
    return [
        json.loads(file.read_text(encoding="utf-8")) for file in sorted(directory.glob("*.json"))
    ]
