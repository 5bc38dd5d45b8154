"""One second of the engine under load as a picture: `python -m bench.engine.timeline`.

The engine is called in process by a closed loop of users, as in `bench.engine.in_process`. The
picture shows what its threads do, and what each sentence waits for; the table, where the time of
all and of the slowest sentences goes.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Annotated, Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import typer

from bench.engine.in_process import LaneClocks, TimedRun, served_runner
from bench.load.errors import LoadError
from bench.load.results import about_machine
from bench.load.source import TextOrder, read_texts
from bench.recompute import store
from bench.submission import submit
from model.bundle.bundle import Bundle
from model.evaluation.chart import COLOURS
from service.domain.requests import GenerationRequest
from service.engine.engine import Engine, EngineConfig
from service.engine.metrics import ModelMetrics
from service.observability.metrics import ServerMetrics
from service.runtime.cpu.lanes import OnnxLanes

BENCHMARK = "timeline"
_SHOWN_SECONDS = 1.0
_SLOWEST = 0.02  # of the sentences
_LEFT, _WIDTH, _BAND, _LINE, _GAP = 90, 960, 26, 7, 0.4  # pixels
_STEP, _ENCODE, _WAIT = COLOURS[0], COLOURS[1], "#bbbbbb"


@dataclass(frozen=True)
class TimedSentence:
    """The times of a sentence, in seconds: `submitted` on the clock of the runs, others from it.

    Attributes:
        encode_begins, encoded: its encode.
        joined: its first step's begin.
    """

    submitted: float
    encode_begins: float
    encoded: float
    joined: float
    ended: float
    num_tokens: int


def parts_of(sentences: Sequence[TimedSentence]) -> dict[str, float]:
    """The mean seconds of sentences until their encode, in it, until a row is free, in steps."""
    mean = statistics.fmean
    return {
        "until the encode": mean(one.encode_begins for one in sentences),
        "encode": mean(one.encoded - one.encode_begins for one in sentences),
        "until a row is free": mean(one.joined - one.encoded for one in sentences),
        "steps": mean(one.ended - one.joined for one in sentences),
        "tokens": mean(one.num_tokens for one in sentences),
    }


def slowest(sentences: Sequence[TimedSentence]) -> list[TimedSentence]:
    """The slowest 2 %, at least one."""
    ordered = sorted(sentences, key=lambda one: one.ended)
    return ordered[-max(1, round(_SLOWEST * len(ordered))) :]


async def measured(
    bundle: Bundle, texts: Sequence[str], users: int, seconds: float, warmup: float
) -> dict[str, Any]:
    """The figures of a closed loop, and all that happened in its middle second.

    Raises:
        LoadError: the bundle has no lanes on this machine, or no sentence was counted.
    """
    runner = served_runner(bundle, users)
    if not isinstance(runner, OnnxLanes):
        raise LoadError("this model has no lanes here: it needs two cores")
    clocks = LaneClocks(runner)
    config = EngineConfig(bos_id=bundle.config.bos_id, eos_id=bundle.config.eos_id)
    engine = Engine.of_runner(clocks, config, ModelMetrics(ServerMetrics(), "engine"))
    tokenizer = bundle.tokenizer()
    sources = [(*tokenizer.encode(text), bundle.config.eos_id) for text in texts]
    order, numbers = TextOrder(len(texts), 1, seed=0), itertools.count()
    sentences: list[TimedSentence] = []
    start = time.perf_counter()

    async def user() -> None:
        while time.perf_counter() - start < warmup + seconds:
            (text,) = order.of_request(next(numbers))
            submitted = time.perf_counter()
            result = await submit(engine, GenerationRequest(sources[text])).result()
            encoded = result.queue_seconds
            if result.encoded_seconds is not None:
                encoded = min(result.encoded_seconds, encoded)
            begins = max(0.0, encoded - result.encode_seconds)
            times = (submitted - start, begins, encoded, result.queue_seconds)
            ended = result.queue_seconds + result.compute_seconds
            sentences.append(TimedSentence(*times, ended, len(result.token_ids)))

    await engine.start()
    try:
        await asyncio.gather(*(user() for _ in range(users)))
    finally:
        await engine.stop()
    counted = [one for one in sentences if one.submitted >= warmup]
    if not counted:
        raise LoadError(f"no sentence began after the warm-up of {warmup:g} s: measure for longer")
    first = warmup + (seconds - _SHOWN_SECONDS) / 2

    def shown(runs: Sequence[TimedRun]) -> list[TimedRun]:
        moved = [
            one._replace(start=round(one.start - start, 5), end=round(one.end - start, 5))
            for one in runs
        ]
        return [one for one in moved if one.end > first and one.start < first + _SHOWN_SECONDS]

    return {
        "users": users,
        "num_sentences": len(counted),
        "all": parts_of(counted),
        "slowest": parts_of(slowest(counted)),
        "first": first,
        "lanes": [shown(clock.steps) for clock in clocks.clocks],
        "encodes": shown(clocks.encodes),
        "sentences": [
            {name: round(value, 5) for name, value in asdict(one).items()}
            for one in sentences
            if one.submitted + one.ended > first and one.submitted < first + _SHOWN_SECONDS
        ],
    }


def picture(found: Mapping[str, Any]) -> str:
    """The second as an SVG file: a band for each thread, a line for each sentence."""
    first, parts = found["first"], []

    def bar(start: float, end: float, y: float, height: float, colour: str, title: str) -> None:
        left = max(start - first, 0.0)
        width = min(end - first, _SHOWN_SECONDS) - left
        if width > 0:
            x, scale = _LEFT + left * _WIDTH / _SHOWN_SECONDS, _WIDTH / _SHOWN_SECONDS
            width = max(width * scale - _GAP, _GAP)
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" '
                f'height="{height}" fill="{colour}"><title>{escape(title)}</title></rect>'
            )

    def label(text: str, y: float) -> None:
        parts.append(f'<text x="4" y="{y}">{escape(text)}</text>')

    bands = [(f"lane {number}", runs) for number, runs in enumerate(found["lanes"], 1)]
    y = 24
    for name, runs in (*bands, ("encodes", found["encodes"])):
        label(name, y + 15)
        for begin, end, size, encodes in runs:
            colour = _ENCODE if encodes else _STEP
            bar(begin, end, y, _BAND - 6, colour, f"{size}, {1e3 * (end - begin):.1f} ms")
        y += _BAND
    label("sentences", y + 15)
    for one in sorted((TimedSentence(**fields) for fields in found["sentences"]), key=_begin):
        at = one.submitted
        title = f"{one.num_tokens} tokens, {1e3 * one.ended:.0f} ms"
        bar(at, at + one.ended, y + 4, _LINE - 2, _WAIT, title)
        bar(at + one.encode_begins, at + one.encoded, y + 4, _LINE - 2, _ENCODE, title)
        bar(at + one.joined, at + one.ended, y + 4, _LINE - 2, _STEP, title)
        y += _LINE
    height = y + 16
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 10} {height}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="{_LEFT}" y="14">one second: steps blue, encodes yellow, waiting grey</text>'
    )
    return "\n".join([head, *parts, "</svg>\n"])


def _begin(sentence: TimedSentence) -> float:
    return sentence.submitted


def report(summary: Mapping[str, Any]) -> str:
    """The table as Markdown, with the picture."""
    found, facts = summary["found"], summary["machine"]
    lines = [
        f"# A second of the engine: {summary['model']}, {found['users']} users",
        "",
        f"{facts['processor']}, {facts['cpus']} cores; `{summary['command']}`; "
        f"{found['num_sentences']:,} sentences.",
        "",
        "![one second](timeline.svg)",
        "",
        "| mean | " + " | ".join(found["all"]) + " |",
        "| --- |" + " ---: |" * len(found["all"]),
    ]
    for name, key in (("all", "all"), ("the slowest 2 %", "slowest")):
        cells = [
            f"{value:.1f}" if part == "tokens" else f"{1e3 * value:,.0f} ms"
            for part, value in found[key].items()
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def files(summary: Mapping[str, Any]) -> dict[str, str]:
    """The report and its picture, by file names."""
    return {"report.md": report(summary), "timeline.svg": picture(summary["found"])}


def main(
    bundle: Annotated[Path, typer.Argument(help="An int8 bundle.")],
    texts: Annotated[Path, typer.Argument(help="Texts for it, one a line.")],
    output: Annotated[Path, typer.Option(help="Folder for the report.")],
    users: Annotated[int, typer.Option(help="Users of the closed loop.")] = 64,
    seconds: Annotated[float, typer.Option(help="Duration of the measurement.", min=1.0)] = 20.0,
    warmup: Annotated[float, typer.Option(help="Duration of its warm-up.")] = 5.0,
) -> None:
    """Measure, and write the report."""
    loaded = Bundle.load(bundle)
    found = asyncio.run(measured(loaded, read_texts(texts), users, seconds, warmup))
    command = f"python -m bench.engine.timeline {bundle} {texts} --output DIR --users {users}"
    command += f" --seconds {seconds:g} --warmup {warmup:g}"
    facts = {"benchmark": BENCHMARK, "machine": about_machine(), "model": loaded.name}
    store(output, {**facts, "command": command, "found": found})
    typer.echo((output / "report.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    typer.run(main)
