"""Calibration: a monotone map, stored in a bundle with its checksum."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from model.bundle.bundle import Bundle, add_calibration
from model.bundle.calibration import Calibration, CalibrationError, fit
from model.bundle.manifest import BundleCorruptError, BundleError, write_manifest
from tests.factories import tiny_bundle

MAP = Calibration("en", "de", (-2.0, -1.0, -0.5), (0.25, 0.5, 0.75), 9)

measured = st.lists(st.tuples(st.floats(-20, 0), st.floats(0, 1)), min_size=1, max_size=200)


@example(pairs=[*[(0.0, 0.0)] * 5, (0.0, 1.0), (0.0, 0.8125), (-2.0, 0.75)], scores=[0.0, 1.0])
@given(measured, st.lists(st.floats(-1e6, 1e6), min_size=2))
def test_a_better_score_never_has_less_confidence(
    pairs: list[tuple[float, float]], scores: list[float]
) -> None:
    calibration = fit("en", "de", [x for x, _ in pairs], [y for _, y in pairs])
    found = [calibration.confidence(score) for score in sorted(scores)]
    assert found == sorted(found)
    assert 0 <= found[0] <= found[-1] <= 1
    # It predicts no value outside of those that were measured.
    values = [round(value, 4) for _, value in pairs]
    assert min(values) <= found[0] <= found[-1] <= max(values)


def test_a_perfect_order_is_reproduced() -> None:
    scores = [-1 + index / 400 for index in range(400)]
    calibration = fit("en", "de", scores, [0.2 + (1 + score) / 2 for score in scores])
    for score in (-0.9, -0.5, -0.1):
        assert calibration.confidence(score) == pytest.approx(0.2 + (1 + score) / 2, abs=0.002)


def test_between_two_points_it_is_linear_and_outside_constant() -> None:
    found = [MAP.confidence(score) for score in (-math.inf, -2, -1.5, -1, -0.75, -0.5, 0)]
    assert found == [0.25, 0.25, 0.375, 0.5, 0.625, 0.75, 0.75]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"scores": [-2, -2, -1]}, "scores is not ascending"),
        ({"expected": [0.5, 0.25, 0.75]}, "expected falls"),
        ({"expected": [0.25, 0.5, 1.5]}, "between 0 and 1"),
        ({"expected": [0.25]}, "points each"),
        ({"scores": [], "expected": []}, "points each"),
        ({"scores": ["x", 1, 2]}, "no calibration"),
        ({"scores": [-math.inf, 0, 1]}, "not finite"),
        ({"source": None, "scores": 3}, "no calibration"),
    ],
)
def test_a_bad_file_is_refused_with_the_field(
    tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    file = tmp_path / "calibration.json"
    MAP.write(file)
    assert Calibration.parse(file.read_bytes()) == MAP
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(CalibrationError, match=reason):
        Calibration.parse(file.read_bytes())


def test_a_bundle_holds_it_with_its_checksum(tmp_path: Path) -> None:
    path = tiny_bundle(tmp_path / "bundle").path
    before = (path / "bundle.json").read_bytes()
    assert Bundle.load(path).calibration() is None
    for _ in range(2):  # a second time it is replaced
        add_calibration(path, MAP)
        assert Bundle.load(path).calibration() == MAP
    (path / "calibration.json").write_text("{}")
    with pytest.raises(BundleCorruptError, match=r"calibration\.json is damaged"):
        Bundle.load(path)
    unread = Bundle.load(path, verify=False)
    with pytest.raises(BundleCorruptError, match=r"calibration\.json is damaged"):
        unread.calibration()
    write_manifest(path, {key: unread.manifest[key] for key in unread.manifest if key != "sha256"})
    with pytest.raises(BundleCorruptError, match=r"calibration\.json cannot be used"):
        Bundle.load(path).calibration()
    (path / "calibration.json").unlink()
    (path / "bundle.json").write_bytes(before)
    assert Bundle.load(path).calibration() is None
    shutil.rmtree(path)
    with pytest.raises(BundleError):
        add_calibration(path, MAP)
