"""The model card of a Hugging Face directory: README.md, with facts in YAML before the text."""

from __future__ import annotations

import re
from pathlib import Path

_FRONT_MATTER = re.compile(r"---\r?\n(.*?)^---", re.MULTILINE | re.DOTALL)
# One value, not a list; the rest of YAML is not needed.
_LICENCE = re.compile(
    r"^license:[ \t]*[\"']?([\w.+ -]{1,64}?)[\"']?[ \t]*(?:#.*)?\r?$", re.MULTILINE
)


def licence_of(path: Path) -> dict[str, str]:
    """The licence that a model's card names, as `license`; empty if it names none."""
    try:
        text = (path / "README.md").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    front = _FRONT_MATTER.match(text)
    found = _LICENCE.search(front[1]) if front else None
    return {"license": found[1]} if found else {}
