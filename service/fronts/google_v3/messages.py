"""The messages of Google's contract, in a descriptor pool of their own.

In the default pool, they would clash with Google's own library, which has the same names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "google.cloud.translation.v3.TranslationService"
CONTRACT = Path(__file__).with_name("contract.binpb")
"""The contract, as `proto/generate.py` compiles it."""


def _read() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(CONTRACT.read_bytes()).file:
        pool.Add(file)
    return pool


POOL = _read()


def message_class(name: str) -> Any:
    """The class of a message, by its name without the package."""
    package = SERVICE.rpartition(".")[0]
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"{package}.{name}"))


TranslateTextResponse = message_class("TranslateTextResponse")
DetectLanguageResponse = message_class("DetectLanguageResponse")
SupportedLanguages = message_class("SupportedLanguages")
