"""A student (SSRU decoder, shortlist) against the engines of its files, and against self-attention.

    python -m bench.students CHECKPOINT --shortlist-from train.en train.de

exports the checkpoint for Marian's engines, imports those files, and measures in turn: a batch in
each engine's process on one thread; one and many clients of a server with each engine behind it;
the same with a network of the size base-memory with random weights, of which translations are as
long as their sources; and a decoder with self-attention in the place of the recurrence. Peers that
are not installed (`pip install fxtranslate`, `pip install --no-deps slimt`) are left out. Writes
`report.md` and `summary.json`, anew with each line of the table.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import typer

from bench.load.plan import LoadPlan
from bench.load.results import about_machine
from bench.load.session import Session
from bench.load.source import read_texts
from bench.load.statistics import Summary
from bench.peers.student_backend import ENGINES, installed
from bench.random_student import end_like_sources, lengths, random_student
from bench.recompute import REPORT_FILE, store
from bench.submission import submit_many
from bench.suite.artifacts import SHIPPED_TEXTS, Artifacts
from bench.suite.systems import System, running
from export.bundle_writer import ExportOptions, ExportSource, write_bundle
from export.errors import ExportError
from export.importer import import_directory
from export.layers import NEVER
from export.shortlists import shortlist_from_text
from export.students.writer import check_student, write_student
from model.bundle.bundle import Bundle
from model.bundle.config import ModelConfig, preset
from model.bundle.shortlist import Shortlist
from model.bundle.tokenizer import TOKENIZER_FILE
from model.network.checkpoint import (
    Checkpoint,
    CheckpointError,
    checkpoint_folder,
    load_checkpoint,
    save_checkpoint,
)
from model.network.transformer import Transformer
from service.domain.requests import GenerationRequest
from service.engine.engine import Engine
from service.models.loading import load_model
from service.observability.metrics import ServerMetrics
from service.settings import Settings
from service.things.scanned import TermRules
from service.things.text_parts import may_need_care

OURS, SELF_ATTENTION = "dragoman", "self-attention"
MANY = 64
_TOKENS = 24  # of each translation of two networks of random weights
_ALPHA_TEXTS, _RANDOM_ALPHA_TEXTS = 60, 12
BASE_MEMORY = "student-base-memory"
_SIZES = ("d_model", "num_encoder_layers", "num_decoder_layers", "num_heads", "ffn_dim")
_LONGEST = 1.4  # times the source; engines cut longer translations at different lengths
# Peers at their best: fxtranslate translates one sentence at a time, slimt in batches.
_BATCHES = {"fxtranslate": 1, "slimt": 32}


@dataclass(frozen=True)
class StudentFigure:
    """A line of the table: a figure of ours against the best peer's.

    Attributes:
        what: name of the measurement, with the unit.
        figures: measured values by system.
        floor: ratio of our figure to the best peer's that has to be reached.
        aim: ratio to be aimed at.
        is_time: whether less is better.
    """

    what: str
    figures: Mapping[str, float]
    floor: float
    aim: float
    is_time: bool = False

    @property
    def ratio(self) -> float | None:
        """Our figure divided by the best peer's; None without a peer's or ours."""
        others = [figure for name, figure in self.figures.items() if name != OURS and figure]
        if not others or OURS not in self.figures:
            return None
        return self.figures[OURS] / (min(others) if self.is_time else max(others))

    def __str__(self) -> str:
        """A line of a Markdown table."""
        figures = ", ".join(f"{name} {figure:,.4g}" for name, figure in self.figures.items())
        ratio = "–" if self.ratio is None else f"{self.ratio:.2f}"
        return f"| {self.what} | {figures} | {ratio} | {self.floor:g} | {self.aim:g} |"


@dataclass(frozen=True)
class Timing:
    """The durations of the measurements.

    Attributes:
        batch: number of sentences in the batch.
        seconds: duration of a load, after a warm-up of a quarter of it.
        repetitions: number of rounds, in which systems take turns.
    """

    batch: int
    seconds: float
    repetitions: int


# --- models ---------------------------------------------------------------------------------------


def prepare(
    work: Path, checkpoint: Path, texts: Path, shortlist_from: tuple[Path, Path]
) -> tuple[dict[str, Artifacts], list[Artifacts]]:
    """Students by name, in both formats; and two networks of random weights, SSRU first."""
    loaded, random = load_checkpoint(checkpoint), []
    shortlist = shortlist_from_text(shortlist_from, loaded.tokenizer, loaded.config)
    made = work / "made"
    chosen = _write_base_memory(loaded, shortlist, read_texts(texts), made, work)
    students = {
        "student": _exported(work / "student", checkpoint, texts, shortlist_from, _ALPHA_TEXTS),
        BASE_MEMORY: _exported(
            work / BASE_MEMORY, made, chosen, shortlist_from, _RANDOM_ALPHA_TEXTS
        ),
    }
    marian = students["student"].converted
    for decoder in ("ssru", "self_attention"):
        config = dataclasses.replace(loaded.config, decoder=decoder)
        directory = work / decoder
        directory.mkdir()
        _write_random(config, loaded, checkpoint, directory, shortlist)
        random.append(Artifacts(decoder, "int8", directory, marian, texts))
    return students, random


def _exported(
    work: Path, checkpoint: Path, texts: Path, shortlist_from: tuple[Path, Path], num_alphas: int
) -> Artifacts:
    marian, bundle = work / "marian", work / "bundle"
    work.mkdir()
    write_student(checkpoint, marian, "int8", read_texts(texts)[:num_alphas], shortlist_from)
    import_directory(marian, bundle, ExportOptions("int8"), num_sentences=0, threads=1)
    return Artifacts(work.name, "int8", bundle, marian, texts)


def _write_base_memory(
    like: Checkpoint, shortlist: Shortlist, texts: Sequence[str], checkpoint: Path, work: Path
) -> Path:
    """Write a checkpoint of random weights; returns a file of texts that suit it."""
    wanted = preset(BASE_MEMORY, like.config.vocab_size)
    sizes = {name: getattr(wanted, name) for name in _SIZES}
    model = random_student(dataclasses.replace(like.config, **sizes))
    sources = [[*like.tokenizer.encode(text), like.tokenizer.eos_id] for text in texts]
    end_like_sources(model, sources[:: max(1, len(sources) // 16)], shortlist)
    save_checkpoint(checkpoint, model, like.tokenizer, languages=like.languages)
    found = zip(texts, sources, lengths(model, sources, shortlist), strict=True)
    # The server would repair what random weights make of a text with numbers, names and the like.
    rules = TermRules(like.languages["source"], like.languages["target"])
    ending = [
        text
        for text, source, length in found
        if length <= _LONGEST * len(source) and not may_need_care(text, rules)
    ]
    (chosen := work / "texts.txt").write_text("\n".join(ending) + "\n", encoding="utf-8")
    return chosen


def _write_random(
    config: ModelConfig,
    like: Checkpoint,
    checkpoint: Path,
    directory: Path,
    shortlist: Shortlist,
) -> None:
    """A bundle of random weights that never ends a translation before its limit."""
    model = Transformer(config)
    model.output_projection.bias.data.normal_()
    model.output_projection.bias.data[config.eos_id] = NEVER
    source = ExportSource(
        config,
        {name: tensor.numpy() for name, tensor in model.state_dict().items()},
        checkpoint_folder(checkpoint) / TOKENIZER_FILE,
        like.languages["source"],
        like.languages["target"],
        shortlist=shortlist,
    )
    write_bundle(source, ExportOptions("int8"), directory)


# --- measurements ---------------------------------------------------------------------------------


def batch_rates(made: Artifacts, texts: Sequence[str], repetitions: int) -> dict[str, float]:
    """Sentences a second of one thread, by system; the median."""
    bundle = Bundle.load(made.bundle)
    engines: dict[str, Callable[[Sequence[str]], list[str]]] = {
        name: ENGINES[name](made.converted, bundle) for name in installed()
    }
    return asyncio.run(_batch_rates(bundle, engines, texts, repetitions))


async def _batch_rates(
    bundle: Bundle, engines: Mapping[str, Any], texts: Sequence[str], repetitions: int
) -> dict[str, float]:
    settings = Settings(
        in_process=True, threads=1, max_waiting=2 * len(texts), max_queue_seconds=600.0
    )
    engine = load_model(bundle.path, settings, ServerMetrics()).engine
    assert isinstance(engine, Engine)
    tokenizer, eos_id = bundle.tokenizer(), bundle.config.eos_id
    seconds: dict[str, list[float]] = {name: [] for name in (OURS, *engines)}
    await engine.start()
    try:
        for repetition in range(repetitions + 1):
            some = texts if repetition else texts[: len(texts) // 10 + 1]  # the first one warms up
            began = time.perf_counter()
            sources = tokenizer.encode_batch(list(some))
            requests = [GenerationRequest((*ids, eos_id)) for ids in sources]
            results = await asyncio.gather(*(g.result() for g in submit_many(engine, requests)))
            for result in results:
                tokenizer.target.decode(result.token_ids)
            seconds[OURS].append(time.perf_counter() - began)
            for name, translate in engines.items():
                began = time.perf_counter()
                translate(some)
                seconds[name].append(time.perf_counter() - began)
    finally:
        await engine.stop()
    return {name: len(texts) / median(found[1:]) for name, found in seconds.items()}


def served(
    systems: Mapping[str, tuple[System, Artifacts]],
    users: int,
    timing: Timing,
    work: Path,
    figure: Callable[[Summary], float],
    max_new_tokens: int | None = None,
) -> dict[str, float]:
    """A figure of a closed loop of users, by system; the median."""
    found: dict[str, list[float]] = {name: [] for name in systems}
    for repetition in range(timing.repetitions):
        for name, (system, made) in systems.items():
            log = work / f"{name}-{users}-{repetition}.log"
            plan = LoadPlan(
                "",
                concurrency=users,
                duration=timing.seconds,
                warmup=timing.seconds / 4,
                max_new_tokens=max_new_tokens,
            )
            with running(system, made, log) as server:
                session = Session(read_texts(made.texts), None, server.metrics_url)
                results = session.run(dataclasses.replace(plan, server=server.address))
            found[name].append(figure(results.summary()))
    return {name: median(figures) for name, figures in found.items()}


def peers(made: Artifacts, workers: int) -> dict[str, tuple[System, Artifacts]]:
    """Our server and the servers of installed peers, each with this number of processes."""
    found = {OURS: (System("dragoman", {"max-queue-seconds": 60}), made)}
    for name in installed():
        settings = {"inter-threads": workers, "max-batch": _BATCHES[name], "window-ms": 0.5}
        found[name] = (System(name, settings), made)
    return found


def measure(
    students: Mapping[str, Artifacts], random: Sequence[Artifacts], timing: Timing, work: Path
) -> Iterator[StudentFigure]:
    """All rows of the table."""
    for name, made in students.items():
        yield from _against_peers(name, made, timing, work)
    own = System("dragoman", {"max-queue-seconds": 60})
    pair = dict(zip((OURS, SELF_ATTENTION), ((own, made) for made in random), strict=True))
    rate = served(pair, MANY, timing, work, lambda s: s.achieved_rate, _TOKENS)
    what = f"{MANY} clients, random weights, {_TOKENS} tokens, sentences/s"
    yield StudentFigure(what, rate, 1.3, 2.0)


def _against_peers(
    name: str, made: Artifacts, timing: Timing, work: Path
) -> Iterator[StudentFigure]:
    texts, systems = read_texts(made.texts), peers(made, len(os.sched_getaffinity(0)))
    batch = [texts[i % len(texts)] for i in range(timing.batch)]
    rate = batch_rates(made, batch, timing.repetitions)
    yield StudentFigure(
        f"{name}: batch of {timing.batch:,}, one thread, sentences/s", rate, 0.8, 1.3
    )
    rate = served(systems, MANY, timing, work / name, lambda s: s.achieved_rate)
    yield StudentFigure(f"{name}: {MANY} clients, sentences/s", rate, 1.2, 2.0)
    time_of_one = served(
        systems, 1, timing, work / name, lambda s: 1e3 * (s.latency.at(50) or math.nan)
    )
    yield StudentFigure(f"{name}: one client, p50 in ms", time_of_one, 1.0, 0.6, is_time=True)


def main(
    checkpoint: Annotated[
        Path, typer.Argument(help="Checkpoint of a student with post-norm, or a run.")
    ],
    shortlist_from: Annotated[tuple[Path, Path], typer.Option(help="Text and translations.")],
    output: Annotated[Path, typer.Option(help="Folder of the report.")] = Path(
        "runs/bench/students"
    ),
    source: Annotated[Path, typer.Option(help="Texts, one a line.")] = SHIPPED_TEXTS,
    batch: Annotated[int, typer.Option(min=1, help="Sentences of the batch.")] = 1000,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of each load.")] = 10.0,
    repetitions: Annotated[int, typer.Option(min=1, help="Repetitions of each measurement.")] = 2,
) -> None:
    """Measure, and print the table: some twelve minutes."""
    try:
        check_student(load_checkpoint(checkpoint).config)
    except (CheckpointError, ExportError) as exc:
        raise typer.BadParameter(str(exc), param_hint="CHECKPOINT") from exc
    timing, rows = Timing(batch, seconds, repetitions), list[StudentFigure]()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        students, random = prepare(work, checkpoint, source, shortlist_from)
        for row in measure(students, random, timing, work):
            typer.echo(row)
            rows.append(row)
            _store(output, timing, rows)


def _store(output: Path, timing: Timing, rows: Sequence[StudentFigure]) -> None:
    summary = {
        "benchmark": "students",
        "about": about_machine(),
        "timing": dataclasses.asdict(timing),
        "rows": [dataclasses.asdict(row) for row in rows],
    }
    store(output, summary)


def files(summary: Mapping[str, Any]) -> dict[str, str]:
    """The files of the report, by name."""
    about, timing = summary["about"], Timing(**summary["timing"])
    lines = [
        "# Students",
        "",
        f"`python -m bench.students`: {about['processor'] or about['machine']}, "
        f"{about['cpus']} CPUs, onnxruntime {about['onnxruntime']}, {about['started_at'][:10]}, "
        f"revision {about['revision']}; medians of {timing.repetitions} alternating rounds of "
        f"{timing.seconds:g} s.",
        "",
        "| measured | figures | ratio | floor | aim |",
        "| --- | --- | ---: | ---: | ---: |",
        *(str(StudentFigure(**row)) for row in summary["rows"]),
    ]
    return {REPORT_FILE: "\n".join(lines) + "\n"}


if __name__ == "__main__":
    typer.run(main)
