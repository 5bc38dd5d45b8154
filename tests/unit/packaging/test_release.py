"""The version is the same everywhere, and what belongs to a release is there."""

import re
from pathlib import Path

import pytest

import dragoman

ROOT = Path(__file__).parents[3]


def test_the_changes_of_this_version_are_listed_below_the_unreleased_ones() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert sections[0] == "Unreleased"
    version, _, date = sections[1].partition(" - ")
    assert version == dragoman.__version__
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", date)


def test_the_contract_of_this_version_is_kept() -> None:
    assert (ROOT / "proto" / "releases" / f"{dragoman.__version__}.binpb").is_file()


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_the_manifests_name_the_images_of_this_version(kind: str) -> None:
    overlay = ROOT / "docker" / "kubernetes" / "overlays" / kind / "kustomization.yaml"
    tags = re.findall(r"newTag: (.*)", overlay.read_text(encoding="utf-8"))
    assert tags == [f"{dragoman.__version__}-{kind}"]
