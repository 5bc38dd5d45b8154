"""The contract's methods that services of tests lack."""

from __future__ import annotations

from typing import Any


class OnlyTranslations:
    """Methods that no test calls; to stand before the contract's own base class."""

    Score: Any = None
    GetAttention: Any = None
    TranslateDocument: Any = None
    DetectLanguage: Any = None
    ListLanguages: Any = None
    GetModel: Any = None
    CreateMemory: Any = None
    ListMemories: Any = None
    DeleteMemory: Any = None
    AddTranslation: Any = None
    ImportMemory: Any = None
    ExportMemory: Any = None
