"""The reports that are kept in the repository follow from their summaries."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.recompute import RETIRED, SUMMARY_FILE, read_summary, render
from bench.suite.report import SuiteFigures, update_readme

BENCH = Path(__file__).parents[3] / "bench"
REPORTS = sorted(
    file.parent
    for file in (BENCH / "reports").rglob(SUMMARY_FILE)
    if read_summary(file.parent)["benchmark"] not in RETIRED
)


@pytest.mark.parametrize("directory", REPORTS, ids=lambda path: path.name)
def test_a_report_is_made_of_its_summary_alone(directory: Path) -> None:
    files = {file.name: file.read_text(encoding="utf-8") for file in directory.iterdir()}
    del files[SUMMARY_FILE]
    assert files == render(read_summary(directory))


def test_the_readme_has_the_tables_of_the_full_report(tmp_path: Path) -> None:
    (full,) = (BENCH / "reports").glob("*-full")
    readme = tmp_path / "README.md"
    text = (BENCH / "suite" / "README.md").read_text(encoding="utf-8")
    readme.write_text(text, encoding="utf-8")
    update_readme(readme, SuiteFigures.from_dict(read_summary(full)))
    assert readme.read_text(encoding="utf-8") == text
