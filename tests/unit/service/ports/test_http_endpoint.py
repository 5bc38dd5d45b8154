import asyncio
import contextlib
import logging
import socket
import ssl
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPMessage
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from service.errors import StartupError
from service.fronts.http.transfers import HttpLimits
from service.observability.metrics import ServerMetrics
from service.ports.certificates import ServerTls, TlsFiles
from service.ports.metrics_port import MAX_CONNECTIONS, MetricsEndpoint, Probes
from tests.certificates import CertificateFolder

Ask = Callable[..., tuple[int, str, HTTPMessage]]


@pytest.fixture(scope="module")
def probes() -> Probes:
    return Probes(loop_seconds=0.05)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[MetricsEndpoint]:
    """One that is asked by the name of a proxy too."""
    registry = ServerMetrics().registry
    made = MetricsEndpoint(registry, Probes(), "127.0.0.1", 0, allowed_hosts=["proxy"])
    yield made
    made.close()


@pytest.fixture(scope="module")
def ask(probes: Probes) -> Iterator[Ask]:
    """Sends a request; status, text and headers of the answer."""
    endpoint = MetricsEndpoint(ServerMetrics().registry, probes, "127.0.0.1", 0)

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


def test_tiny_chunks_and_headers_are_refused_here_too(endpoint: MetricsEndpoint) -> None:
    chunked = b"POST /metrics HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    with connect(endpoint, chunked + b"1\r\n \r\n" * 43_000) as connection:
        assert received(connection).startswith(b"HTTP/1.1 405 ")  # the head came first
    with connect(endpoint, b"GET /livez HTTP/1.1\r\n" + b"a:\n" * 80_000 + b"\r\n") as connection:
        assert b"headers: more than 64, the limit" in received(connection)


class Broken:
    """A collector that fails."""

    def collect(self) -> Iterator[Metric]:
        raise ValueError("broken collector")


def connect(endpoint: MetricsEndpoint, sent: bytes = b"") -> socket.socket:
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
    endpoint = MetricsEndpoint(registry, Probes(), "127.0.0.1", 0, HttpLimits(head_seconds=0.0))
    starts = (b"", b"GET /met", b"GET /livez HTTP/1.1\r\nX: ")
    for start in starts:
        reset(connect(endpoint, start))
    for connection in [connect(endpoint, start) for start in starts]:
        assert b" 200 " not in received(connection)  # the deadline ends it
    endpoint.close()
    endpoint = MetricsEndpoint(registry, Probes(), "127.0.0.1", 0)
    assert b" 500 " in received(connect(endpoint, b"GET /metrics HTTP/1.0\r\n\r\n"))
    endpoint.close()
    assert capfd.readouterr().err == ""
    (entry,) = caplog.records
    assert entry.levelno == logging.ERROR
    assert "broken collector" in caplog.text


def test_a_request_has_a_deadline_however_often_a_byte_comes() -> None:
    endpoint = MetricsEndpoint(
        CollectorRegistry(), Probes(), "127.0.0.1", 0, HttpLimits(head_seconds=0.1)
    )
    dripping = connect(endpoint, b"GET /livez HTTP/1.1\r\nX: ")
    dripping.settimeout(0.02)
    answer = None
    while answer is None:
        try:
            answer = dripping.recv(1)
        except TimeoutError:
            with contextlib.suppress(ConnectionError):  # it has just been closed
                dripping.sendall(b"X")
        except ConnectionError:
            break
    assert not answer
    dripping.close()
    endpoint.close()


@pytest.mark.parametrize("is_tls", [False, True])
def test_idle_connections_give_way_to_a_scrape(tmp_path: Path, is_tls: bool) -> None:
    """Over TLS, those that never begin the handshake."""
    folder = CertificateFolder.made(tmp_path)
    metrics = ServerMetrics()
    tls = ServerTls(TlsFiles(folder.certificate, folder.key), metrics) if is_tls else None
    limits = HttpLimits(head_seconds=600.0)
    endpoint = MetricsEndpoint(metrics.registry, Probes(), "127.0.0.1", 0, limits, tls=tls)
    start = b"" if is_tls else b"GET /metrics HTTP/1.1\r\nX: "
    silent = [connect(endpoint, start) for _ in range(2 * MAX_CONNECTIONS)]
    scheme, context = "http", None
    if is_tls:
        scheme, context = "https", ssl.create_default_context(cafile=folder.ca)
    for _ in range(3):
        url = f"{scheme}://127.0.0.1:{endpoint.port}/metrics"
        with urllib.request.urlopen(url, context=context) as answer:
            assert b"dragoman_serving" in answer.read()
    assert received(silent[0]) == b""  # the first of them was closed
    silent[-1].setblocking(False)
    with pytest.raises(BlockingIOError):  # the last was not
        silent[-1].recv(1)
    for connection in silent:
        connection.close()
    endpoint.close()


def test_a_body_that_does_not_come_is_not_waited_for(endpoint: MetricsEndpoint) -> None:
    head = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n"
    with connect(endpoint, head) as connection:
        assert connection.recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *[(host, 200) for host in ("localhost:9464", "127.0.0.1", "[::1]:1", "192.0.2.1", "Proxy")],
        ("evil.example", 403),
        ("[::1]evil.example", 400),
    ],
)
def test_metrics_are_for_this_hosts_names_only(
    endpoint: MetricsEndpoint, host: str, status: int
) -> None:
    """A site's name may resolve to 127.0.0.1; its page could read the answer."""

    def answered(path: str) -> int:
        request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        return int(received(connect(endpoint, request.encode())).split()[1])

    assert answered("/metrics") == status
    assert answered("/readyz") == 503  # "starting": probes ask by any name


@pytest.mark.parametrize(
    "request_line_and_header",
    [b"GET /metrics?name[]=%ff HTTP/1.1", b"GET /metrics HTTP/1.1\r\nAccept: \xff"],
)
def test_what_is_no_utf_8_is_no_failure_of_the_server(
    endpoint: MetricsEndpoint, request_line_and_header: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    request = request_line_and_header + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert received(connect(endpoint, request)).split()[1] in (b"200", b"400")
    assert not caplog.records


def test_the_names_of_a_proxy_are_allowed_by_the_setting_for_http() -> None:
    registry = CollectorRegistry()
    with pytest.raises(StartupError, match="http_allowed_hosts"):
        MetricsEndpoint(registry, Probes(), "127.0.0.1", 0, allowed_hosts=["https://proxy"])


def test_a_port_in_use_is_a_start_up_error_that_names_the_flag() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StartupError, match=rf"127.0.0.1:{port}.*--metrics-port"):
            MetricsEndpoint(ServerMetrics().registry, Probes(), "127.0.0.1", port)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_it_listens_on_ipv6_too() -> None:
    endpoint = MetricsEndpoint(ServerMetrics().registry, Probes(), "::1", 0)
    with urllib.request.urlopen(f"http://[::1]:{endpoint.port}/livez") as answer:
        assert answer.status == 200
    endpoint.close()
