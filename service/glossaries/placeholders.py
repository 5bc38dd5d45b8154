"""Placeholders: signs in the text to translate that stand for verbatim text."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Set

PLACEHOLDER = re.compile(r"\{\d+\}")
"""The included model copies such words."""


def placeholders(texts: str, reserved: Set[str] = frozenset()) -> Iterator[str]:
    """Placeholders that do not occur in `texts` and are not `reserved`, each once."""
    used = {*PLACEHOLDER.findall(texts), *reserved}
    for number in itertools.count(1):
        placeholder = f"{{{number}}}"
        if placeholder not in used:
            yield placeholder
