"""Ageing of a server: its latency compared with that of a new server, in alternation.

The speed of a shared machine changes by a fifth within minutes, and near the capacity latency
multiplies the change, so a series alone does not tell whether a server slowed down. Alternating
blocks of requests, seconds apart, do.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
import numpy as np

from bench.load.errors import LoadError
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from tests.robustness.soak.drift import Interval, interval

if TYPE_CHECKING:  # it is only in the stub file
    from dragoman.v1.translation_pb2_grpc import TranslationServiceAsyncStub

PERCENTILES = (50.0, 90.0)
_NUM_USERS = 16
_BLOCK = 160  # requests: as many as a p90 takes, and some
_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Pair:
    """One block of requests with the same texts to each of the two servers.

    Attributes:
        aged, fresh: latency in seconds at each of `PERCENTILES`.
    """

    aged: Sequence[float]
    fresh: Sequence[float]


def growth(pairs: Sequence[Pair], percentile: float) -> Interval | None:
    """The fraction by which the aged server is slower, over all pairs; None for fewer than two."""
    place = PERCENTILES.index(percentile)
    ratios = interval([math.log(pair.aged[place] / pair.fresh[place]) for pair in pairs])
    if ratios is None:
        return None
    return Interval(*(math.expm1(value) for value in (ratios.mean, ratios.low, ratios.high)))


async def compare(aged: str, fresh: str, texts: Sequence[str], num_pairs: int) -> list[Pair]:
    """Load the two servers (HOST:PORT) in turn; the order changes from pair to pair.

    Raises:
        LoadError: a request fails.
    """
    pairs = []
    async with grpc.aio.insecure_channel(aged) as one, grpc.aio.insecure_channel(fresh) as other:
        stubs = TranslationServiceStub(one), TranslationServiceStub(other)
        for stub in stubs:  # a new server has to learn its speed
            await _block(stub, _texts_of(texts, 0))
        for number in range(num_pairs):
            block = _texts_of(texts, number + 1)
            found = {}
            for which in (0, 1) if number % 2 else (1, 0):
                found[which] = await _block(stubs[which], block)
            pairs.append(Pair(found[0], found[1]))
    return pairs


def _texts_of(texts: Sequence[str], block: int) -> list[str]:
    first = block * _BLOCK
    return [texts[number % len(texts)] for number in range(first, first + _BLOCK)]


async def _block(stub: TranslationServiceAsyncStub, texts: Sequence[str]) -> list[float]:
    """Latency at each of `PERCENTILES`; users wait for their answer before they ask again."""
    loop = asyncio.get_running_loop()
    remaining = iter(texts)
    latencies = []

    async def ask_on() -> None:
        for text in remaining:
            began = loop.time()
            await stub.Translate(pb.TranslateRequest(contents=[text]), timeout=_TIMEOUT_SECONDS)
            latencies.append(loop.time() - began)

    try:
        await asyncio.gather(*(ask_on() for _ in range(_NUM_USERS)))
    except grpc.aio.AioRpcError as exc:
        raise LoadError(f"a request failed with {exc.code().name}: {exc.details()}") from exc
    return [float(value) for value in np.percentile(latencies, PERCENTILES)]
