"""Makes the calls of a client, with retries: in a thread, or in an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Generator
from typing import TypeVar

import grpc

from dragoman.base_client import BaseClient, PreparedCall

T = TypeVar("T")


class ThreadedCalls(BaseClient):
    """Makes calls in the caller's thread."""

    _grpc = grpc

    def _make(self, call: PreparedCall[T]) -> T:
        while True:
            try:
                response, attempt = call.start(call.method.with_call)
                return call.result(response, attempt.trailing_metadata())
            except grpc.RpcError as exc:
                pause = call.pause(exc)
            time.sleep(pause)

    def _events(self, call: PreparedCall[T]) -> Generator[T, None, None]:
        """Yield the results of a stream. Closing the iterator cancels the call."""
        while True:
            attempt = call.start()
            has_begun = False
            try:
                for response in attempt:
                    has_begun = True
                    yield call.result(response, ())
                return
            except grpc.RpcError as exc:
                pause = call.pause(exc, has_begun=has_begun)
            finally:
                attempt.cancel()
            time.sleep(pause)


class AsyncioCalls(BaseClient):
    """Makes calls in the running event loop."""

    _grpc = grpc.aio

    async def _make(self, call: PreparedCall[T]) -> T:
        while True:
            attempt = call.start()
            try:
                return call.result(await attempt, await attempt.trailing_metadata())
            except grpc.aio.AioRpcError as exc:
                pause = call.pause(exc)
            await asyncio.sleep(pause)

    async def _events(self, call: PreparedCall[T]) -> AsyncGenerator[T, None]:
        """Yield the results of a stream. Closing the iterator cancels the call."""
        while True:
            attempt = call.start()
            has_begun = False
            try:
                async for response in attempt:
                    has_begun = True
                    yield call.result(response, ())
                return
            except grpc.aio.AioRpcError as exc:
                pause = call.pause(exc, has_begun=has_begun)
            finally:
                attempt.cancel()
            await asyncio.sleep(pause)
