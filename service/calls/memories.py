"""Translation memories: made, filled and used, each by its owner."""

from __future__ import annotations

from collections.abc import Callable

from service.calls.backend import Backend
from service.calls.call_context import current_call
from service.calls.requests import TextRequest
from service.errors import InvalidArgumentError
from service.memory.memory_translator import MemoryTranslator
from service.memory.pairs import LEAST_THRESHOLD, MemoryUse, StoredMemory, TextPair
from service.text.interface import LinkedTranslator
from service.translation.options import TranslatorLimits


def _owner() -> str:
    """The owner of the memories that the caller makes: its tenant or key; "" for everyone."""
    return current_call().grant.owner


async def memory_stage(
    backend: Backend, request: TextRequest, languages: tuple[str, str], limits: TranslatorLimits
) -> Callable[[LinkedTranslator], LinkedTranslator]:
    """A function that puts the stage of the request's memory over another one.

    Raises:
        InvalidArgumentError: the threshold is out of range.
        NotFoundError: there is no such memory.
        FailedPreconditionError: the server has no memories.
    """
    if not LEAST_THRESHOLD <= request.memory_threshold <= 1:
        raise InvalidArgumentError(
            "memory_threshold",
            f"must be from {LEAST_THRESHOLD} to 1, not {request.memory_threshold:g}",
        )
    if not request.memory:
        return lambda below: below
    memory = await backend.memories.find(_owner(), request.memory)
    use = MemoryUse(memory, *languages, request.memory_threshold)
    return lambda below: MemoryTranslator(below, backend.memories, use, limits)


async def create_memory(backend: Backend, name: str) -> StoredMemory:
    """Create a memory. Raises DragomanError."""
    return await backend.memories.create(_owner(), name)


async def list_memories(backend: Backend) -> list[StoredMemory]:
    """The caller's memories, by name. Raises FailedPreconditionError."""
    return await backend.memories.memories(_owner())


async def delete_memory(backend: Backend, name: str) -> None:
    """Delete a memory. Raises DragomanError."""
    await backend.memories.delete(_owner(), name)


async def add_translation(backend: Backend, memory: str, pair: TextPair) -> bool:
    """Add a pair; returns whether the memory did not have its source. Raises DragomanError."""
    pair.check()
    return bool(await backend.memories.add(_owner(), memory, [pair]))
