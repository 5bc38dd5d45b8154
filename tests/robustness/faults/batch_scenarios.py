"""Faults of jobs: `dragoman batch` killed, and its files damaged, beside the load."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

from bench.server_process import environment
from tests.job_damage import damage
from tests.robustness.faults.round import FaultRound, Scenario, nothing

_JOBS = 3
_PART_ROWS = 2


async def _start(
    played: FaultRound, source: Path, output: Path, *options: str
) -> asyncio.subprocess.Process:
    command = ["-m", "cli.main", "batch", str(source), "--output", str(output)]
    command += ["--server", played.place.address, "--part-rows", str(_PART_ROWS), *options]
    return await asyncio.create_subprocess_exec(
        sys.executable, *command, env=environment(), stdout=DEVNULL, stderr=PIPE
    )


async def _killed(played: FaultRound, source: Path, output: Path, *options: str) -> Path:
    """The folder of a job that was killed after its first parts."""
    state = output.with_name(f"{output.name}.dragoman-job")
    process = await _start(played, source, output, *options)
    while process.returncode is None and len([*state.glob("0*.json")]) < played.rng.randrange(1, 9):
        await asyncio.sleep(0.005)
    if process.returncode is None:
        process.kill()
    await process.communicate()
    return state


async def damage_jobs(played: FaultRound) -> None:
    """Jobs are killed, and their files damaged; each ends right, or with an error."""
    texts = sorted(played.account.expected)
    right = "".join(f"{played.account.expected[text]}\n" for text in texts)
    source = played.folder / "in.txt"
    source.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    other = await _killed(played, source, played.folder / "other.txt", "--no-split-sentences")
    for number in range(_JOBS):
        output = played.folder / f"out{number}.txt"
        state = await _killed(played, source, output)
        done = [damage(played.rng, state, other) for _ in range(played.rng.randrange(1, 4))]
        # A part that is damaged at the end is done again; parts of another job are not replaced.
        for options in ((), (), (), ("--restart",)):
            process = await _start(played, source, output, *options)
            _, errors = await process.communicate()
            if process.returncode == 0:
                break
            said = errors.decode()
            played.must(
                process.returncode == 1 and "dragoman: " in said and "Traceback" not in said,
                f"a job with damaged files ends with an error ({'; '.join(done)}): {said}",
            )
        found = output.read_text(encoding="utf-8") if output.exists() else None
        played.must(
            found == right, f"a job with damaged files has all rows ({'; '.join(done)}): {found!r}"
        )


BATCH_SCENARIOS = (
    Scenario(
        "batch-state-damaged",
        f"{_JOBS} jobs of `dragoman batch` are killed and their files damaged",
        damage_jobs,
        nothing,
        lost=False,
    ),
)
