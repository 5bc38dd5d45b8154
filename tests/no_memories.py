"""The contract's methods for translation memories, for services of tests that have none."""

from __future__ import annotations

from typing import Any


class NoMemories:
    """Methods that no test calls; to stand before the contract's own base class."""

    CreateMemory: Any = None
    ListMemories: Any = None
    DeleteMemory: Any = None
    AddTranslation: Any = None
    ImportMemory: Any = None
    ExportMemory: Any = None
