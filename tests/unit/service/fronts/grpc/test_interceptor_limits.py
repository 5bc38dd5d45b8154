"""Limits and deadlines of calls over gRPC."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from dragoman.client import AsyncClient, TranslationBatch, TranslationError
from service import errors
from service.calls.call_context import current_call
from service.calls.call_tracker import CallTracker, RunningCall
from service.calls.request_parsing import RequestParser
from service.observability.metrics import ServerMetrics
from tests.client_errors import refused, status_error_of
from tests.unit.service.fronts.grpc.scripted_service import SERVICE, Held, Setup, raising, serving


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    async with serving(max_calls=4) as made:
        yield made


class TimedContext:
    """The context of a call with a timeout of `seconds`."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def peer(self) -> str:
        return "ipv4:127.0.0.1:50000"

    def time_remaining(self) -> float | None:
        return self.seconds


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), errors.RequestCancelledError("the client disconnected")]
)
@pytest.mark.parametrize(
    ("seconds", "elapsed", "code"),
    [
        (1.0, 1.5, "DEADLINE_EXCEEDED"),
        (0.0, 0.0, "DEADLINE_EXCEEDED"),
        (1.0, 0.98, "DEADLINE_EXCEEDED"),
        (1.0, 0.5, "CANCELLED"),
        # The client's time began when it sent the call, which was on its way for a second.
        (20.0, 19.0, "DEADLINE_EXCEEDED"),
        (20.0, 15.0, "CANCELLED"),
        (300.0, 290.0, "CANCELLED"),
        (None, 1000.0, "CANCELLED"),
    ],
)
async def test_a_call_that_is_ended_has_expired_once_its_deadline_has_passed(
    error: BaseException, seconds: float | None, elapsed: float, code: str
) -> None:
    now = 100.0
    metrics = ServerMetrics()
    tracker = CallTracker(metrics, RequestParser(SERVICE, {}), 4, clock=lambda: now)
    running = RunningCall(tracker, "Translate", TimedContext(seconds))
    with contextlib.suppress(asyncio.CancelledError), running:
        now += elapsed
        raise error
    assert running.code.name == code
    labels = {"method": "Translate", "code": code}
    assert metrics.registry.get_sample_value("dragoman_requests_total", labels) == 1


async def test_a_wall_clock_that_is_set_changes_no_deadline() -> None:
    """gRPC computes the remaining time by the wall clock."""
    context = TimedContext(10.0)
    tracker = CallTracker(ServerMetrics(), RequestParser(SERVICE, {}), 4, clock=lambda: 100.0)
    running = RunningCall(tracker, "Translate", context)
    with running:
        for changed in (0.0, 5000.0):
            context.seconds = changed
            assert current_call().deadline == 110.0
            assert current_call().seconds_left == 10.0


async def test_an_expired_call_ends(setup: Setup) -> None:
    ended = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await setup.client.list_models()  # so that the call's time is not spent on the connection
    setup.service.behaviour = hang
    await refused(setup.client.translate(["a"], timeout=0.5), "DEADLINE_EXCEEDED")
    await ended.wait()
    await setup.until_idle()
    # The client's clock and the server's run out at nearly the same time, in either order.
    assert setup.count("DEADLINE_EXCEEDED") + setup.count("CANCELLED") == 1


async def test_messages_of_calls_in_progress_have_a_limit_that_leaves_room_for_others() -> None:
    text = "a" * 1_000_000
    async with serving(max_calls=100, max_message_bytes=1_000_100) as served:
        served.service.behaviour = held = Held()
        many = AsyncClient(served.address, client_id="many", timeout=60, patient=False)
        few = AsyncClient(served.address, client_id="few", timeout=60, patient=False)
        async with many, few:
            calls = []
            for _ in range(14):
                calls.append(asyncio.ensure_future(many.translate([text])))
                await held.arrived.acquire()
            error = await refused(
                many.translate([text]), "RESOURCE_EXHAUSTED", r"bytes of at most 16,001,600"
            )
            assert error.retry_after_seconds is not None
            calls.append(asyncio.ensure_future(few.translate([text])))
            await held.arrived.acquire()
            held.release.set()
            assert len(await asyncio.gather(*calls)) == 15
            await many.translate([text])


async def test_undecodable_messages_are_the_client_s_error_and_do_not_flood_the_log(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    num_calls = 50
    async with grpc.aio.insecure_channel(setup.address) as channel:
        for method in ("Translate", "StreamTranslate"):
            kind = channel.unary_unary if method == "Translate" else channel.unary_stream
            send: Any = kind(f"/{SERVICE}/{method}")
            for _ in range(num_calls):
                call = send(b"\xff" * 100)
                error = await status_error_of(call if method == "Translate" else call.read())
                assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
                assert f"not a dragoman.v1.{method}Request" in (error.details() or "")
    assert setup.count("INVALID_ARGUMENT") == num_calls
    assert setup.count("INVALID_ARGUMENT", "StreamTranslate") == num_calls
    # At most one a second, and a hundred calls take less than ten.
    assert 1 <= len(caplog.records) <= 10
    assert all(record.levelno == logging.INFO for record in caplog.records)
    assert all(record.exc_info is None for record in caplog.records)


async def test_calls_beyond_the_limit_are_refused_and_the_others_answered(setup: Setup) -> None:
    setup.service.behaviour = held = Held()
    calls = [asyncio.ensure_future(setup.client.translate(["a"])) for _ in range(4)]
    for _ in range(4):
        await held.arrived.acquire()
    error = await refused(
        setup.client.translate(["a"]), "RESOURCE_EXHAUSTED", "4 calls are in progress"
    )
    assert error.retry_after_seconds is not None
    held.release.set()
    assert len(await asyncio.gather(*calls)) == 4
    assert setup.count("OK") == 4
    num_refused = setup.metrics.registry.get_sample_value("dragoman_requests_refused_total")
    assert num_refused == setup.count("RESOURCE_EXHAUSTED") > 0


async def test_one_client_s_calls_leave_places_for_others() -> None:
    def named(name: str) -> AsyncClient:
        return AsyncClient(served.address, client_id=name, timeout=60, patient=False)

    async def is_refused(client: AsyncClient) -> None:
        await refused(client.translate(["a"]), "RESOURCE_EXHAUSTED", "calls are in progress")

    async with serving(max_calls=16) as served, named("many") as many, named("few") as few:
        served.service.behaviour = held = Held()

        async def call(client: AsyncClient) -> asyncio.Future[TranslationBatch]:
            begun = asyncio.ensure_future(client.translate(["a"]))
            await held.arrived.acquire()
            return begun

        # The last two of sixteen places are for those who hold no more than that.
        calls = [await call(many) for _ in range(14)]
        await is_refused(many)
        await is_refused(many)
        assert await many.list_models() == []  # ends at once, and counts for no client
        calls += [await call(few), await call(served.client)]
        for full in (many, few, served.client):
            await is_refused(full)
        with pytest.raises(TranslationError, match="16 calls are in progress"):
            await many.list_models()
        held.release.set()
        await asyncio.gather(*calls)
        await served.until_idle()
        await asyncio.gather(*(many.translate(["a"]) for _ in range(14)))
        assert served.count("OK") == 30
        assert served.count("RESOURCE_EXHAUSTED") == 5


async def test_unavailable_is_tried_again_until_it_works(setup: Setup) -> None:
    failures = [errors.UnavailableError("not yet"), errors.UnavailableError("not yet")]

    async def works_the_third_time() -> None:
        if failures:
            raise failures.pop()

    setup.service.behaviour = works_the_third_time
    await setup.client.translate(["a"])
    assert setup.count("UNAVAILABLE") == 2
    assert setup.count("OK") == 1


async def test_nothing_else_is_tried_again_by_the_channel(setup: Setup) -> None:
    setup.service.behaviour = raising(errors.ResourceExhaustedError("full"))
    with pytest.raises(TranslationError):
        await setup.client.translate(["a"])
    await setup.until_idle()
    assert setup.count("RESOURCE_EXHAUSTED") == 1
