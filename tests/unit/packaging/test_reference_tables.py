"""The reference tables of the documents are those of the code."""

import dataclasses
from pathlib import Path

import pytest

from service.settings import Settings
from tests.reference_tables import GROUPS, PAGES, with_tables


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_are_up_to_date(page: Path) -> None:
    """If not: `make docs`."""
    text = page.read_text(encoding="utf-8")
    assert "<!-- table: " in text
    assert with_tables(text) == text


def test_every_setting_is_in_one_group() -> None:
    grouped = [name for names in GROUPS.values() for name in names.split()]
    assert sorted(grouped) == sorted(field.name for field in dataclasses.fields(Settings))


def test_the_page_of_settings_has_every_group() -> None:
    page = PAGES[0].read_text(encoding="utf-8")
    assert all(f"<!-- table: settings {group} -->" in page for group in GROUPS)


def test_a_stale_table_is_written_anew() -> None:
    place = "<!-- table: limits access -->\nold\n<!-- end of table -->"
    changed = with_tables(f"before\n{place}\nafter")
    assert changed.startswith("before\n<!-- table: limits access -->\n| limit | value |\n")
    assert changed.endswith("| API keys in the file | 200,000 |\n<!-- end of table -->\nafter")
