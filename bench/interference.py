"""The effect of long texts on the time between tokens of other streams.

    python -m bench.interference [--bundle DIR] [--work-dir DIR] [--budget TOKENS] [--served]

An iteration encodes admitted requests, then steps every row. Requests are encoded up to a budget
of source tokens; a text that is longer than the budget is encoded alone. So the time between two
tokens of any stream is bounded by one step and one encode: of the budget, or of the longest text if
that is more. This measures both sides: iterations with short texts only and with a text of 400
tokens (or the longest that the model accepts) admitted now and then, and the encode by itself.
Times are CPU time of the process on one thread, which other load on the machine affects little.

A server with one or two lanes encodes in parallel with the steps, and shares the cores with them.
`--served` measures that as clients see it: seconds between the pieces of streams, in alternating
blocks with and without long texts.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np

from bench.load.source import read_texts
from bench.suite.artifacts import Artifacts, prepare_speed_model
from bench.suite.points import OWN, own_system
from bench.suite.systems import end_in_order_on_sigterm, running
from dragoman.client import AsyncClient
from model.bundle.bundle import Bundle
from model.bundle.tokenizer import Tokenizer
from service.batching.records import EngineRequest
from service.batching.scheduler import Scheduler
from service.domain.plan import EncodeItem, StepPlan
from service.domain.requests import GenerationRequest, SearchOptions
from service.runtime.cpu.runner import OnnxRunner

SHORT, LONG = 12, 400
NUM_STREAMS = 16
NUM_ITERATIONS = 200
BETWEEN_LONG = 25  # iterations from one long text to the next
NUM_USERS = 24  # more than 8 a lane on two cores
NUM_BLOCKS, BLOCK_SECONDS = 6, 5.0  # of each kind
SHORT_TEXT = "Two men are playing chess in the park."


@dataclass(frozen=True)
class Arm:
    """Seconds of the iterations in which streams received a token."""

    name: str
    seconds: list[float]

    def line(self) -> str:
        """Milliseconds, at several percentiles."""
        values = np.percentile(self.seconds, [50, 90, 99, 100]) * 1e3
        return f"{self.name:<28}" + "".join(f"{value:>9.2f}" for value in values)


_ids = itertools.count(1)


def _request(num_tokens: int, draw: np.random.Generator, max_new_tokens: int) -> EngineRequest:
    source = (*(int(token) for token in draw.integers(10, 300, num_tokens - 1)), 3)
    options = SearchOptions(min_new_tokens=max_new_tokens)
    request = GenerationRequest(source, options)
    return EngineRequest(next(_ids), request, max_new_tokens, submitted_at=0.0)


def run(runner: OnnxRunner, budget: int, long: int) -> Arm:
    """Keep short texts running; admit one of `long` tokens (0: none) now and then."""
    draw = np.random.default_rng(0)
    scheduler = Scheduler([runner.limits], bos_id=2, eos_id=3, encode_token_budget=budget)
    scheduler.add(_request(SHORT, draw, int(draw.integers(10, 40))) for _ in range(NUM_STREAMS))
    long_ids: set[int] = set()
    seconds = []
    for iteration in range(NUM_ITERATIONS):
        if long and iteration % BETWEEN_LONG == 10:
            long_one = _request(long, draw, 10)
            long_ids.add(long_one.id)
            scheduler.add([long_one])
        started = time.process_time()
        plan = scheduler.schedule(0.0).plan
        assert plan is not None
        update = scheduler.update(runner.execute(plan), 0.0)
        if iteration >= 10:
            seconds.append(time.process_time() - started)
        ended = [one for one in update.finished if one.id not in long_ids]
        scheduler.add(_request(SHORT, draw, int(draw.integers(10, 40))) for _ in ended)
    return Arm(f"with texts of {long} tokens" if long else "short texts only", seconds)


def encode_seconds(runner: OnnxRunner, lengths: list[int]) -> float:
    """Median time to encode texts of these lengths in one iteration."""
    items = [EncodeItem((row,), (*[10] * (n - 1), 3)) for row, n in enumerate(lengths)]
    plan = StepPlan((), items, np.zeros(0, np.int64), np.zeros(0, np.int32))  # no step
    seconds = []
    for _ in range(5):
        started = time.process_time()
        runner.execute(plan)
        seconds.append(time.process_time() - started)
    return float(np.median(seconds))


def text_of(num_tokens: int, word: str, tokenizer: Tokenizer) -> str:
    """One sentence of at most about `num_tokens` tokens."""
    num_words = 1
    while len(tokenizer.encode(f"{word} " * (num_words + 1))) < num_tokens:
        num_words += 1
    return " ".join([word] * num_words)


async def block(address: str, text: str, long_text: str) -> list[float]:
    """Seconds between pieces of streams, while long texts ("": none) come one after another."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + BLOCK_SECONDS
    seconds = []

    async def stream(client: AsyncClient) -> None:
        while loop.time() < ends_at:
            last = None
            async for piece in client.stream(text):
                now = loop.time()
                if last is not None and isinstance(piece, str):
                    seconds.append(now - last)
                last = now

    async def send_long(client: AsyncClient) -> None:
        while loop.time() < ends_at:
            # A few tokens are enough: the encode is what matters.
            await client.translate([long_text], max_new_tokens=4)

    async with AsyncClient(address, timeout=60.0) as client:
        tasks = [stream(client) for _ in range(NUM_USERS)]
        await asyncio.gather(*tasks, *([send_long(client)] if long_text else []))
    return seconds


def served(artifacts: Artifacts, text: str) -> None:
    """Print both arms as clients see them that stream the translation of `text`."""
    bundle = Bundle.load(artifacts.bundle)
    long = min(LONG, bundle.config.num_source_positions)
    long_text = text_of(long, text.split()[-2], bundle.tokenizer())
    arms = Arm("short texts only", []), Arm(f"with texts of {long} tokens", [])
    with (
        tempfile.TemporaryDirectory() as directory,
        running(own_system(OWN), artifacts, Path(directory) / "server.log") as server,
    ):
        asyncio.run(block(server.address, text, long_text))  # warms up
        for _ in range(NUM_BLOCKS):
            arms[0].seconds.extend(asyncio.run(block(server.address, text, "")))
            arms[1].seconds.extend(asyncio.run(block(server.address, text, long_text)))
    print_arms(f"{NUM_USERS} streams from a server, {artifacts.bundle}, between pieces", *arms)


def print_arms(title: str, *arms: Arm) -> None:
    """A table of their milliseconds."""
    print(f"{title}, milliseconds")
    print(f"{'':<28}" + "".join(f"{name:>9}" for name in ("p50", "p90", "p99", "max")))
    for arm in arms:
        print(arm.line())


def main() -> None:
    """Print both arms and the bound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work-dir", type=Path, default=Path("bench-work"))
    parser.add_argument("--bundle", type=Path, help="in place of the speed model")
    parser.add_argument("--budget", type=int, default=512, help="encode token budget")
    parser.add_argument("--served", action="store_true", help="measure a server's streams")
    arguments = parser.parse_args()
    if (path := arguments.bundle) is not None:
        text = SHORT_TEXT
        artifacts = Artifacts(path.name, "", path, path, path)  # of which only ours is served
    else:
        artifacts = prepare_speed_model(arguments.work_dir, "int8")
        path, text = artifacts.bundle, read_texts(artifacts.texts)[0]
    if arguments.served:
        end_in_order_on_sigterm()
        served(artifacts, text)
        return
    runner = OnnxRunner(Bundle.load(path), max_rows=64, intra_op_threads=1)
    long = min(LONG, runner.limits.max_source_positions)
    run(runner, arguments.budget, long)  # warms up
    without = run(runner, arguments.budget, 0)
    with_long = run(runner, arguments.budget, long)
    step = float(np.median(without.seconds))
    company = [SHORT] * max(0, (arguments.budget - long) // SHORT)
    longest = max(
        encode_seconds(runner, [long, *company][: runner.limits.max_rows]),
        encode_seconds(runner, [SHORT] * min(64, arguments.budget // SHORT)),
    )
    print_arms(f"{NUM_STREAMS} streams, {path}, between tokens", without, with_long)
    print(
        f"bound: a step {step * 1e3:.2f} + an encode {longest * 1e3:.2f}"
        f" = {(step + longest) * 1e3:.2f}"
    )


if __name__ == "__main__":
    main()
