"""The page on adding a format: its code follows its rules, and texts name all formats."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from cli.translate_file import translate_file
from service.documents.document import DocumentLimits
from service.documents.formats import READERS, Reader
from tests.robustness.fuzz.documents import PlainTexts
from tests.robustness.fuzz.target import random_of

SERVICE = Path(__file__).parents[4] / "service"
DATA = b"# menu = x\nopen = Open a file\r\nsave=Save = keep\nnone =\n"


class PropertiesFiles(PlainTexts):
    """Files of the page's format."""

    extension: ClassVar[str] = ".properties"
    samples: ClassVar[Sequence[str]] = (DATA.decode(),)
    signs: ClassVar[Sequence[str]] = ("=", " = ", "a = b\n", "#", "\n", "\r\n", "\r", "\u2028")


@pytest.fixture
def page() -> ModuleType:
    text = (SERVICE / "documents" / "README.md").read_text("utf-8")
    found = re.search(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    module = ModuleType("service.documents.properties")
    exec(found[1], module.__dict__)
    return module


def test_the_format_of_the_page_reads_and_writes(page: ModuleType) -> None:
    make: Any = page.Properties
    document = make(DATA, DocumentLimits())
    assert [segment.text for segment in document.segments] == ["Open a file", "Save = keep"]
    written = document.write(["Datei", "Sichern"])
    assert written == b"# menu = x\nopen = Datei\r\nsave=Sichern\nnone =\n"


def test_the_format_of_the_page_can_be_fuzzed(
    page: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, page.__name__, page)
    monkeypatch.setitem(READERS, ".properties", Reader("properties", "Properties"))
    target = PropertiesFiles()
    for number in range(300):
        target.run(target.generate(random_of("properties", 0, number)))


def test_documents_and_help_name_all_formats() -> None:
    rows = re.findall(r"^\| (`\..*?) \| ", (SERVICE / "DOCUMENTS.md").read_text("utf-8"), re.M)
    assert set(re.findall(r"`(\.\w+)`", " ".join(rows))) == READERS.keys()
    named = re.findall(r"(?<= )\.\w+", translate_file.__doc__ or "")
    assert {READERS[extension] for extension in named} == {*READERS.values()}
