"""A larger model with the defaults on two cores: two lanes, in a process of its own.

A separate thread encodes texts. Even if requests are cancelled there, the others get the same
results as alone.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from dragoman.client import AsyncClient, PairScore, Translation
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from model.bundle.bundle import Bundle
from tests.factories import SENTENCES, tiny_bundle
from tests.integration.servers import (
    NO_HURRY,
    ServerProcess,
    needs_two_cores,
    server_process,
    streamed,
)

MAX_ROWS = 64
MODEL = "wide"

# Pairs that make sense and pairs that don't, four to a call.
PAIRS = list(itertools.permutations(SENTENCES, 2))
PAIR_GROUPS = [PAIRS[start : start + 4] for start in range(0, 16, 4)]

# Requests that are not waited for: more work than fits in the time of the others.
LONG = SENTENCES * 75
MANY_PAIRS = PAIRS * 18

IDLE = (
    "dragoman_requests_in_flight",
    "dragoman_rows_used",
    "dragoman_waiting_sentences",
    "dragoman_held_back_calls",
)


def various_texts(count: int) -> list[str]:
    """Texts of one or two sentences of several words."""
    chance = random.Random(3)
    words = " ".join(SENTENCES).replace(".", "").split()

    def sentence() -> str:
        return " ".join(chance.choices(words, k=chance.randint(2, 7))) + "."

    return [" ".join(sentence() for _ in range(chance.choice((1, 1, 2)))) for _ in range(count)]


TEXTS = various_texts(4)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A bundle with the smallest decoder that gets two lanes."""
    return tiny_bundle(
        tmp_path_factory.mktemp("bundles") / MODEL,
        name=MODEL,
        d_model=64,
        ffn_dim=23_500,
        num_encoder_layers=1,
        num_decoder_layers=4,
    )


@dataclass(frozen=True)
class Known:
    """The answer to each request alone.

    Attributes:
        translations: translations of `TEXTS`.
        scores: scores of `PAIR_GROUPS`.
    """

    translations: list[Translation]
    scores: list[list[PairScore]]

    @classmethod
    async def ask(cls, client: AsyncClient) -> Known:
        """Make the calls one after another."""
        return cls(
            [(await client.translate([text])).translations[0] for text in TEXTS],
            [(await client.score(pairs)).scores for pairs in PAIR_GROUPS],
        )

    def again(self, client: AsyncClient) -> list[Coroutine[Any, Any, None]]:
        """Make the same calls, and streams of the same texts; each checks its answer."""
        calls = [
            check(client, text, expected)
            for text, expected in zip(TEXTS, self.translations, strict=True)
            for check in (check_translation, check_stream)
        ]
        calls += [
            check_scores(client, pairs, expected)
            for pairs, expected in zip(PAIR_GROUPS, self.scores, strict=True)
        ]
        random.Random(4).shuffle(calls)
        return calls


async def check_translation(client: AsyncClient, text: str, expected: Translation) -> None:
    assert (await client.translate([text])).translations == [expected]


async def check_stream(client: AsyncClient, text: str, expected: Translation) -> None:
    found, end = await streamed(client, text)
    assert found == expected.text
    assert end.finish_reason is expected.finish_reason
    assert end.num_target_tokens == expected.num_target_tokens


async def check_scores(
    client: AsyncClient, pairs: list[tuple[str, str]], expected: list[PairScore]
) -> None:
    assert (await client.score(pairs)).scores == expected


async def running_calls(
    server: ServerProcess, channel: grpc.aio.Channel
) -> tuple[list[grpc.aio.Call], list[grpc.aio.Call]]:
    """Start scores and both kinds of translations, which take long.

    They have begun in both lanes. All scores are of one client, so that the first one is computed.
    """
    stub = TranslationServiceStub(channel)
    numbers = itertools.count()

    def metadata(client: str = "") -> tuple[tuple[str, str], ...]:
        name = f"cancelled-{next(numbers)}"
        return ("x-request-id", name), ("x-client-id", client or name)

    scored = await server.metric("dragoman_scored_translations_total")
    streams = [
        stub.StreamTranslate(pb.StreamTranslateRequest(content=" ".join(LONG)), metadata=metadata())
        for _ in range(3)
    ]
    batches = [
        stub.Translate(pb.TranslateRequest(contents=LONG), metadata=metadata()) for _ in range(4)
    ]
    pairs = [pb.ScorePair(source_text=one, translated_text=two) for one, two in MANY_PAIRS]
    scores = [
        stub.Score(pb.ScoreRequest(pairs=pairs), metadata=metadata("scores")) for _ in range(12)
    ]
    for stream in streams:
        await stream.read()
    # The last that were sent; then the others have come as well.
    while await server.metric("dragoman_requests_in_flight", method="Score") < len(scores):
        pass
    while await server.metric("dragoman_scored_translations_total") == scored:
        pass
    while not await num_wide_steps(server):
        pass
    return [*scores], [*streams, *batches]


async def num_wide_steps(server: ServerProcess) -> float:
    """The number of steps of two lanes at a time: together they had more rows than one lane has."""
    narrow = await server.metric("dragoman_step_rows_bucket", le=f"{MAX_ROWS / 2}")
    return await server.metric("dragoman_step_rows_count") - narrow


@needs_two_cores
async def test_in_two_lanes_each_gets_what_it_gets_alone_whoever_else_goes(bundle: Bundle) -> None:
    options = ("--threads", "2", "--max-rows", str(MAX_ROWS), *NO_HURRY)
    async with (
        server_process("--model", bundle.path, *options) as server,
        AsyncClient(server.address, timeout=250, client_id="stays") as client,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        (loaded,) = (entry for entry in server.log if entry["message"] == "loaded")
        assert (loaded["lanes"], loaded["rows"]) == (2, MAX_ROWS)
        assert loaded["pid"] != server.process.pid
        known = await Known.ask(client)
        assert len({translation.text for translation in known.translations}) == len(TEXTS)
        scores, translations = await running_calls(server, channel)
        # Each answer is the moment for others to go: among them the score that is computed now.
        leaving, gone = (iter(scores), iter(translations)), 0
        for answered in asyncio.as_completed(known.again(client)):
            await answered
            for leaver in filter(None, (next(calls, None) for calls in leaving)):
                assert leaver.cancel()
                gone += 1
        assert gone == len(scores) + len(translations)
        assert {await call.code() for call in (*scores, *translations)} == {
            grpc.StatusCode.CANCELLED
        }
        for gauge in IDLE:
            while await server.metric(gauge):
                pass

        server.terminate()
        assert await server.end() == 0

    assert server.log[-1]["message"] == "stopped"
    assert {entry["level"] for entry in server.log} == {"info"}
    calls = [entry for entry in server.log if entry["message"] == "call"]
    codes = {entry["request_id"]: entry["code"] for entry in calls}
    cancelled = [codes.pop(f"cancelled-{number}") for number in range(gone)]
    assert set(cancelled) == {"CANCELLED"}
    assert set(codes.values()) == {"OK"}
