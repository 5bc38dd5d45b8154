"""The contract's methods for translation memories."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from dragoman.v1 import translation_pb2 as pb
from service.calls import memories
from service.calls.backend import Backend
from service.calls.call_context import Context
from service.memory.pairs import StoredMemory, TextPair


class MemoryServicer:
    """Answers calls about memories with the use cases, over the parts of a server."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    async def CreateMemory(
        self, request: pb.CreateMemoryRequest, _: Context
    ) -> pb.TranslationMemory:
        """Create a memory."""
        return _described(await memories.create_memory(self.backend, request.name))

    async def ListMemories(
        self, request: pb.ListMemoriesRequest, _: Context
    ) -> pb.ListMemoriesResponse:
        """List the caller's memories."""
        found = await memories.list_memories(self.backend)
        return pb.ListMemoriesResponse(memories=map(_described, found))

    async def DeleteMemory(
        self, request: pb.DeleteMemoryRequest, _: Context
    ) -> pb.DeleteMemoryResponse:
        """Delete a memory."""
        await memories.delete_memory(self.backend, request.name)
        return pb.DeleteMemoryResponse()

    async def AddTranslation(
        self, request: pb.AddTranslationRequest, _: Context
    ) -> pb.AddTranslationResponse:
        """Add a translation to a memory, or replace one."""
        pair = TextPair(
            request.source_text,
            request.translated_text,
            request.source_language_code,
            request.target_language_code,
        )
        is_new = await memories.add_translation(self.backend, request.memory, pair)
        return pb.AddTranslationResponse(replaced=not is_new)

    async def ImportMemory(
        self, request: pb.ImportMemoryRequest, _: Context
    ) -> pb.ImportMemoryResponse:
        """Add the pairs of a TMX file."""
        languages = request.source_language_code, request.target_language_code
        made = await memories.import_memory(
            self.backend, request.memory, request.content, languages
        )
        return pb.ImportMemoryResponse(
            added_count=made.num_added,
            replaced_count=made.num_replaced,
            skipped_count=made.num_skipped,
        )

    async def ExportMemory(
        self, request: pb.ExportMemoryRequest, _: Context
    ) -> AsyncIterator[pb.ExportMemoryResponse]:
        """Write a memory as TMX, in parts."""
        parts = memories.export_memory(self.backend, request.name)
        async with contextlib.aclosing(parts):
            async for part in parts:
                yield pb.ExportMemoryResponse(content=part)


def _described(memory: StoredMemory) -> pb.TranslationMemory:
    return pb.TranslationMemory(name=memory.name, pair_count=memory.num_pairs)
