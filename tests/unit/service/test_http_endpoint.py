import asyncio
import contextlib
import logging
import socket
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPMessage

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from service.api.http_endpoint import MAX_CONNECTIONS, HttpEndpoint, Probes
from service.errors import StartupError
from service.observability.metrics import ServerMetrics

Ask = Callable[..., tuple[int, str, HTTPMessage]]


@pytest.fixture(scope="module")
def probes() -> Probes:
    return Probes(loop_seconds=0.05)


@pytest.fixture(scope="module")
def ask(probes: Probes) -> Iterator[Ask]:
    """Sends a request; status, text and headers of the answer."""
    endpoint = HttpEndpoint(ServerMetrics().registry, probes, "127.0.0.1", 0)

    def send(path: str, method: str = "GET") -> tuple[int, str, HTTPMessage]:
        url = f"http://127.0.0.1:{endpoint.port}{path}"
        try:
            answer = urllib.request.urlopen(urllib.request.Request(url, method=method))
        except urllib.error.HTTPError as refusal:
            answer = refusal
        with answer:
            return answer.status, answer.read().decode(), answer.headers

    yield send
    endpoint.close()


def test_metrics_are_at_their_own_path_only(ask: Ask) -> None:
    status, page, headers = ask("/metrics")
    assert (status, headers.get_content_type()) == (200, "text/plain")
    assert "dragoman_serving" in page
    for path in ("/", "/metric", "/metrics/", "/livez/x", "/favicon.ico"):
        status, text, _ = ask(path)
        assert (status, text) == (404, "there are /metrics, /livez and /readyz\n")


def test_probes_answer_to_get_and_head_only(ask: Ask) -> None:
    for path in ("/livez", "/readyz"):
        status, _, headers = ask(path, "POST")
        assert (status, headers["Allow"]) == (405, "GET, HEAD")
    assert ask("/livez", "HEAD")[:2] == (200, "")
    assert ask("/metrics", "POST")[0] == 405


def test_readiness_follows_the_server_and_says_why_not(ask: Ask, probes: Probes) -> None:
    assert ask("/readyz")[:2] == (503, "starting\n")
    assert ask("/livez")[:2] == (200, "ok\n")
    probes.set_ready()
    assert ask("/readyz")[:2] == (200, "ok\n")
    probes.set_not_ready("draining")
    assert ask("/readyz")[:2] == (503, "draining\n")
    assert ask("/livez")[:2] == (200, "ok\n")


def test_what_is_not_live_is_not_ready_either(ask: Ask, probes: Probes) -> None:
    probes.set_ready()
    probes.set_not_live("model m hangs")
    for path in ("/livez", "/readyz"):
        assert ask(path)[:2] == (503, "model m hangs\n")
    probes.set_not_live("")


def test_an_event_loop_that_does_not_respond_is_not_live(ask: Ask, probes: Probes) -> None:
    loop, go_on = asyncio.new_event_loop(), threading.Event()
    loop.call_soon(go_on.wait)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    probes.watch(loop)
    for path in ("/livez", "/readyz"):
        status, text, _ = ask(path)
        assert (status, "event loop has not responded" in text) == (503, True)
    go_on.set()
    # A machine under load may take longer to respond than this test's patience.
    while ask("/livez")[0] != 200:
        pass
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    assert ask("/livez")[:2] == (503, "stopped\n")


class Broken:
    """A collector that fails."""

    def collect(self) -> Iterator[Metric]:
        raise ValueError("broken collector")


def connect(endpoint: HttpEndpoint, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", endpoint.port))
    connection.sendall(sent)
    return connection


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def received(connection: socket.socket) -> bytes:
    """Everything up to the end of the connection."""
    with contextlib.suppress(ConnectionError), connection.makefile("rb") as reader:
        return reader.read()
    return b""


def test_a_failure_is_logged_and_a_connection_that_breaks_is_not(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Broken())
    endpoint = HttpEndpoint(registry, Probes(), "127.0.0.1", 0, request_seconds=0.0)
    starts = (b"", b"GET /met", b"GET /livez HTTP/1.1\r\nX: ")
    for start in starts:
        reset(connect(endpoint, start))
    for connection in [connect(endpoint, start) for start in starts]:
        assert b" 200 " not in received(connection)  # the deadline ends it
    endpoint.close()
    endpoint = HttpEndpoint(registry, Probes(), "127.0.0.1", 0)
    assert b" 500 " in received(connect(endpoint, b"GET /metrics HTTP/1.0\r\n\r\n"))
    endpoint.close()
    assert capfd.readouterr().err == ""
    (entry,) = caplog.records
    assert entry.levelno == logging.ERROR
    assert "broken collector" in caplog.text


def test_a_request_has_a_deadline_however_often_a_byte_comes() -> None:
    endpoint = HttpEndpoint(CollectorRegistry(), Probes(), "127.0.0.1", 0, request_seconds=0.1)
    dripping = connect(endpoint, b"GET /livez HTTP/1.1\r\nX: ")
    dripping.settimeout(0.02)
    answer = None
    while answer is None:
        try:
            answer = dripping.recv(1)
        except TimeoutError:
            dripping.sendall(b"X")
        except ConnectionError:
            break
    assert not answer
    dripping.close()
    endpoint.close()


def test_connections_beyond_the_bound_are_closed_at_once() -> None:
    endpoint = HttpEndpoint(CollectorRegistry(), Probes(), "127.0.0.1", 0, request_seconds=600.0)
    before = {*threading.enumerate()}  # of which some may end meanwhile
    inside = [connect(endpoint, b"GET /livez HTTP/1.1\r\nX: ") for _ in range(MAX_CONNECTIONS)]
    for _ in range(3):
        assert received(connect(endpoint)) == b""
    assert len({*threading.enumerate()} - before) == MAX_CONNECTIONS
    for connection in inside:
        reset(connection)
    while b" 200 " not in received(connect(endpoint, b"GET /livez HTTP/1.0\r\n\r\n")):
        pass  # until there is room again
    endpoint.close()


def test_a_port_in_use_is_a_start_up_error_that_names_the_flag() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StartupError, match=rf"127.0.0.1:{port}.*--metrics-port"):
            HttpEndpoint(ServerMetrics().registry, Probes(), "127.0.0.1", port)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_it_listens_on_ipv6_too() -> None:
    endpoint = HttpEndpoint(ServerMetrics().registry, Probes(), "::1", 0)
    with urllib.request.urlopen(f"http://[::1]:{endpoint.port}/livez") as answer:
        assert answer.status == 200
    endpoint.close()
