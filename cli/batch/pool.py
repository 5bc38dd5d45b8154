"""Translates the texts of a job on several servers: balanced, retried, equal texts once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, Self

import grpc

from cli.batch.job import Result
from cli.line_calls import is_about_a_text, reason
from dragoman.client import TranslationBatch, TranslationError

# Together, what calls hold at a server: enough to fill it, of texts of similar length.
_CALL_TEXTS = 32
_CALL_CHARACTERS = 32_000
_CALLS_PER_SERVER = 8

# Results that are kept for later equal texts, counted by the characters of both.
_KEPT_CHARACTERS = 64_000_000

# A call that fails so often without a server being away is about one of its texts.
_MAX_ATTEMPTS = 3
_LONGEST_PAUSE_SECONDS = 5.0

_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
_PASSING = (
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.ABORTED,
)


class TextServer(Protocol):
    """The method of `dragoman.client.AsyncClient` that a pool calls."""

    async def translate(self, texts: Sequence[str], **arguments: Any) -> TranslationBatch:
        """Translate texts."""


@dataclass
class _PoolCall:
    texts: list[str]
    attempts: int = 0

    def halves(self) -> list[_PoolCall]:
        middle = len(self.texts) // 2
        return [_PoolCall(self.texts[:middle]), _PoolCall(self.texts[middle:])]


class ServersAwayError(Exception):
    """No server has answered for too long. The message may be shown to users."""


@dataclass
class Pool:
    """Servers that share the calls of a job.

    Each server takes a call when it has finished one, so that a faster one gets more. A call that a
    server does not finish goes to another one. Use it as an asynchronous context manager.

    Attributes:
        servers: clients by address.
        arguments: arguments of their `translate`.
        give_up_seconds: time without any answer after which the job ends.
    """

    servers: Mapping[str, TextServer]
    arguments: Mapping[str, Any]
    give_up_seconds: float
    _waiting: deque[_PoolCall] = field(default_factory=deque, init=False)
    _results: OrderedDict[str, asyncio.Future[Result]] = field(
        default_factory=OrderedDict, init=False
    )
    _kept_characters: int = field(default=0, init=False)
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition, init=False)
    _failed: BaseException | None = field(default=None, init=False)
    _last_answer: float = field(default_factory=time.monotonic, init=False)
    _workers: list[asyncio.Task[None]] = field(default_factory=list, init=False)

    async def __aenter__(self) -> Self:
        self._workers = [
            asyncio.create_task(self._work(server))
            for server in self.servers.values()
            for _ in range(_CALLS_PER_SERVER)
        ]
        return self

    async def __aexit__(self, *error: object) -> None:
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    async def translate(self, texts: Sequence[str]) -> list[Result]:
        """The result of each text.

        Raises:
            TranslationError: a server refuses the job as a whole.
            ServersAwayError: no server answers.
        """
        if self._failed is not None:
            raise self._failed
        wanted: list[asyncio.Future[Result]] = []
        new: list[str] = []
        for text in texts:
            if (result := self._results.get(text)) is None:
                result = asyncio.get_running_loop().create_future()
                if text.strip():
                    new.append(text)
                    self._results[text] = result
                else:
                    result.set_result(Result(text))
            else:
                self._results.move_to_end(text)
            wanted.append(result)
        # Texts of one length end together; long ones come first, so that few rows are left alone.
        new.sort(key=len, reverse=True)
        self._waiting.extend(_calls(new))
        async with self._arrived:
            self._arrived.notify_all()
        return list(await asyncio.gather(*wanted))

    async def _work(self, server: TextServer) -> None:
        pause = 0.1
        while True:
            async with self._arrived:
                await self._arrived.wait_for(lambda: self._waiting)
                call = self._waiting.popleft()
            try:
                await self._answer(server, call)
                pause = 0.1
            except TranslationError as exc:
                if not self._put_back(call, exc):
                    self._fail(exc)
                    return
                async with self._arrived:
                    self._arrived.notify_all()
                await asyncio.sleep(exc.retry_after_seconds or pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            except Exception as exc:  # a defect, which must not leave the job waiting
                self._fail(exc)
                return

    async def _answer(self, server: TextServer, call: _PoolCall) -> None:
        answer = await server.translate(call.texts, **self.arguments)
        self._last_answer = time.monotonic()
        for text, translation in zip(call.texts, answer.translations, strict=True):
            if translation.error is not None:
                result = Result(None, reason(translation.error))
            else:
                warnings = tuple(asdict(warning) for warning in translation.warnings)
                result = Result(translation.text, warnings=warnings)
            self._set(text, result)

    def _put_back(self, call: _PoolCall, error: TranslationError) -> bool:
        """Queue the texts of a failed call again; returns False if the job can't continue."""
        if time.monotonic() - self._last_answer > self.give_up_seconds:
            return False
        if is_about_a_text(error):
            self._divide(call, error)
        elif error.code in _AWAY or error.retry_after_seconds is not None:
            self._waiting.appendleft(call)
        elif error.code in _PASSING:
            call.attempts += 1
            if call.attempts < _MAX_ATTEMPTS:
                self._waiting.append(call)
            else:
                self._divide(call, error)
        else:
            return False
        return True

    def _divide(self, call: _PoolCall, error: TranslationError) -> None:
        if len(call.texts) == 1:
            self._set(call.texts[0], Result(None, reason(error)))
        else:
            self._waiting.extendleft(call.halves())

    def _set(self, text: str, result: Result) -> None:
        if not self._results[text].done():  # cancelled where the job has failed
            self._results[text].set_result(result)
        self._kept_characters += len(text) + len(result.text or "")
        while self._kept_characters > _KEPT_CHARACTERS:
            oldest, future = next(iter(self._results.items()))
            if not future.done() or future.cancelled():
                break
            del self._results[oldest]
            self._kept_characters -= len(oldest) + len(future.result().text or "")

    def _fail(self, error: Exception) -> None:
        self._failed = error
        if isinstance(error, TranslationError) and error.code in _AWAY:
            self._failed = ServersAwayError(
                f"no answer from {', '.join(self.servers)} for {self.give_up_seconds:g} s: {error}"
            )
        for future in self._results.values():
            with contextlib.suppress(asyncio.InvalidStateError):
                future.set_exception(self._failed)


def _calls(texts: Sequence[str]) -> list[_PoolCall]:
    calls: list[_PoolCall] = []
    size = 0
    for text in texts:
        if not calls or len(calls[-1].texts) == _CALL_TEXTS or size + len(text) > _CALL_CHARACTERS:
            calls.append(_PoolCall([]))
            size = 0
        calls[-1].texts.append(text)
        size += len(text)
    return calls
