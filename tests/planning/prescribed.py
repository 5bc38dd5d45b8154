"""A server with steps of prescribed duration: `python -m tests.planning.prescribed`.

Steps sleep, so that they last equally long on a busy machine. All else is the server's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.server_process import ROOT, Running, environment
from cli.plan.replica import MeasuredReplica
from model.bundle.bundle import Bundle
from service.domain.plan import RunnerLimits, StepOutput, StepPlan
from tests.fake_runner import FakeRunner, echo
from tests.integration.servers import running_fake

BUNDLE = ROOT / "model" / "pretrained" / "en-de"
PRESCRIBED = MeasuredReplica(
    model="prescribed",
    cores=2,  # a call does not delay a step
    memory_bytes=1.0,
    max_rows=16,
    step_base=30e-3,
    step_row=2e-3,
    encode_base=20e-3,
    encode_token=1e-3,
    call_seconds=2e-3,
    other_seconds=0.0,
    encodes_beside_from_rows=None,
    lengths=((14, 15),),  # roughly, for the rates; the calls have their own
)


class SleepingRunner(FakeRunner):
    """Repeats the source, with the durations of `PRESCRIBED`."""

    def execute(self, plan: StepPlan) -> StepOutput:
        started = time.perf_counter()
        output = super().execute(plan)
        seconds = PRESCRIBED.step_seconds(plan.num_rows)
        if num_tokens := sum(len(item.source_ids) for item in plan.encodes):
            seconds += PRESCRIBED.encode_seconds(num_tokens)
        time.sleep(max(0.0, started + seconds - time.perf_counter()))
        return output


@contextlib.contextmanager
def served_prescribed() -> Iterator[Running]:
    """Run the server in a process of its own."""
    command = [sys.executable, "-m", "tests.planning.prescribed"]
    with subprocess.Popen(
        command, env=environment(), cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield Running(process.stdout.readline().strip(), "")
        finally:
            process.terminate()


async def serve(bundle: Path = BUNDLE) -> None:
    """Serve until the parent process ends."""
    tokenizer = Bundle.load(bundle).tokenizer()
    limits = RunnerLimits(PRESCRIBED.max_rows, 256, 256, 4, tokenizer.vocab_size)
    parent = os.getppid()
    async with running_fake(SleepingRunner(limits, echo), tokenizer) as server:
        print(server.address, flush=True)
        while os.getppid() == parent:
            await asyncio.sleep(1.0)


if __name__ == "__main__":
    asyncio.run(serve())
