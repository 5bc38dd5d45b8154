"""Fields of a manifest that contradict each other, old manifests, and the ONNX Runtime."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from model.bundle.bundle import Bundle
from model.bundle.carriers import DEFAULT_CARRIERS, Carrier, in_common
from model.bundle.manifest import BundleCorruptError
from tests.unit.model.bundle.conftest import edit

MANY: dict[str, Any] = {
    "sources": ["en", "de"],
    "targets": ["de", "en"],
    "token_ids": {"en": 5, "de": 6},
    "source_prefix": "source",
    "target_prefix": "target",
}


@pytest.mark.parametrize(
    ("directions", "message"),
    [
        ([], "the field directions is not of type dict"),
        ({"sources": ["en"]}, "the field directions.targets is missing"),
        ({**MANY, "token_ids": {"en": 5}}, "directions.token_ids has no 'de'"),
        ({**MANY, "token_ids": {"en": 5, "de": 320}}, "directions.token_ids"),
        ({**MANY, "targets": ["de", "de_DE"], "target_prefix": ""}, "'de_DE' is no BCP-47 code"),
        ({**MANY, "sources": ["de"]}, "languages is not among directions"),
        (MANY, "directions need a tokenizer.kind of pieces"),
    ],
)
def test_directions_have_to_make_sense(directory: Path, directions: Any, message: str) -> None:
    edit(directory, lambda manifest: manifest.update(directions=directions))
    with pytest.raises(BundleCorruptError, match=message):
        Bundle.load(directory)


def test_a_bundle_without_directions_has_one(directory: Path) -> None:
    assert list(Bundle.load(directory).directions) == [("en", "de")]


def test_carriers_are_read_in_their_order(directory: Path) -> None:
    assert Bundle.load(directory).carriers == DEFAULT_CARRIERS
    carriers = (Carrier("sentinels", 16, 0.99), Carrier("<%d>", kept=0.5), Carrier("#%d#"))
    entries = [carrier.to_dict() for carrier in carriers]
    edit(directory, lambda manifest: manifest.update(carriers=entries))
    assert Bundle.load(directory).carriers == carriers
    edit(directory, lambda manifest: manifest.update(carriers=[]))
    assert Bundle.load(directory).carriers == ()


@pytest.mark.parametrize(
    ("carriers", "message"),
    [
        (None, "carriers is not a list of 8 entries at most"),
        ([{"form": "{%d}"}] * 9, "carriers is not a list of 8 entries at most"),
        (["{%d}"], r"carriers\[0\] is not an object"),
        ([{"form": "{}"}], r"carriers\[0\].form is neither"),
        ([{"form": "%d"}], r"carriers\[0\].form is neither"),
        ([{"form": "7%d"}], r"carriers\[0\].form is neither"),
        ([{"form": "%d%d"}], r"carriers\[0\].form is neither"),
        ([{"form": "a %d"}], r"carriers\[0\].form is neither"),
        ([{"form": "x" * 20 + "%d"}], r"carriers\[0\].form is neither"),
        ([{"form": "{%d}"}, {"form": "{%d}"}], r"carriers\[1\].form is there twice"),
        ([{"form": "{%d}", "count": 3}], r"carriers\[0\].count is for"),
        ([{"form": "sentinels"}], r"carriers\[0\].count is not between 1 and 100"),
        ([{"form": "sentinels", "count": 0}], r"carriers\[0\].count is not between"),
        ([{"form": "{%d}", "kept": 1.5}], r"carriers\[0\].kept is not between 0 and 1"),
        ([{"form": "{%d}", "kept": True}], r"carriers\[0\].kept is not between 0 and 1"),
    ],
)
def test_carriers_have_to_make_sense(directory: Path, carriers: Any, message: str) -> None:
    edit(directory, lambda manifest: manifest.update(carriers=carriers))
    with pytest.raises(BundleCorruptError, match=message):
        Bundle.load(directory)


def test_two_models_share_the_carriers_that_both_copy() -> None:
    one = (Carrier("sentinels", 8), Carrier("{%d}"), Carrier("<%d>"))
    other = (Carrier("<%d>"), Carrier("sentinels", 4), Carrier("#%d#"))
    assert in_common(one, other) == (Carrier("sentinels", 4), Carrier("<%d>"))
    assert in_common(one, ()) == ()
    assert in_common(one, (Carrier("#%d#"),)) == (*one[1:], Carrier("#%d#"))


def without_scoring(directory: Path) -> dict[str, Any]:
    """The manifest as it was before there was a scoring graph."""
    manifest: dict[str, Any] = json.loads((directory / "bundle.json").read_text(encoding="utf-8"))
    del manifest["graphs"]["scoring"], manifest["scoring"], manifest["sha256"]["scoring.onnx"]
    return manifest


def test_a_bundle_from_before_there_was_scoring_is_read(directory: Path) -> None:
    assert Bundle.load(directory).alignment_layer == 1
    manifest = without_scoring(directory)
    (directory / "bundle.json").write_text(json.dumps(manifest))
    (directory / "scoring.onnx").unlink()
    bundle = Bundle.load(directory)
    assert bundle.scoring_path is None
    assert bundle.alignment_layer is None


@pytest.mark.parametrize(
    ("scoring", "message"),
    [
        (None, "the field scoring is missing"),
        (1, "the field scoring is not of type dict"),
        ({}, "the field scoring.alignment_layer is missing"),
        ({"alignment_layer": 2}, "scoring.alignment_layer is no decoder layer"),
        ({"alignment_layer": -1}, "scoring.alignment_layer is no decoder layer"),
        (
            {"alignment_layer": 1, "alignment_head": 2},
            "scoring.alignment_head is no",
        ),
        ({"alignment_layer": 1, "alignment_head": "0"}, "scoring.alignment_head is no"),
    ],
)
def test_what_is_said_of_scoring_has_to_make_sense(
    directory: Path, scoring: Any, message: str
) -> None:
    manifest = json.loads((directory / "bundle.json").read_text(encoding="utf-8"))
    manifest["scoring"] = scoring
    if scoring is None:
        del manifest["scoring"]
    (directory / "bundle.json").write_text(json.dumps(manifest))
    with pytest.raises(BundleCorruptError, match=message):
        Bundle.load(directory)


@pytest.mark.parametrize(
    ("provenance", "origin"),
    [
        ({}, ""),
        ({"recipe": "small"}, "trained with the recipe small"),
        ({"recipe": 7, "imported_from": "x"}, ""),
        ({"imported_from": {}}, "imported from files"),
        ({"imported_from": {"directory": "opus", "hub": 3}}, "imported from opus"),
        (
            {
                "imported_from": {
                    "hub": "a/b",
                    "directory": "c",
                    "architecture": "MarianMT",
                    "revision": "0123456789abcdef",
                    "license": "apache-2.0",
                }
            },
            "imported from a/b (MarianMT, revision 0123456789ab, licence apache-2.0)",
        ),
        (
            {"imported_from": {"url": f"https://x/{'y' * 200}.bin", "directory": "c"}},
            f"imported from https://x/{'y' * 200}.bin",
        ),
        ({"imported_from": {"hub": "a\nb", "directory": "\x1b[1m"}}, "imported from files"),
    ],
)
def test_the_origin_is_what_the_provenance_says_in_words(
    pristine: Path, provenance: dict[str, Any], origin: str
) -> None:
    bundle = Bundle.load(pristine)
    manifest = {**bundle.manifest, "provenance": provenance}
    assert dataclasses.replace(bundle, manifest=manifest).origin == origin


# --- the ONNX Runtime -----------------------------------------------------------------------------


def install(directory: Path, package: str, version: str) -> Path:
    """Create the relevant files of a package that pip has installed."""
    (directory / "onnxruntime").mkdir(parents=True)
    (directory / "onnxruntime" / "__init__.py").touch()
    facts = directory / f"{package.replace('-', '_')}-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    return directory


@pytest.mark.parametrize("first", ["onnxruntime", "onnxruntime-gpu"])
def test_of_two_packages_it_is_the_one_that_is_imported(tmp_path: Path, first: str) -> None:
    second = {"onnxruntime": "onnxruntime-gpu", "onnxruntime-gpu": "onnxruntime"}[first]
    folders = [install(tmp_path / "a", first, "1.31.7"), install(tmp_path / "b", second, "1.30.0")]
    program = "from model.bundle.manifest_checks import installed_runtime_version as v; print(v())"
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "1.31.7"
