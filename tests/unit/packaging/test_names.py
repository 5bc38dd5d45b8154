"""One name for one thing: no class name occurs twice in the project."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

# Results and options of the client mirror the contract; so do the server's types of these names.
MIRRORED = {
    *("Alignment", "FinishReason", "Glossary", "Hypothesis", "MemoryMatch", "Sampling"),
    *("SourceToken", "TermUse", "TranslationWarning"),
}


def test_no_class_name_occurs_twice() -> None:
    places = defaultdict(list)
    for folder in ("service", "model", "export", "bench", "cli", "proto/dragoman"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.stem.endswith(("_pb2", "_pb2_grpc")):
                continue
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(path.relative_to(ROOT).as_posix())
    assert len(places) > 300
    twice = {name for name, found in places.items() if len(found) > 1}
    assert twice <= MIRRORED, {name: places[name] for name in twice - MIRRORED}
    for name in MIRRORED & twice:  # once in the client, once in the server
        assert sorted(place.split("/")[0] for place in places[name]) == ["proto", "service"]
