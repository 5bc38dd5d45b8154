"""The memory of a server of many models of which most are asleep.

    python -m bench.sleeping_memory bundles/en-de

Ten copies of a bundle are served as ten pairs of languages. Two are called again and again, until
the others sleep; then the memory of all processes is added up, shared pages divided among them.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from bench.load.errors import LoadError
from bench.processes import descendants, proportional_bytes
from bench.suite.artifacts import Artifacts
from bench.suite.systems import System, running
from dragoman.client import Client
from model.bundle.manifest import edited_manifest

LIMIT_MIB = 1024
AIM_MIB = 600
_TARGETS = ("de", "fr", "es", "it", "pt", "nl", "pl", "cs", "sv", "da", "fi", "et", "lt", "lv")
_IDLE_SECONDS = 2.0
_MOST_SECONDS = 300.0


def copies(bundle: Path, count: int, directory: Path) -> list[Path]:
    """Copies of a bundle, each with a pair of its own, from English."""
    made = []
    for target in _TARGETS[:count]:
        made.append(directory / f"en-{target}")
        shutil.copytree(bundle, made[-1])
        with edited_manifest(made[-1]) as fields:
            fields["name"] = made[-1].name
            fields["languages"] = {"source": "en", "target": target}
            fields.pop("directions", None)
    return made


def measure(bundles: list[Path], awake: int, log: Path) -> int:
    """Bytes with so many models awake.

    Raises:
        LoadError: the server did not start, or its models do not sleep.
    """
    first, *others = bundles
    made = Artifacts("student", "int8", first, first, first)
    settings = {"model": others, "idle-seconds": _IDLE_SECONDS}
    with (
        running(System("dragoman", settings), made, log) as server,
        Client(server.address) as client,
    ):
        ends = time.monotonic() + _MOST_SECONDS
        while True:
            for bundle in bundles[:awake]:
                _call(client, bundle)
            processes = descendants()
            num_awake = sum(map(_is_model, processes))
            if num_awake == awake:
                return sum(map(_bytes, processes))
            if time.monotonic() > ends:
                raise LoadError(f"{num_awake} models are awake; see {log}")
            time.sleep(_IDLE_SECONDS / 4)


def _call(client: Client, bundle: Path) -> None:
    source, target = bundle.name.split("-")
    client.translate(["A dog is running in the park."], source=source, target=target)


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
    bundle: Annotated[Path, typer.Argument(help="The bundle to serve copies of.")],
    count: Annotated[int, typer.Option(min=2, max=len(_TARGETS), help="Models.")] = 10,
    awake: Annotated[int, typer.Option(min=1, help="Of them, called all the time.")] = 2,
) -> None:
    """Measure, print, and fail above the limit."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        mib = measure(copies(bundle, count, work), awake, work / "server.log") / 2**20
    typer.echo(
        f"{count} models, {awake} awake: {mib:.0f} MiB (limit {LIMIT_MIB} MiB, aim {AIM_MIB} MiB)"
    )
    if mib > LIMIT_MIB:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
