"""The clients' methods for translation memories."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncGenerator, Generator
from typing import Any

from dragoman import requests
from dragoman.attempts import AsyncioCalls, ThreadedCalls
from dragoman.base_client import BaseClient, PreparedCall
from dragoman.conversions import Metadata
from dragoman.memories import MemoryImport, MemoryInfo
from dragoman.v1 import translation_pb2 as pb


class _MemoryCalls:
    """Builds the calls of a client about memories."""

    def __init__(self, client: BaseClient) -> None:
        self._stub = client._stub
        self._call = client._call

    def create(self, name: str, timeout: float | None) -> PreparedCall[MemoryInfo]:
        request = pb.CreateMemoryRequest(name=requests.string("name", name))
        return self._call(self._stub.CreateMemory, request, _info, {"timeout": timeout})

    def list(self, timeout: float | None) -> PreparedCall[list[MemoryInfo]]:
        def read(response: pb.ListMemoriesResponse, _: Metadata) -> list[MemoryInfo]:
            return [_info(memory) for memory in response.memories]

        request = pb.ListMemoriesRequest()
        return self._call(self._stub.ListMemories, request, read, {"timeout": timeout})

    def delete(self, name: str, timeout: float | None) -> PreparedCall[None]:
        request = pb.DeleteMemoryRequest(name=requests.string("name", name))
        return self._call(self._stub.DeleteMemory, request, lambda *_: None, {"timeout": timeout})

    def add(
        self,
        memory: str,
        pair: tuple[str, str],
        languages: tuple[str, str],
        timeout: float | None,
    ) -> PreparedCall[bool]:
        def read(response: pb.AddTranslationResponse, _: Metadata) -> bool:
            return response.replaced

        request = pb.AddTranslationRequest(
            memory=requests.string("memory", memory),
            source_text=requests.string("source_text", pair[0]),
            translated_text=requests.string("translation", pair[1]),
            **_codes(languages),
        )
        return self._call(self._stub.AddTranslation, request, read, {"timeout": timeout})

    def import_(
        self, memory: str, content: bytes, languages: tuple[str, str], timeout: float | None
    ) -> PreparedCall[MemoryImport]:
        def read(response: pb.ImportMemoryResponse, _: Metadata) -> MemoryImport:
            return MemoryImport(
                response.added_count, response.replaced_count, response.skipped_count
            )

        request = pb.ImportMemoryRequest(
            memory=requests.string("memory", memory), content=content, **_codes(languages)
        )
        return self._call(self._stub.ImportMemory, request, read, {"timeout": timeout})

    def export(self, name: str, timeout: float | None) -> PreparedCall[bytes]:
        def read(response: pb.ExportMemoryResponse, _: Metadata) -> bytes:
            return response.content

        request = pb.ExportMemoryRequest(name=requests.string("name", name))
        return self._call(self._stub.ExportMemory, request, read, {"timeout": timeout})


class MemoryMethods(ThreadedCalls):
    """Methods of `Client` for translation memories."""

    @functools.cached_property
    def _calls(self) -> _MemoryCalls:
        return _MemoryCalls(self)

    def create_memory(self, name: str, *, timeout: float | None = None) -> MemoryInfo:
        """Create a translation memory.

        Raises:
            TranslationError: the call failed.
        """
        return self._make(self._calls.create(name, timeout))

    def list_memories(self, *, timeout: float | None = None) -> list[MemoryInfo]:
        """The caller's memories, by name.

        Raises:
            TranslationError: the call failed.
        """
        return self._make(self._calls.list(timeout))

    def delete_memory(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a memory.

        Raises:
            TranslationError: NOT_FOUND, or the call failed.
        """
        return self._make(self._calls.delete(name, timeout))

    def add_translation(
        self,
        memory: str,
        source_text: str,
        translation: str,
        *,
        source: str,
        target: str,
        timeout: float | None = None,
    ) -> bool:
        """Add a translation to a memory, or correct one; the next call uses it.

        Args:
            memory: name of the memory.
            source_text: a text, best a sentence.
            translation: its translation.
            source, target: BCP-47 codes of the languages.

        Returns:
            Whether it took the place of another translation.

        Raises:
            TranslationError: the call failed.
        """
        pair = source_text, translation
        return self._make(self._calls.add(memory, pair, (source, target), timeout))

    def import_memory(
        self,
        memory: str,
        content: bytes,
        *,
        source: str = "",
        target: str = "",
        timeout: float | None = None,
    ) -> MemoryImport:
        """Add the translations of a TMX file to a memory.

        Args:
            memory: name of the memory.
            content: the file.
            source: BCP-47 code of the language of the texts; "" for that of the file.
            target: BCP-47 code of the language of the translations; "" for all.

        Raises:
            TranslationError: the call failed.
        """
        return self._make(self._calls.import_(memory, content, (source, target), timeout))

    def export_memory(
        self, name: str, *, timeout: float | None = None
    ) -> Generator[bytes, None, None]:
        """Yield the parts of a TMX file with all translations of a memory.

        Raises:
            TranslationError: NOT_FOUND, or the call failed, perhaps after some parts.
        """
        yield from self._events(self._calls.export(name, timeout))


class AsyncMemoryMethods(AsyncioCalls):
    """Methods of `AsyncClient` for translation memories."""

    @functools.cached_property
    def _calls(self) -> _MemoryCalls:
        return _MemoryCalls(self)

    async def create_memory(self, name: str, *, timeout: float | None = None) -> MemoryInfo:
        """See `Client.create_memory`.

        Raises:
            TranslationError: the call failed.
        """
        return await self._make(self._calls.create(name, timeout))

    async def list_memories(self, *, timeout: float | None = None) -> list[MemoryInfo]:
        """See `Client.list_memories`.

        Raises:
            TranslationError: the call failed.
        """
        return await self._make(self._calls.list(timeout))

    async def delete_memory(self, name: str, *, timeout: float | None = None) -> None:
        """See `Client.delete_memory`.

        Raises:
            TranslationError: the call failed.
        """
        return await self._make(self._calls.delete(name, timeout))

    async def add_translation(
        self,
        memory: str,
        source_text: str,
        translation: str,
        *,
        source: str,
        target: str,
        timeout: float | None = None,
    ) -> bool:
        """See `Client.add_translation`.

        Raises:
            TranslationError: the call failed.
        """
        pair = source_text, translation
        return await self._make(self._calls.add(memory, pair, (source, target), timeout))

    async def import_memory(
        self,
        memory: str,
        content: bytes,
        *,
        source: str = "",
        target: str = "",
        timeout: float | None = None,
    ) -> MemoryImport:
        """See `Client.import_memory`.

        Raises:
            TranslationError: the call failed.
        """
        return await self._make(self._calls.import_(memory, content, (source, target), timeout))

    async def export_memory(
        self, name: str, *, timeout: float | None = None
    ) -> AsyncGenerator[bytes, None]:
        """See `Client.export_memory`.

        Raises:
            TranslationError: NOT_FOUND, or the call failed, perhaps after some parts.
        """
        events = self._events(self._calls.export(name, timeout))
        async with contextlib.aclosing(events):
            async for part in events:
                yield part


def _info(message: pb.TranslationMemory, _: Metadata = ()) -> MemoryInfo:
    return MemoryInfo(message.name, message.pair_count)


def _codes(languages: tuple[str, str]) -> dict[str, Any]:
    source, target = languages
    return {
        "source_language_code": requests.string("source", source),
        "target_language_code": requests.string("target", target),
    }
