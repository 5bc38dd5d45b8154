"""Servers that share a job's texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from cli.batch.job import Result
from cli.batch.pool import Pool, ServersAwayError
from dragoman.client import TranslationError
from tests.fake_servers import FakeServer, failure

TEXTS = [f"text {index}" for index in range(600)]


def expected(texts: Sequence[str]) -> list[Result]:
    return [Result(f"[{text}]") for text in texts]


def pool(*servers: FakeServer, give_up_seconds: float = 60.0) -> Pool:
    return Pool({f"s{i}": server for i, server in enumerate(servers)}, {}, give_up_seconds)


async def test_equal_texts_are_translated_once() -> None:
    server = FakeServer()
    async with pool(server) as made:
        texts = [*TEXTS, *TEXTS[:50], "", " "]
        assert await made.translate(texts) == [*expected(texts[:-2]), Result(""), Result(" ")]
        assert await made.translate(TEXTS) == expected(TEXTS)
    assert server.translated == Counter(TEXTS)


async def test_servers_share_the_calls() -> None:
    servers = FakeServer(), FakeServer()
    async with pool(*servers) as made:
        assert await made.translate(TEXTS) == expected(TEXTS)
    assert all(server.translated for server in servers)
    assert servers[0].translated + servers[1].translated == Counter(TEXTS)


@pytest.mark.parametrize("code", ["UNAVAILABLE", "CANCELLED", "RESOURCE_EXHAUSTED"])
async def test_another_server_takes_what_one_can_not(code: str) -> None:
    away = FakeServer(lambda texts: failure(code, retry_after_seconds=0.01))
    server = FakeServer()
    async with pool(away, server) as made:
        assert await made.translate(TEXTS) == expected(TEXTS)
    assert server.translated == Counter(TEXTS)


@pytest.mark.parametrize(
    ("code", "about"),
    [
        ("INVALID_ARGUMENT", {"field": "contents[3]"}),
        ("INTERNAL", {"retry_after_seconds": None}),
        ("RESOURCE_EXHAUSTED", {}),  # larger than gRPC allows
    ],
)
async def test_a_text_that_fails_takes_no_other_with_it(code: str, about: dict[str, str]) -> None:
    def fails(texts: Sequence[str]) -> TranslationError | None:
        return failure(code, **about) if "text 7" in texts else None

    async with pool(FakeServer(fails)) as made:
        results = await made.translate(TEXTS)
    assert results[7] == Result(None, "for the test")
    assert results[:7] + results[8:] == expected(TEXTS[:7] + TEXTS[8:])


@pytest.mark.parametrize("code", ["UNAUTHENTICATED", "NOT_FOUND", "PERMISSION_DENIED"])
async def test_a_refused_job_ends(code: str) -> None:
    async with pool(FakeServer(lambda texts: failure(code))) as made:
        for _ in range(2):
            with pytest.raises(TranslationError, match=code):
                await made.translate(TEXTS)


async def test_a_defect_ends_the_job() -> None:
    def fails(texts: Sequence[str]) -> TranslationError | None:
        raise ValueError("a defect")

    async with pool(FakeServer(fails)) as made:
        with pytest.raises(ValueError, match="a defect"):
            await made.translate(TEXTS)


async def test_a_job_ends_when_no_server_answers_for_long() -> None:
    server = FakeServer(lambda texts: failure("UNAVAILABLE"))
    async with pool(server, give_up_seconds=0.0) as made:
        with pytest.raises(ServersAwayError, match="no answer from s0"):
            await made.translate(TEXTS)


async def test_warnings_come_with_the_results() -> None:
    server = FakeServer(warns=True)
    async with pool(server) as made:
        [result] = await made.translate(["a"])
    assert result.warnings == ({"kind": "missing", "text": "a", "sentence": "a"},)
