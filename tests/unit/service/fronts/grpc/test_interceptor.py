"""The interceptor on a real server, with a service that has scripted answers."""

import asyncio
import contextlib
import copy
import gc
import json
import logging
import re
import time
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from prometheus_client import generate_latest

from dragoman.client import AsyncClient, TranslationError
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1 import translation_pb2_grpc
from service import errors
from service.calls.call_context import current_call
from service.calls.call_tracker import CallTracker, RunningCall
from service.calls.request_parsing import RequestParser
from service.fronts.grpc.interceptor import Interceptor
from service.observability.logs import JsonFormatter
from service.observability.metrics import ServerMetrics
from tests.client_errors import error_of, refused
from tests.unit.service.fronts.grpc.scripted_service import SERVICE, Setup, raising, serving


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    async with serving(max_calls=4) as made:
        yield made


async def test_an_error_that_has_no_status_leaks_nothing() -> None:
    class Unprintable(errors.NotFoundError):
        def __str__(self) -> str:
            raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")

    tracker = CallTracker(ServerMetrics(), RequestParser(SERVICE, {}), 4)
    for _ in range(5):
        running = RunningCall(tracker, "Translate", _NoContext())
        with pytest.raises(UnicodeEncodeError):
            _fail(running, tracker.bytes.capacity // 2, Unprintable(""))
    assert (tracker.calls.num_taken, tracker.bytes.num_taken) == (0, 0)
    count = tracker.metrics.registry.get_sample_value
    assert count("dragoman_requests_total", {"method": "Translate", "code": "NOT_FOUND"}) == 5
    assert count("dragoman_requests_in_flight", {"method": "Translate"}) == 0


def _fail(running: RunningCall, num_bytes: int, error: Exception) -> None:
    with running:
        running.take_quotas(num_bytes)
        raise error


class _NoContext:
    def invocation_metadata(self) -> None:
        return None

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def time_remaining(self) -> None:
        return None


class _Context(_NoContext):
    """Of a call of a client with this name."""

    def __init__(self, client: str) -> None:
        self._client = client

    def invocation_metadata(self) -> Any:
        return (("x-client-id", self._client),)

    def set_trailing_metadata(self, metadata: object) -> None:
        pass


class _Iterations:
    """The event loop's iterations.

    Attributes:
        with_work: those in which work was done.
    """

    def __init__(self) -> None:
        self.with_work: set[int] = set()
        self._number = 0
        self._count()

    def _count(self) -> None:
        self._number += 1
        asyncio.get_running_loop().call_soon(self._count)

    def work(self) -> None:
        """Work for longer than an iteration should take."""
        self.with_work.add(self._number)
        ends = time.perf_counter() + 0.004
        while time.perf_counter() < ends:
            pass


def _handler(answer: Any, parser: RequestParser) -> Any:
    original: Any = grpc.unary_unary_rpc_method_handler(
        answer, response_serializer=pb.TranslateResponse.SerializeToString
    )
    tracker = CallTracker(ServerMetrics(), parser, 1000)
    return Interceptor(tracker).wrapped(SERVICE, "Translate", original).unary_unary


async def test_calls_that_come_at_once_are_answered_in_turns_of_their_clients() -> None:
    order: list[str] = []
    iterations = _Iterations()

    async def answer(request: Any, context: _Context) -> Any:
        order.append(current_call().client)
        iterations.work()
        return pb.TranslateResponse()

    handler = _handler(answer, RequestParser(SERVICE, {}))
    clients = ["many"] * 20 + ["one"]
    await asyncio.gather(*(handler(b"", _Context(client)) for client in clients))
    assert order.index("id:one") <= 2
    assert len(iterations.with_work) == len(clients)


async def test_large_requests_that_come_at_once_are_parsed_in_turns() -> None:
    iterations = _Iterations()

    class SlowParser(RequestParser):
        def parse(self, method: str, data: bytes) -> Any:
            iterations.work()
            return super().parse(method, data)

    async def answer(request: Any, context: _Context) -> Any:
        return pb.TranslateResponse()

    handler = _handler(answer, SlowParser(SERVICE, {}))
    data = pb.TranslateRequest(contents=["A dog. " * 4000]).SerializeToString()
    await asyncio.gather(*(handler(data, _Context("many")) for _ in range(20)))
    assert len(iterations.with_work) == 20


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidArgumentError("contents", "too many"), grpc.StatusCode.INVALID_ARGUMENT),
        (errors.NotFoundError("nothing"), grpc.StatusCode.NOT_FOUND),
        (errors.FailedPreconditionError("too old"), grpc.StatusCode.FAILED_PRECONDITION),
        (errors.ResourceExhaustedError("full", 2.5), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (errors.DeadlineExceededError("late"), grpc.StatusCode.DEADLINE_EXCEEDED),
        (errors.RequestCancelledError("gone"), grpc.StatusCode.CANCELLED),
        (errors.UnavailableError("draining"), grpc.StatusCode.UNAVAILABLE),
        (
            errors.QuotaError("all", 60.0, errors.QuotaKind.REQUESTS),
            grpc.StatusCode.RESOURCE_EXHAUSTED,
        ),
        (errors.UnauthenticatedError("no key"), grpc.StatusCode.UNAUTHENTICATED),
        (errors.PermissionDeniedError("not this model"), grpc.StatusCode.PERMISSION_DENIED),
        (errors.KeysUnavailableError("no keys"), grpc.StatusCode.UNAVAILABLE),
        (errors.InternalError("secret"), grpc.StatusCode.INTERNAL),
        (RuntimeError("secret"), grpc.StatusCode.INTERNAL),
    ],
)
async def test_every_error_has_its_code_in_both_kinds_of_call(
    setup: Setup, error: Exception, code: grpc.StatusCode
) -> None:
    setup.service.behaviour = raising(error)
    unary = await error_of(setup.client.translate(["a"], request_id="id-1"))
    stream = setup.client.stream("a", request_id="id-1")
    assert await anext(stream) == "first"
    streaming = await error_of(anext(stream))
    for caught in (unary, streaming):
        assert caught.code is code
        assert caught.request_id == "id-1"
        assert "secret" not in caught.message
    await setup.until_idle()
    await setup.until_idle("StreamTranslate")
    assert setup.count(code.name) >= 1
    assert setup.count(code.name, "StreamTranslate") == 1


async def test_details_say_what_to_do(setup: Setup) -> None:
    setup.service.behaviour = raising(errors.InvalidArgumentError("contents", "1,025 texts"))
    error = await error_of(setup.client.translate(["a"]))
    assert (error.field, error.description) == ("contents", "1,025 texts")
    setup.service.behaviour = raising(errors.ResourceExhaustedError("full", 2.5))
    assert (await error_of(setup.client.translate(["a"]))).retry_after_seconds == 2.5


async def test_a_message_too_long_for_a_header_is_shortened(setup: Setup) -> None:
    setup.service.behaviour = raising(errors.InvalidArgumentError("ü" * 50_000, "ß" * 50_000))
    error = await refused(setup.client.translate(["a"]), "INVALID_ARGUMENT")
    assert error.field.startswith("ü")


async def test_a_defect_is_logged_with_its_stack_and_request_id_and_not_shown(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    async def defect() -> None:
        raise ZeroDivisionError("secret")

    setup.service.behaviour = defect
    error = await error_of(
        setup.client.translate(["a"], request_id="my-id"), r"internal error.*my-id"
    )
    assert "secret" not in str(error)
    record = next(record for record in caplog.records if record.exc_info)
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


async def test_every_call_is_logged_as_json_with_its_request_id(setup: Setup) -> None:
    lines: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler = Collect()
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("dragoman.access")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        await setup.client.translate(["a text"], request_id="my-id")
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    (line,) = lines
    entry = json.loads(line)
    assert (entry["request_id"], entry["method"], entry["code"]) == ("my-id", "Translate", "OK")
    assert entry["seconds"] > 0
    assert "a text" not in line


async def test_a_call_s_line_names_client_peer_and_reason_and_metrics_no_address(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    for error in (
        None,
        errors.NotFoundError("private"),
        errors.ResourceExhaustedError("private", reason="overload"),
        ValueError("private"),
    ):

        async def behaviour(error: Exception | None = error) -> None:
            if error is not None:
                raise error

        setup.service.behaviour = behaviour
        with contextlib.suppress(TranslationError):
            await setup.client.translate(["A dog."])
    async with AsyncClient(setup.address, client_id="a-client", timeout=60) as named:
        await named.list_models()
    lines = [vars(record) for record in caplog.records if record.message == "call"]
    assert [line.get("reason") for line in lines] == [
        *(None, "NotFoundError", "overload", "ValueError", None)
    ]
    assert [line["client"] for line in lines] == [*["ipv4:127.0.0.1"] * 4, "id:a-client"]
    assert all(re.fullmatch(r"ipv4:127\.0\.0\.1:\d+", line["peer"]) for line in lines)
    page = generate_latest(setup.metrics.registry).decode()
    assert 'dragoman_client_requests_total{client="id:a-client",code="OK"} 1.0' in page
    assert 'dragoman_client_requests_total{client="address",code="NOT_FOUND"} 1.0' in page
    assert "127.0.0.1" not in page


@pytest.mark.parametrize("bad", ["", "x" * 129, "two words", "line%break", "ä"])
async def test_a_request_id_unfit_for_a_log_is_replaced(setup: Setup, bad: str) -> None:
    async with grpc.aio.insecure_channel(setup.address) as channel:
        stub = translation_pb2_grpc.TranslationServiceStub(channel)
        metadata = (("x-request-id", bad),) if bad.isascii() else ()
        call = stub.Translate(pb.TranslateRequest(), metadata=metadata)
        await call
        (value,) = [value for key, value in await call.trailing_metadata() if key == "x-request-id"]
    assert value != bad
    assert len(value) == 32


async def test_two_calls_without_an_id_get_different_ones(setup: Setup) -> None:
    ids = {(await setup.client.translate(["a"])).request_id for _ in range(2)}
    assert len(ids) == 2
    assert "" not in ids


async def test_a_cancelled_call_is_counted_as_such(setup: Setup) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    setup.service.behaviour = hang
    call = asyncio.ensure_future(setup.client.translate(["a"]))
    await started.wait()
    assert setup.in_flight() == 1
    call.cancel()
    await ended.wait()
    while not setup.count("CANCELLED"):  # the interceptor ends in later iterations of the loop
        await asyncio.sleep(0)
    assert setup.in_flight() == 0


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidArgumentError("contents", "too many"),
        errors.ResourceExhaustedError("full"),
        RuntimeError("a defect"),
        None,  # the client goes away
    ],
)
@pytest.mark.parametrize("method", ["Translate", "StreamTranslate"])
async def test_a_call_that_fails_leaves_nothing_of_its_request_in_memory(
    setup: Setup, error: Exception | None, method: str
) -> None:
    size, num_calls = 500_000, 8
    arrived = asyncio.Event()

    async def hang() -> None:
        arrived.set()
        await asyncio.Event().wait()

    async with grpc.aio.insecure_channel(setup.address) as channel:
        stub = translation_pb2_grpc.TranslationServiceStub(channel)

        async def fail() -> None:
            arrived.clear()
            # Raised anew each time, as errors are: `raise` keeps the frames of the times before.
            setup.service.behaviour = raising(copy.copy(error)) if error else hang
            call: Any
            if method == "Translate":
                call = stub.Translate(pb.TranslateRequest(contents=["a" * size]))
            else:
                call = stub.StreamTranslate(pb.StreamTranslateRequest(content="a" * size))
            if error is None:
                await arrived.wait()
                call.cancel()
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
                await call if method == "Translate" else [_ async for _ in call]
            await setup.until_idle(method)

        await fail()  # whatever is made once
        gc.collect()
        gc.disable()  # what the collector has to find may be found late
        logging.disable()  # pytest keeps the records, and with them their tracebacks
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(num_calls):
                await fail()
            kept = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
            logging.disable(logging.NOTSET)
            gc.enable()
    # Two for the last call, which gRPC may still be about to let go of.
    assert kept < 2.5 * size


async def test_causes_that_go_in_circles_end_a_call_like_others(setup: Setup) -> None:
    first, second = errors.UnavailableError("first"), ValueError("second")
    second.__cause__ = first
    first.__context__ = second
    setup.service.behaviour = raising(first)
    with pytest.raises(TranslationError, match="first"):
        await setup.client.translate(["a"], timeout=60.0)


async def test_what_is_no_exception_is_not_counted_as_an_answer(setup: Setup) -> None:
    class PanicError(BaseException):  # as libraries in Rust raise
        pass

    async def behaviour() -> None:
        raise PanicError

    setup.service.behaviour = behaviour
    with pytest.raises(TranslationError):
        await setup.client.translate(["a"], timeout=0.5)
    await setup.until_idle()
    assert setup.count("OK") == 0
