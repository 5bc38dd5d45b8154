"""Measures a replica: closed loops of more and more users, and the server's own metrics.

On a single core, latency and wall-clock times of steps depend on what else runs there, and so the
model is fitted to CPU time. With several cores, it is fitted to the durations of steps and encodes.
"""

from __future__ import annotations

import contextlib
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from bench.load.errors import LoadError
from bench.load.plan import LoadPlan
from bench.load.session import Session
from bench.server_process import Running, server_process
from cli.plan.replica import MOST_LENGTHS, MeasuredReplica, ReplicaError

USERS = (1, 3, 8, 24, 64)
"""Users of the closed loops, up to the number of rows."""
# With two cores, sources are encoded beside the steps from five rows on; see service/batching/.
_BESIDE_CORES, _BESIDE_ROWS = 2, 5
# Most of the cost of a call beside its tokens that is taken as the cost of its rows.
_MOST_ROWS_SHARE = 0.75


@contextlib.contextmanager
def served_bundle(bundle: Path, cores: Sequence[int] | None = None) -> Iterator[Running]:
    """Serve a bundle in a process of its own, on free ports.

    Args:
        cores: numbers of the cores that it may use; None for all.

    Raises:
        ReplicaError: the server did not start; the message has the end of its log.
    """
    arguments = ["-m", "cli.main", "serve", "--model", str(bundle), "--host", "127.0.0.1"]
    arguments += ["--port", "0", "--metrics-port", "0"]
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(server_process(arguments, cores=cores))
        except LoadError as exc:
            raise ReplicaError(str(exc)) from exc
        yield server


@dataclass(frozen=True)
class LoopFigures:
    """Figures of one closed loop.

    Attributes:
        model: names of the server's models.
        rate: answers a second.
        answered: latency, source tokens and steps of each answered call.
        cpu: CPU seconds of a call, in all of the server's processes.
        server_cpu: CPU seconds of a call in the process with the event loop.
        steps, encodes: their number for a call.
        rows: rows in a step.
        tokens: source tokens of a call.
        step, encode: duration of one, in seconds.
    """

    model: str
    rate: float
    answered: Sequence[tuple[float, int, int]]
    cpu: float
    server_cpu: float
    steps: float
    encodes: float
    rows: float
    tokens: float
    step: float
    encode: float


def measure(
    server: Running,
    texts: Sequence[str],
    *,
    cores: int,
    seconds: float,
    report: Callable[[str], None] = lambda _: None,
) -> MeasuredReplica:
    """Measure a server that nothing else uses.

    Args:
        cores: CPU cores that it may use.
        seconds: duration of all closed loops together.
        report: function that is called with a line about each loop.

    Raises:
        ReplicaError: the server does not answer, or lacks metrics.
    """
    max_rows = int(_page(server).most["dragoman_rows"])
    if max_rows < 1:
        raise ReplicaError(f"{server.metrics_url} has no dragoman_rows: is it a Dragoman server?")
    users = [number for number in USERS if number <= max_rows]
    loops = []
    for number in users:
        plan = LoadPlan(
            server.address,
            concurrency=number,
            duration=seconds / len(users),
            warmup=0.2,
            split_sentences=False,
        )
        loops.append(_loop(server, plan, texts))
        report(f"{number} users: {loops[-1].rate:.3g} sentences/s")
    lengths = [lengths for loop in loops for _, *lengths in loop.answered]
    characters = sum(map(len, texts)) / len(texts)
    mean_tokens = sum(source for source, _ in lengths) / len(lengths)
    page = _page(server)
    memory = sum(
        page.total[f"{process}_resident_memory_bytes"]
        for process in ("process", "dragoman_model_process")
    )
    return fit(
        loops,
        model=loops[0].model,
        cores=cores,
        memory_bytes=memory,
        max_rows=max_rows,
        lengths=tuple((source, steps) for source, steps in lengths[-MOST_LENGTHS:]),
        tokens_per_character=mean_tokens / characters,
    )


def fit(
    loops: Sequence[LoopFigures],
    *,
    model: str,
    cores: int,
    memory_bytes: float,
    max_rows: int,
    lengths: tuple[tuple[int, int], ...],
    tokens_per_character: float,
) -> MeasuredReplica:
    """The replica that explains the figures of closed loops, the first of which has one user."""
    step = _relative_fit([(1.0, one.rows) for one in loops], [one.step for one in loops])
    sizes = [(1.0, one.tokens / one.encodes) for one in loops]
    encode = _relative_fit(sizes, [one.encode for one in loops])
    calls = sum(len(one.answered) for one in loops)
    call_seconds = sum(one.server_cpu * len(one.answered) for one in loops) / calls
    if cores == 1:
        step, encode, call_seconds = _on_single_core(loops, step[1])
    replica = MeasuredReplica(
        model=model,
        cores=cores,
        memory_bytes=memory_bytes,
        max_rows=max_rows,
        step_base=step[0],
        step_row=step[1],
        encode_base=encode[0],
        encode_token=encode[1],
        call_seconds=call_seconds,
        other_seconds=0.0,
        encodes_beside_from_rows=_BESIDE_ROWS if cores == _BESIDE_CORES else None,
        lengths=lengths,
        tokens_per_character=tokens_per_character,
    )
    # The median, since on a busy machine some calls take much longer.
    rests = [latency - replica.idle_seconds(*lengths) for latency, *lengths in loops[0].answered]
    return replace(replica, other_seconds=max(0.0, float(np.median(rests))))


def _on_single_core(
    loops: Sequence[LoopFigures], step_row: float
) -> tuple[tuple[float, float], tuple[float, float], float]:
    """Steps, encodes and calls, which together take the CPU time of the server.

    The number of steps and of encodes for a call falls with the number of users, which tells their
    base cost. The rest is the same for every call: of its tokens, its rows, and the call itself.
    """
    features = [(1.0, one.steps, one.encodes) for one in loops]
    each, step_base, encode_base = _relative_fit(features, [one.cpu for one in loops])
    alone = loops[0]
    tokens, row_steps = alone.tokens, alone.rows * alone.steps
    for_tokens = max(0.0, alone.encode - encode_base) * alone.encodes
    # Durations of steps include calls that came meanwhile: not more than what is left.
    for_tokens = min(for_tokens, each / 2)
    for_rows = min(step_row * row_steps, (each - for_tokens) * _MOST_ROWS_SHARE)
    call_seconds = each - for_tokens - for_rows
    return (step_base, for_rows / row_steps), (encode_base, for_tokens / tokens), call_seconds


def _relative_fit(
    features: Sequence[tuple[float, ...]], values: Sequence[float]
) -> tuple[float, ...]:
    """Coefficients of a linear fit by least squares of relative errors, none below 0."""
    matrix = np.asarray(features, dtype=np.float64) / np.asarray(values)[:, None]
    used = list(range(matrix.shape[1]))
    while True:
        found, *_ = np.linalg.lstsq(matrix[:, used], np.ones(len(values)), rcond=None)
        if found.min() >= 0.0:
            break
        used.pop(int(found.argmin()))
    coefficients = [0.0] * matrix.shape[1]
    for index, value in zip(used, found, strict=True):
        coefficients[index] = float(value)
    return tuple(coefficients)


@dataclass(frozen=True)
class _MetricsPage:
    """The values on a page of metrics by name: over all labels their sum, and the largest."""

    total: dict[str, float]
    most: dict[str, float]


def _page(server: Running) -> _MetricsPage:
    total: dict[str, float] = defaultdict(float)
    most: dict[str, float] = defaultdict(float)
    try:
        with urllib.request.urlopen(server.metrics_url, timeout=10) as response:
            text = response.read().decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                total[sample.name] += sample.value
                most[sample.name] = max(most[sample.name], sample.value)
    except (OSError, ValueError) as exc:
        raise ReplicaError(f"no metrics at {server.metrics_url}: {exc}") from exc
    return _MetricsPage(total, most)


def _loop(server: Running, plan: LoadPlan, texts: Sequence[str]) -> LoopFigures:
    """Run a closed loop, and read what it cost the server."""
    before = _page(server).total
    try:
        results = Session(texts).run(plan)
    except LoadError as exc:
        raise ReplicaError(str(exc)) from exc
    after = _page(server).total
    if errors := results.summary().errors:
        raise ReplicaError(f"calls failed: {errors}")
    grown = defaultdict(float, {name: after[name] - before.get(name, 0.0) for name in after})
    answered = [
        (one.latency, max(1, one.reply.source_tokens), one.reply.target_tokens + 1)  # with EOS
        for one in results.run.samples
        if one.ok
    ]
    calls = grown["dragoman_encoded_sentences_total"]
    steps = grown["dragoman_step_duration_seconds_count"]
    encodes = grown["dragoman_encode_duration_seconds_count"]
    if not answered:
        raise ReplicaError("no call was answered in time: measure for longer (--seconds)")
    if not (calls and steps and encodes):
        raise ReplicaError(
            f"{server.address} counted no steps at {server.metrics_url}: are these its metrics?"
        )
    server_cpu = grown["process_cpu_seconds_total"]
    return LoopFigures(
        model=", ".join(str(one.get("name", "")) for one in results.about.get("models", [])),
        rate=len(answered) / results.run.seconds,
        answered=answered,
        cpu=(server_cpu + grown["dragoman_model_process_cpu_seconds_total"]) / calls,
        server_cpu=server_cpu / calls,
        steps=steps / calls,
        encodes=encodes / calls,
        rows=grown["dragoman_step_rows_sum"] / steps,
        tokens=grown["dragoman_source_tokens_total"] / calls,
        step=grown["dragoman_step_duration_seconds_sum"] / steps,
        encode=grown["dragoman_encode_duration_seconds_sum"] / encodes,
    )
