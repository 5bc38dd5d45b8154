"""Checks before models are loaded, and the state after a failure."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from service.errors import StartupError
from service.models.loading import load_models
from service.observability.metrics import ServerMetrics
from tests.integration.replacing import change, model_processes
from tests.integration.servers import any_ports, needs_two_cores


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"default": ("en-de=none",)}, "setting default: en-de=none: there is no model 'none'"),
        ({"pivot_languages": ("pl",)}, "setting pivot_languages: .* through 'pl'"),
    ],
)
def test_rules_of_routing_are_checked_before_any_model_is_loaded(
    bundle_path: Path, rules: dict[str, Any], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with pytest.raises(StartupError, match=message):
        load_models(any_ports(model=(bundle_path,), in_process=True, **rules), ServerMetrics())
    assert caplog.messages == []


def test_two_models_of_one_name_are_refused_before_either_is_loaded(
    bundle_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(bundle_path, tmp_path / "copy")
    caplog.set_level("INFO")
    both = f"two models are called 'tiny' .{bundle_path} and {tmp_path / 'copy'}.*import --name"
    with pytest.raises(StartupError, match=both):
        load_models(any_ports(model=(bundle_path, tmp_path / "copy")), ServerMetrics())
    assert caplog.messages == []


@needs_two_cores
def test_a_model_with_too_few_rows_for_its_own_search_leaves_no_process(
    bundle_path: Path, tmp_path: Path
) -> None:
    wide = tmp_path / "wide"
    shutil.copytree(bundle_path, wide)
    change(wide, search={"beam_size": 4})
    with pytest.raises(StartupError, match=r"a beam of 4 by default.*raise --max-rows"):
        load_models(any_ports(model=(wide,), max_rows=2), ServerMetrics())
    assert model_processes(os.getpid()) == []
