"""The manifests for kustomize, rendered once for all tests."""

import shutil

import pytest

from tests.containers.kustomize import Manifest, render
from tests.containers.tools import DOCKER

OVERLAYS = ("cpu", "gpu", "dev", "own-model", "keda", "tls", "http", "all")


@pytest.fixture(scope="session")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Manifest]]:
    """Every overlay's manifests; some overlays are `cpu` with components that no overlay has."""
    copy = tmp_path_factory.mktemp("manifests") / "kubernetes"
    shutil.copytree(DOCKER / "kubernetes", copy)
    text = (copy / "overlays/cpu/kustomization.yaml").read_text()
    assert "components/hpa # or" in text
    made = {"keda": text.replace("components/hpa #", "components/keda #")}
    for overlay, further in (
        ("tls", ("tls",)),
        ("http", ("http",)),
        ("all", ("http", "tracing", "key-set", "tls")),
    ):
        lines = "".join(f"\n  - ../../components/{name}" for name in ("monitoring", *further))
        made[overlay] = text.replace("\n  - ../../components/monitoring", lines)
    for overlay, lines in made.items():
        directory = copy / "overlays" / overlay
        directory.mkdir()
        (directory / "kustomization.yaml").write_text(lines)
    found = {file.parent.name for file in copy.glob("overlays/*/kustomization.yaml")}
    assert found == set(OVERLAYS)
    return {overlay: render(copy / "overlays" / overlay) for overlay in OVERLAYS}
