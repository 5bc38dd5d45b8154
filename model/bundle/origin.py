"""The origin of a bundle's weights, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def origin_of(provenance: Mapping[str, Any]) -> str:
    """The origin that a manifest's provenance names; "" if it names none."""
    imported = provenance.get("imported_from")
    if not isinstance(imported, dict):
        recipe = _words(provenance.get("recipe"))
        return f"trained with the recipe {recipe}" if recipe else ""
    names = (_words(imported.get(field), 512) for field in ("hub", "url", "directory"))
    name = next(filter(None, names), "files")
    facts = (
        _words(imported.get("architecture")),
        (revision := _words(imported.get("revision"))) and f"revision {revision[:12]}",
        (licence := _words(imported.get("license"))) and f"licence {licence}",
        # Bundles from before there was a choice have a proof, or no such field.
        "not proven" if provenance.get("proof", "") is None else "",
    )
    known = ", ".join(filter(None, facts))
    return f"imported from {name}" + (f" ({known})" if known else "")


def _words(value: Any, most: int = 128) -> str:
    """A text of the provenance, which anything may have written; "" for anything else."""
    return value[:most] if isinstance(value, str) and value.isprintable() else ""
