"""Measures the memory of a server with ten models, of which eight sleep.

    python -m bench.sleeping_memory bundles/student bundles/other

Ten copies of a bundle are served as ten pairs of languages, as if they had been pulled. Two are
called until the others sleep; then the memory of all processes is added up, shared pages divided
among them. Writes `report.md` and `summary.json`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.load.errors import LoadError
from bench.load.results import about_machine
from bench.processes import descendants, proportional_bytes
from bench.recompute import REPORT_FILE, store
from bench.suite.artifacts import Artifacts
from bench.suite.systems import System, running
from dragoman.client import Client
from model.bundle.bundle import Bundle
from model.bundle.manifest import edited_manifest

LIMIT_MIB, AIM_MIB = 1024, 600
_TARGETS = ("de", "fr", "es", "it", "pt", "nl", "pl", "cs", "sv", "da")
_AWAKE = 2
_IDLE_SECONDS = 2.0
_MOST_SECONDS = 300.0
_TEXTS = ["A dog is running in the park."] * 64  # as many rows as the batch has


@dataclasses.dataclass(frozen=True)
class SleepingMemory:
    """Memory of a server of ten models.

    Attributes:
        what: the models.
        started_mib: memory with all of them awake, before the first call.
        asleep_mib: memory with two awake, which have translated full batches.
    """

    what: str
    started_mib: float
    asleep_mib: float

    def __str__(self) -> str:
        """A line of a Markdown table."""
        return (
            f"| {self.what} | {self.started_mib:,.0f} | {self.asleep_mib:,.0f} | {LIMIT_MIB:,} | "
            f"{AIM_MIB} |"
        )


def copies(bundle: Path, directory: Path) -> list[Path]:
    """Copies of a bundle, each with a pair of its own, from English."""
    made = []
    for target in _TARGETS:
        made.append(directory / f"en-{target}")
        shutil.copytree(bundle, made[-1])
        with edited_manifest(made[-1]) as fields:
            fields["name"] = made[-1].name
            fields["languages"] = {"source": "en", "target": target}
            fields.pop("directions", None)
    return made


def measure(bundle: Path, work: Path) -> SleepingMemory:
    """Serve copies of a bundle.

    Raises:
        LoadError: the server did not start, or its models do not sleep.
    """
    config = Bundle.load(bundle).config
    what = (
        f"{config.d_model}, {config.num_encoder_layers} + {config.num_decoder_layers} layers, "
        f"{config.vocab_size:,} tokens{' of each language' * (config.embedding_tying == 'target')}"
    )
    first, *others = copies(bundle, work)
    made = Artifacts("student", "int8", first, first, first)
    settings = {"model": others, "idle-seconds": _IDLE_SECONDS}
    log = work / "server.log"
    with (
        running(System("dragoman", settings), made, log) as server,
        Client(server.address) as client,
    ):
        started = _mib()
        ends = time.monotonic() + _MOST_SECONDS
        while True:
            for target in _TARGETS[:_AWAKE]:
                client.translate(_TEXTS, source="en", target=target, max_new_tokens=20)
            num_awake = sum(map(_is_model, descendants()))
            if num_awake == _AWAKE:
                return SleepingMemory(what, started, _mib())
            if time.monotonic() > ends:
                raise LoadError(f"{num_awake} models are awake; see {log}")
            time.sleep(_IDLE_SECONDS / 4)


def _mib() -> float:
    return sum(map(_bytes, descendants())) / 2**20


def _bytes(pid: int) -> int:
    with contextlib.suppress(OSError):  # it has ended
        return proportional_bytes(pid)
    return 0


def _is_model(pid: int) -> bool:
    """Whether a process of the server runs a model."""
    with contextlib.suppress(OSError):  # it has ended
        return b"service.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def main(
    bundles: Annotated[list[Path], typer.Argument(help="Each is served ten times.")],
    output: Annotated[Path, typer.Option(help="Folder of the report.")] = Path(
        "runs/bench/sleeping-memory"
    ),
) -> None:
    """Measure, print, and fail above the limit."""
    rows: list[SleepingMemory] = []
    for bundle in bundles:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(bundle, Path(folder)))
        typer.echo(rows[-1])
    _store(output, rows)
    if any(row.asleep_mib > LIMIT_MIB for row in rows):
        raise typer.Exit(1)


def _store(output: Path, rows: Sequence[SleepingMemory]) -> None:
    summary = {"benchmark": "sleeping-memory", "about": about_machine()}
    store(output, {**summary, "rows": [dataclasses.asdict(row) for row in rows]})


def files(summary: Mapping[str, Any]) -> dict[str, str]:
    """The files of the report, by name."""
    about = summary["about"]
    lines = [
        "# Sleeping models",
        "",
        f"`python -m bench.sleeping_memory`: {about['processor'] or about['machine']}, "
        f"{about['cpus']} CPUs, onnxruntime {about['onnxruntime']}, {about['started_at'][:10]}, "
        f"revision {about['revision']}. Memory in MiB of all processes of a server of "
        f"{len(_TARGETS)} models; those awake at last translate {len(_TEXTS)} sentences at once.",
        "",
        f"| models | all awake | {_AWAKE} awake | limit | aim |",
        "| --- | ---: | ---: | ---: | ---: |",
        *(str(SleepingMemory(**row)) for row in summary["rows"]),
    ]
    return {REPORT_FILE: "\n".join(lines) + "\n"}


if __name__ == "__main__":
    typer.run(main)
