"""Pairs of languages as users type them and as registries write them. Free of torch."""

from __future__ import annotations

import re

from export.errors import ExportError
from model.bundle.languages import written_tag

_PAIR = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8}){1,8}")


def pair_key(pair: str) -> str:
    """The pair in the form that all its spellings share: "en-zh-hant" for "en-zh_Hant".

    Raises:
        ExportError: it is no pair of languages.
    """
    if not _PAIR.fullmatch(pair):
        raise ExportError(f"{pair!r:.80} is no pair of languages: write the source first (en-de)")
    return spelling_key(pair)


def spelling_key(name: str) -> str:
    """The form that all spellings of a pair's name share."""
    return name.lower().replace("_", "-")


def language_code(code: str) -> str:
    """The BCP-47 code of a language that a registry writes in its own way: "zh-Hant", "pt-BR"."""
    return written_tag(code.lower().replace("_", "-").split("-"))
