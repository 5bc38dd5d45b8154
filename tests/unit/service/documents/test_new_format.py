"""The format of the page on adding one: its code is complete."""

import re
from pathlib import Path
from typing import Any

from service.documents.document import DocumentLimits

PAGE = Path(__file__).parents[4] / "service" / "documents" / "README.md"


def test_the_format_of_the_page_reads_and_writes() -> None:
    found = re.search(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert found is not None
    names: dict[str, Any] = {}
    exec(found[1], names)
    data = b"# menu\nopen=Open a file\nsave=Save = keep\n"
    document = names["Properties"](data, DocumentLimits())
    assert [segment.text for segment in document.segments] == ["Open a file", "Save = keep"]
    assert document.write(["Datei", "Sichern"]) == b"# menu\nopen=Datei\nsave=Sichern\n"
    again = names["Properties"](data, DocumentLimits())
    assert again.write([segment.text for segment in again.segments]) == data
