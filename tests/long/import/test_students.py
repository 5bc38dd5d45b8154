"""Students of each size, and of two vocabularies, translate 200 sentences as fxtranslate does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from export.students.reader import read_student
from tests.parity.test_import_student import SIZES, sentences, write

NUM_SENTENCES = 200
# Random weights make many tokens nearly equal.
LEAST_IDENTICAL = 0.2


@pytest.mark.parametrize(("size", "fields"), SIZES, ids=lambda x: str(x))
def test_translations_are_those_of_fxtranslate(
    tmp_path: Path, size: str, fields: dict[str, Any]
) -> None:
    pytest.importorskip("fxtranslate", reason="needs fxtranslate: pip install fxtranslate")
    write(tmp_path / "ende", size, fields)
    comparison = read_student(tmp_path / "ende", None).comparison
    assert comparison is not None
    agreement = comparison.compare(sentences(NUM_SENTENCES), None)
    print(f"{size} {fields}: {agreement}")
    assert agreement.num_identical >= LEAST_IDENTICAL * NUM_SENTENCES
