"""Downloads from a real server on loopback, and from a directory."""

import contextlib
import itertools
import random
import socketserver
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from export.errors import ExportError
from export.store.download import download
from export.store.mirror import HttpMirror, mirror_of
from tests.mirrors import MirrorServer, serving

CONTENT = random.Random(0).randbytes(700_000)  # several chunks
MOST = 10**6


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MirrorServer]:
    (tmp_path / "mirror" / "models").mkdir(parents=True)
    (tmp_path / "mirror" / "models" / "a.bin").write_bytes(CONTENT)
    with serving(tmp_path / "mirror") as made:
        yield made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here" / "a.bin"


def get(server: MirrorServer, file: Path, most: int = MOST) -> list[float]:
    """Download the file; the waits between attempts."""
    waits: list[float] = []
    mirror = mirror_of(server.url)
    download(mirror, "models/a.bin", file, most, lambda *_: None, waits.append)
    return waits


def test_whole_with_progress(server: MirrorServer, file: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    download(mirror_of(server.url), "models/a.bin", file, MOST, lambda *it: seen.append(it))
    assert file.read_bytes() == CONTENT
    assert seen[-1] == ("a.bin", len(CONTENT), len(CONTENT))
    assert len(seen) > 1
    assert [path.name for path in file.parent.iterdir()] == ["a.bin"]


def test_what_is_there_is_not_asked_for(server: MirrorServer, file: Path) -> None:
    file.write_bytes(b"x")
    get(server, file)
    assert file.read_bytes() == b"x"
    assert server.ranges == {}


def test_goes_on_after_broken_connections(server: MirrorServer, file: Path) -> None:
    server.cuts["a.bin"] = [300_000, 0, 100_000]
    assert len(get(server, file)) == 3
    assert file.read_bytes() == CONTENT
    first, *later = server.asked("a.bin")
    assert first is None
    # All that arrived is kept.
    assert later == ["bytes=300000-", "bytes=300000-", "bytes=400000-"]


def test_attempts_count_anew_whenever_one_brings_more(server: MirrorServer, file: Path) -> None:
    """A line that drops every so often is no reason to give up."""
    server.cuts["a.bin"] = [50_000] * 12
    assert get(server, file) == [0.5] * 12
    assert file.read_bytes() == CONTENT


def test_attempts_that_bring_little_end_by_the_time_they_take(
    server: MirrorServer, file: Path
) -> None:
    server.cuts["a.bin"] = [1] * 100
    waits: list[float] = []
    with pytest.raises(ExportError, match=r"a\.bin is too slow: 31 bytes arrived in 310 s"):
        download(
            mirror_of(server.url),
            "models/a.bin",
            file,
            MOST,
            lambda *_: None,
            waits.append,
            lambda: 20 * sum(waits),
        )
    get(server, file)
    assert file.read_bytes() == CONTENT
    assert server.asked("a.bin")[31] == "bytes=31-"


def test_a_mirror_that_drips_is_given_up_and_goes_on_later(
    server: MirrorServer, file: Path
) -> None:
    """The client sees each byte as it arrives: the server waits for that before the next one."""
    server.drips = 50
    clock = itertools.count(0.0, 10.0)
    seen: list[int] = []

    def on_bytes(name: str, done: int, total: int) -> None:
        seen.append(done)
        server.arrived.set()

    with pytest.raises(
        ExportError, match=r"a\.bin is too slow: \d+ bytes arrived in 310 s"
    ) as error:
        download(
            mirror_of(server.url),
            "models/a.bin",
            file,
            MOST,
            on_bytes,
            clock=lambda: next(clock),
        )
    assert "16,384 a second are the least; what did is kept" in str(error.value)
    assert seen == list(range(1, 31))
    server.drips = 0
    get(server, file)
    assert file.read_bytes() == CONTENT
    assert server.asked("a.bin")[-1] == "bytes=30-"


def test_headers_that_drip_are_given_up(file: Path) -> None:
    """Each byte comes within the limit of a read."""
    with dripping_headers() as port:
        mirror = HttpMirror(f"http://127.0.0.1:{port}", opening_seconds=0.2)
        with pytest.raises(ExportError, match=r"no answer in 0\.2 s"):
            download(mirror, "a.bin", file, MOST, lambda *_: None, lambda _: None)


@contextlib.contextmanager
def dripping_headers() -> Iterator[int]:
    """The port of a server whose answers never begin."""
    end = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(2**16)
            self.request.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            with contextlib.suppress(OSError):
                while not end.wait(0.02):
                    self.request.sendall(b"x")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            end.set()
            server.shutdown()
            thread.join()


def test_goes_on_in_the_next_command(server: MirrorServer, file: Path) -> None:
    """A download that is interrupted, by Ctrl-C say, keeps what arrived."""

    def interrupt(name: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(mirror_of(server.url), "models/a.bin", file, MOST, interrupt)
    kept = file.with_name("a.bin.part").stat().st_size
    assert 0 < kept < len(CONTENT)
    assert not file.exists()
    get(server, file)
    assert file.read_bytes() == CONTENT
    assert server.asked("a.bin")[1:] == [f"bytes={kept}-"]


@pytest.mark.parametrize("ignores_versions", [False, True])
def test_parts_of_two_versions_are_not_joined(
    server: MirrorServer, file: Path, ignores_versions: bool
) -> None:
    """Some servers give a part of any version."""
    server.ignores_versions = ignores_versions
    (server.directory / "models" / "a.bin").write_bytes(CONTENT[::-1])
    server.cuts["a.bin"] = [300_000, *[0] * 6]
    with pytest.raises(ExportError, match=r"a\.bin did not arrive: the last 6 attempts brought"):
        get(server, file)
    (server.directory / "models" / "a.bin").write_bytes(CONTENT)
    get(server, file)
    assert file.read_bytes() == CONTENT


def test_a_length_of_thousands_of_digits_is_none(server: MirrorServer, file: Path) -> None:
    server.length = "9" * 5000
    get(server, file)
    assert file.read_bytes() == CONTENT


def test_a_part_longer_than_the_file_begins_anew(server: MirrorServer, file: Path) -> None:
    server.cuts["a.bin"] = [0] * 6
    with pytest.raises(ExportError):
        get(server, file)
    file.with_name("a.bin.part").write_bytes(CONTENT + b"more")
    get(server, file)
    assert file.read_bytes() == CONTENT


def test_a_busy_server_is_asked_again_with_growing_waits(server: MirrorServer, file: Path) -> None:
    server.statuses["a.bin"] = [503, 429, 500]
    assert get(server, file) == [0.5, 1.0, 2.0]
    assert file.read_bytes() == CONTENT


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_missing_file_is_not_asked_for_again(
    server: MirrorServer, file: Path, status: int
) -> None:
    server.statuses["a.bin"] = [status]
    with pytest.raises(ExportError, match=rf"{server.url}/models/a\.bin: .* {status} "):
        get(server, file)
    assert len(server.asked("a.bin")) == 1
    assert not list(file.parent.iterdir())


def test_a_server_that_is_not_there(file: Path) -> None:
    with pytest.raises(ExportError, match=r"the last 6 attempts .*\(.*refused"):
        download(mirror_of("http://127.0.0.1:1"), "a", file, MOST, lambda *_: None, lambda _: None)


def test_tls_is_checked_and_not_left(
    server: MirrorServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with serving(server.directory, context) as secure:
        with pytest.raises(ExportError, match=r"models/a\.bin: .*CERTIFICATE_VERIFY_FAILED"):
            get(secure, file)  # at the first attempt
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(file.with_name("ca.pem")))
        authority.cert_pem.write_to_path(file.with_name("ca.pem"))
        secure.redirects["/models/a.bin"] = f"{server.url}/models/a.bin"
        with pytest.raises(ExportError, match=r"a\.bin leads to an address without TLS"):
            get(secure, file)
        # Back to TLS: whoever is in between could have said where.
        server.redirects["/models/a.bin"] = f"{secure.url}/models/b.bin"
        (server.directory / "models" / "b.bin").write_bytes(CONTENT)
        with pytest.raises(ExportError, match=r"a\.bin leads to an address without TLS"):
            get(secure, file)
        for other in ("file:///etc/passwd", "ftp://127.0.0.1/models/a.bin"):
            secure.redirects["/models/a.bin"] = other
            asked = len(secure.asked("a.bin"))
            with pytest.raises(ExportError, match=r"a\.bin: No connection adapters"):
                get(secure, file)
            assert len(secure.asked("a.bin")) == asked + 1
        secure.redirects["/models/a.bin"] = f"{secure.url}/models/a.bin"
        with pytest.raises(ExportError, match=r"models/a\.bin: Exceeded 30 redirects"):
            get(secure, file)
        secure.redirects.clear()
        assert get(secure, file) == []
    assert file.read_bytes() == CONTENT


def test_more_bytes_than_allowed(server: MirrorServer, file: Path) -> None:
    with pytest.raises(ExportError, match=r"a\.bin has more than 600,000 bytes"):
        get(server, file, most=600_000)
    assert not list(file.parent.iterdir())


def test_a_full_disk_keeps_nothing(server: MirrorServer, file: Path) -> None:
    """Each write to /dev/full fails for want of room."""
    part = file.with_name("a.bin.part")
    part.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        get(server, file)
    assert not list(file.parent.iterdir())


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_from_a_directory(server: MirrorServer, file: Path, form: str) -> None:
    mirror = mirror_of(form.format(server.directory))
    download(mirror, "models/a.bin", file, MOST, lambda *_: None)
    assert file.read_bytes() == CONTENT
    with pytest.raises(ExportError, match=r"models/b\.bin: No such file"):
        download(mirror, "models/b.bin", file.with_name("b"), MOST, lambda *_: None)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://example.org/x", "is not https://, file:// or a directory"),
        ("file://other/x", "is not https://, file:// or a directory"),
        ("/does/not/exist", "there is no directory /does/not/exist"),
        ("https:///x", "has no host"),
        ("https://me:secret@example.org/x?a=b", "the address has no host, or more"),
        ("ftp://me:secret@example.org/x", "the address is not https://, file://"),
        ("https:me:secret@example.org", "the address has no host"),
        ("https://me:se#secret@example.org/x", "the address is damaged"),
        ("http://me:secret@127.0.0.1:99999/x", "the address is damaged"),
        ("https://example.org:x/", "'https://example.org:x/' is damaged"),
        ("https://[x/", "is damaged"),
    ],
)
def test_other_addresses_are_refused(url: str, message: str) -> None:
    with pytest.raises(ExportError, match=message) as caught:
        mirror_of(url)
    assert "secret" not in str(caught.value)


def test_an_invalid_address_that_is_asked_shows_no_password() -> None:
    with (
        pytest.raises(ExportError, match=r"invalid address") as caught,
        mirror_of("https://me:secret@*.example.org/x").open("a", 0, ""),
    ):
        pass
    assert "secret" not in str(caught.value)


def test_a_password_is_in_no_address() -> None:
    mirror = mirror_of("https://me:secret@example.org:8443/models/")
    assert mirror.address("a") == "https://example.org:8443/models/a"
