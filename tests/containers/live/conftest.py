"""The engine that all tests in this folder share, and the containers in it."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.settings import shipped_models
from tests.containers.live.docker_engine import DockerEngine, require_everything, running_engine
from tests.containers.live.stack import Stack, running_stack
from tests.factories import tiny_bundle


@pytest.fixture(scope="session")
def docker() -> Iterator[DockerEngine]:
    """An engine with the images built."""
    require_everything()
    # For whoever works on these tests: a directory that keeps the images from run to run.
    kept = os.environ.get("DRAGOMAN_CONTAINERS_DIR")
    directory = Path(kept or tempfile.mkdtemp(prefix="dragoman-containers-"))
    try:
        with running_engine(directory) as engine:
            yield engine
    finally:
        if not kept:
            shutil.rmtree(directory)


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory to mount at /models: a random tiny model, "tiny"."""
    directory = tmp_path_factory.mktemp("bundles")
    tiny_bundle(directory / "tiny", name="tiny", max_positions=256)
    # The containers' user owns no files on the host.
    for path in (*directory.parents, directory, *directory.rglob("*")):
        if path.stat().st_uid == 0 and path != Path("/"):
            path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o644))
    return directory


@pytest.fixture(scope="session")
def model_environment(bundles: Path) -> dict[str, str]:
    """Environment for compose: the image's models, or the tiny one if the image has none."""
    if shipped_models():
        return {}
    return {"BUNDLES": str(bundles), "DRAGOMAN_MODEL": "/models/tiny"}


@pytest.fixture(scope="session")
def stack(docker: DockerEngine, model_environment: dict[str, str]) -> Iterator[Stack]:
    """Two replicas, Envoy and Prometheus, from docker/compose.yaml."""
    with running_stack(docker, model_environment) as running:
        yield running
