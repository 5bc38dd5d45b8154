"""The report: tables of the parts' results beside the aims."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.gpu.results import PointLog

Point = dict[str, Any]

PARTS = ("step", "engine", "grpc", "torch", "ctranslate2", "profile")


def write_report(directory: Path) -> Path:
    """Write report.md from the results in `directory`; missing ones are listed."""
    found = {part: list(PointLog(directory / "results" / f"{part}.jsonl")) for part in PARTS}
    sections = ["# On a GPU", _machine(directory), _aims(found), _tests(directory)]
    sections += [_steps(found), _engine(found), _grpc(found), _torch(found)]
    sections += [_ctranslate2(found), _profiles(found), _failures(directory)]
    file = directory / "report.md"
    file.write_text("\n\n".join(section for section in sections if section) + "\n", "utf-8")
    return file


def _machine(directory: Path) -> str:
    file = directory / "preflight.json"
    if not file.exists():
        return "The machine was not looked at."
    facts = json.loads(file.read_text(encoding="utf-8"))
    return _table(["what", "value"], ([name, str(value)] for name, value in facts.items()))


def _aims(found: dict[str, list[Point]]) -> str:
    def best(part: str, key: str, **wanted: Any) -> float | None:
        return next((p.get(key) for p in found[part] if _matches(p, wanted)), None)

    engine = {"model": "base", "beam": 1, "concurrency": 256, "depth": 2}
    step = {"model": "base", "rows": 1, "k": 1, "graphs": True}
    busy = best("engine", "busy_share", **engine)
    rows = [
        ["base, fp16, greedy, 256 rows: tokens per second in the engine", "300,000",
         _number(best("engine", "tokens_per_second", **engine))],
        ["decoder step at 1 row with graphs, microseconds", "250",
         _number(best("step", "step_us", **step))],
        ["256 texts in flight in unary requests of 16, over gRPC: tokens per second", "100,000",
         _number(best("grpc", "tokens_per_second", model="base", calls=16, texts_per_call=16))],
        ["GPU busy at 256 rows", "90 %", "not measured" if busy is None else f"{busy:.0%}"],
    ]  # fmt: skip
    return "## Aims\n\n" + _table(["", "aim", "measured"], rows)


def _tests(directory: Path) -> str:
    file = directory / "tests.txt"
    if not file.exists():
        return "## Tests\n\nNot run."
    lines = file.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if "%" in line or " passed" in line or "FAILED" in line]
    return "## Tests\n\n```\n" + "\n".join(kept[-20:]) + "\n```"


def _steps(found: dict[str, list[Point]]) -> str:
    columns: list[tuple[str, Callable[[Point], str]]] = [
        ("model", lambda p: p["model"]),
        ("search", lambda p: p["search"]),
        ("rows", lambda p: str(p["rows"])),
        ("graphs", lambda p: "yes" if p["graphs"] else "no"),
        ("step, us", lambda p: _number(p["step_us"])),
        ("p90", lambda p: _number(p["step_us_p90"])),
        ("pipelined, us", lambda p: _number(p["pipelined_us"])),
        ("encode, us", lambda p: _number(p["encode_us"])),
        ("start, s", lambda p: f"{p['start_seconds']:.1f}"),
        ("captured", lambda p: str(p["captured"])),
    ]
    text = (
        "A step as the host waits for it, from its launch until what it chose is on the host "
        "(median, 90th percentile), and when many are submitted at once, of which three are under "
        "way; the encoder for as many sources; how long the runner took to start, with captures."
    )
    return _section("Decoder steps", text, columns, found["step"])


def _engine(found: dict[str, list[Point]]) -> str:
    columns: list[tuple[str, Callable[[Point], str]]] = [
        ("model", lambda p: p["model"]),
        ("beam", lambda p: str(p["beam"])),
        ("in flight", lambda p: str(p["concurrency"])),
        ("depth", lambda p: str(p["depth"])),
        ("tokens/s", lambda p: _number(p["tokens_per_second"])),
        ("texts/s", lambda p: _number(p["texts_per_second"])),
        ("mean rows", lambda p: f"{p['mean_rows']:.1f}"),
        ("under way", lambda p: f"{p['device_share']:.0%}"),
        ("GPU busy", lambda p: _share(p["busy_share"])),
    ]
    text = (
        "A closed loop in one process, texts as long as those of newstest2013. Depth: steps under "
        "way before the first is looked at. Under way: the share of the time in which a step or an "
        "encode was. GPU busy: by nvidia-smi."
    )
    return _section("Engine", text, columns, found["engine"])


def _grpc(found: dict[str, list[Point]]) -> str:
    columns: list[tuple[str, Callable[[Point], str]]] = [
        ("model", lambda p: p["model"]),
        ("calls x texts", lambda p: f"{p['calls']} x {p['texts_per_call']}"),
        ("tokens/s", lambda p: _number(p["tokens_per_second"])),
        ("texts/s", lambda p: _number(p["texts_per_second"])),
        ("p50, ms", lambda p: _number(p["latency_ms_p50"])),
        ("p99, ms", lambda p: _number(p["latency_ms_p99"])),
        ("GPU busy", lambda p: _share(p["busy_share"])),
    ]
    text = "A server as its own process; unary requests from another, over loopback."
    return _section("Over gRPC", text, columns, found["grpc"])


def _torch(found: dict[str, list[Point]]) -> str:
    columns: list[tuple[str, Callable[[Point], str]]] = [
        ("model", lambda p: p["model"]),
        ("variant", lambda p: p["variant"]),
        ("rows", lambda p: str(p["rows"])),
        ("step, us", lambda p: _number(p.get("step_us"))),
        ("encode, us", lambda p: _number(p.get("encode_us"))),
        ("tokens/s", lambda p: _number(p.get("tokens_per_second"))),
        ("prepare, s", lambda p: _number(p.get("prepare_seconds"))),
        ("error", lambda p: p.get("error", "")),
    ]
    text = (
        "A greedy loop with a static cache in half precision; a static batch whose texts all end "
        "together, which flatters it: see `bench/gpu/torch_loop.py`."
    )
    return _section("PyTorch", text, columns, found["torch"])


def _ctranslate2(found: dict[str, list[Point]]) -> str:
    columns: list[tuple[str, Callable[[Point], str]]] = [
        ("model", lambda p: p["model"]),
        ("beam", lambda p: str(p["beam"])),
        ("batch", lambda p: str(p["rows"])),
        ("tokens/s", lambda p: _number(p.get("tokens_per_second"))),
        ("computes in", lambda p: p.get("compute_type", "")),
        ("error", lambda p: p.get("error", "")),
    ]
    text = "`translate_batch` on eight batches at a time, sorted by length."
    return _section("CTranslate2", text, columns, found["ctranslate2"])


def _profiles(found: dict[str, list[Point]]) -> str:
    parts = []
    for point in found["profile"]:
        operators = sorted(point["operators"].items(), key=lambda item: -item[1]["us"])[:15]
        rows = [[name, str(v["calls"]), _number(v["us"])] for name, v in operators]
        title = f"{point['model']}, {point['rows']} rows"
        parts.append(f"{title}:\n\n" + _table(["operator", "calls", "us"], rows))
    if not parts:
        return ""
    text = (
        "An encode and four steps without graphs, as ONNX Runtime's profiler sees them from the "
        "host. A step's operators on the CPU would keep its graph from being captured."
    )
    return "## Operators\n\n" + text + "\n\n" + "\n\n".join(parts)


def _failures(directory: Path) -> str:
    file = directory / "failures.txt"
    if not file.exists() or not file.read_text().strip():
        return ""
    return "## Parts that failed\n\n```\n" + file.read_text(encoding="utf-8").strip() + "\n```"


def _section(
    title: str,
    text: str,
    columns: Sequence[tuple[str, Callable[[Point], str]]],
    points: Sequence[Point],
) -> str:
    if not points:
        return f"## {title}\n\nNot measured."
    rows = [[show(point) for _, show in columns] for point in points]
    return f"## {title}\n\n{text}\n\n" + _table([name for name, _ in columns], rows)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join("---" for _ in columns) + " |"]
    lines += ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _matches(point: Point, wanted: dict[str, Any]) -> bool:
    return all(point.get(name) == value for name, value in wanted.items())


def _number(value: float | None) -> str:
    if value is None:
        return "not measured"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _share(value: float | None) -> str:
    return "not known" if value is None else f"{value:.0%}"
