"""Translation memories: made, filled and used, each by its owner."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from model.bundle.languages import is_language_code
from service.calls.backend import Backend
from service.calls.call_context import current_call
from service.calls.requests import TextRequest
from service.common.fairness import checkpoint, in_thread
from service.errors import InvalidArgumentError
from service.memory import tmx
from service.memory.memory_translator import MemoryTranslator
from service.memory.pairs import LEAST_THRESHOLD, MemoryUse, StoredMemory, TextPair
from service.memory.store import BATCH_PAIRS
from service.things.interface import LinkedTranslator
from service.translation.options import TranslatorLimits

_PART_BYTES = 256 * 1024  # of an export: gRPC's clients take messages of 4 MiB by default


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


@dataclass(frozen=True)
class ImportCounts:
    """The counts of an import.

    Attributes:
        num_added: pairs that the memory did not have.
        num_replaced: pairs whose source the memory had.
        num_skipped: units or translations of the file that were left out.
    """

    num_added: int
    num_replaced: int
    num_skipped: int


async def import_memory(
    backend: Backend, memory: str, content: bytes, languages: tuple[str, str]
) -> ImportCounts:
    """Add the pairs of a TMX file to a memory.

    Args:
        languages: source and target language of the pairs; "" for those of the file.

    Raises:
        DragomanError: the file can't be read, or there is no such memory, or it becomes too large.
    """
    for name, code in zip(("source", "target"), languages, strict=True):
        if code and not is_language_code(code):
            raise InvalidArgumentError(f"{name}_language_code", "is no language code")
    await backend.memories.find(_owner(), memory)
    found = await backend.documents.read_tmx(content, languages, current_call().client)
    num_pairs = num_added = 0
    waiting: list[TextPair] = []
    for batch in found.batches():
        await checkpoint()
        num_pairs += len(batch)
        waiting += batch
        if len(waiting) >= BATCH_PAIRS:
            num_added += await backend.memories.add(_owner(), memory, waiting)
            waiting = []
    num_added += await backend.memories.add(_owner(), memory, waiting)
    return ImportCounts(num_added, num_pairs - num_added, found.num_skipped)


async def export_memory(backend: Backend, name: str) -> AsyncGenerator[bytes, None]:
    """Yield the parts of a TMX file with the pairs of a memory. Raises DragomanError."""
    yield tmx.HEAD
    async for pairs in backend.memories.pairs(_owner(), name):
        part = await in_thread(functools.partial(tmx.tmx_units, pairs))
        for start in range(0, len(part), _PART_BYTES):
            yield part[start : start + _PART_BYTES]
    yield tmx.TAIL
