"""Writes a memory as TMX 1.4."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

import dragoman
from service.memory.pairs import TextPair

# Without it, a reader takes a carriage return for a line break.
_ESCAPES = {"\r": "&#13;"}

HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">\n'
    f'<header creationtool="dragoman" creationtoolversion="{dragoman.__version__}" '
    'segtype="sentence" o-tmf="dragoman" adminlang="en" srclang="*all*" datatype="plaintext"/>\n'
    "<body>\n"
).encode()
TAIL = b"</body>\n</tmx>\n"


def tmx_units(pairs: Iterable[TextPair]) -> bytes:
    """The units of some pairs, each with its source language."""
    return "".join(map(_unit, pairs)).encode()


def _unit(pair: TextPair) -> str:
    source = _variant(pair.source_language, pair.source)
    target = _variant(pair.target_language, pair.target)
    return f"<tu srclang={quoteattr(pair.source_language)}>{source}{target}</tu>\n"


def _variant(language: str, text: str) -> str:
    return f"<tuv xml:lang={quoteattr(language)}><seg>{escape(text, _ESCAPES)}</seg></tuv>"
