"""A gRPC server with our contract and delays that a test sets."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from dragoman.v1 import translation_pb2 as pb
from dragoman.v1 import translation_pb2_grpc
from tests.only_translations import OnlyTranslations

Behaviour = Callable[["FakeServer", int, Any], None]
"""Is given the server, the number of the call and its context; delays or aborts the call."""


class FakeServer(OnlyTranslations, translation_pb2_grpc.TranslationServiceServicer):
    """Answers every text with itself, after calling `behaviour`."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self._lock = threading.Lock()
        self.started = time.monotonic()
        self.num_calls = 0
        self.texts: list[list[str]] = []
        self.options: list[pb.TranslateOptions] = []
        self.server = grpc.server(ThreadPoolExecutor(128), options=[("grpc.so_reuseport", 0)])
        translation_pb2_grpc.add_TranslationServiceServicer_to_server(self, self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self.port}"

    def ListModels(self, request: pb.ListModelsRequest, context: Any) -> pb.ListModelsResponse:
        return pb.ListModelsResponse(models=[pb.Model(name="fake", precision="none")])

    def Translate(self, request: pb.TranslateRequest, context: Any) -> pb.TranslateResponse:
        self.options.append(request.options)
        self._behaviour(self, self._count(list(request.contents)), context)
        return pb.TranslateResponse(
            translations=[
                pb.Translation(translated_text=text, source_token_count=2, target_token_count=3)
                for text in request.contents
            ]
        )

    def StreamTranslate(
        self, request: pb.StreamTranslateRequest, context: Any
    ) -> Iterator[pb.StreamTranslateResponse]:
        number = self._count([request.content])
        for word in request.content.split():
            self._behaviour(self, number, context)
            yield pb.StreamTranslateResponse(delta=pb.TextDelta(text=word))
        yield pb.StreamTranslateResponse(summary=pb.StreamSummary(target_token_count=3))

    def _count(self, texts: list[str]) -> int:
        with self._lock:
            self.num_calls += 1
            self.texts.append(texts)
            return self.num_calls - 1


@contextlib.contextmanager
def fake_server(behaviour: Behaviour) -> Iterator[FakeServer]:
    """Run a `FakeServer` on a free port."""
    server = FakeServer(behaviour)
    try:
        yield server
    finally:
        server.server.stop(None).wait()
