"""The Kubernetes jobs of `dragoman batch`: their schema, and commands that exist."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from cli.main import app
from tests.containers.tools import run, tool

JOBS = Path(__file__).parents[3] / "docker" / "kubernetes" / "jobs"
BATCH, RAY = JOBS / "batch.yaml", JOBS / "ray-job.yaml"


def loaded(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load(path.read_text())
    return manifest


def arguments(path: Path) -> list[str]:
    """The arguments of `dragoman` in a manifest."""
    spec = loaded(path)["spec"]
    if path == RAY:
        return shlex.split(spec["entrypoint"])[1:]
    words: list[str] = spec["template"]["spec"]["containers"][0]["args"]
    return words


@pytest.mark.parametrize("version", ["1.29", "1.34"])
def test_kubernetes_accepts_the_job(version: str) -> None:
    run(tool("kubernetes-validate"), "--strict", "-k", version, BATCH)


@pytest.mark.parametrize("path", [BATCH, RAY], ids=lambda path: path.stem)
def test_the_command_has_these_options(path: Path) -> None:
    name, *options = arguments(path)
    command = typer.main.get_group(app).commands[name]
    context = command.make_context(name, options)
    assert context.params["output"].startswith(("/texts/", "s3://"))


def test_pods_of_the_cluster_have_the_cpus_of_their_actors() -> None:
    group = loaded(RAY)["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
    [container] = group["template"]["spec"]["containers"]
    words = arguments(RAY)
    actor = int(words[words.index("--actor-cpus") + 1])
    assert int(container["resources"]["requests"]["cpu"]) % actor == 0
