"""The manifests of docker/kubernetes, as kubectl makes them of the kustomizations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from tests.containers.tools import run, tool

Manifest = dict[str, Any]

# Generated objects are named by their content, so that a change rolls the pods.
_GENERATED = re.compile(r"\b(dragoman-(?:settings|private))-[a-z0-9]{10}\b")


def render(overlay: Path) -> list[Manifest]:
    """The manifests of the overlay in a directory, with names that do not change."""
    output = run(tool("kubectl"), "kustomize", overlay)
    assert "Warning" not in output
    plain, count = _GENERATED.subn(r"\1", output)
    assert count == 4, "two objects, and where the pods take their settings from"
    return list(yaml.safe_load_all(plain))
