"""Sources of published files: a directory, or an HTTP server. Imports no torch."""

from __future__ import annotations

import contextlib
import logging
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit, urlunsplit
from urllib.request import url2pathname

from export.errors import ExportError

if TYPE_CHECKING:
    import requests

_CHUNK = 2**16
_SECONDS = (10.0, 60.0)  # to connect, and between two reads
_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18})")
_LENGTH = re.compile(r"\d{1,18}")
_AGAIN = (408, 425, 429, 500, 502, 503, 504)
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_BEGINS_ANEW = 416  # what was asked for is no part of the file any more

_log = logging.getLogger("dragoman.pull")


class TransientError(Exception):
    """The file did not arrive whole, and may do so when it is asked for again."""


@dataclass(frozen=True)
class OpenedFile:
    """A file that is being read.

    Attributes:
        chunks: its bytes, from `start` on.
        start: offset of the first of them.
        total: bytes of the whole file; None if unknown.
        version: identifies the file's content; "" if it can't be read from an offset.
    """

    chunks: Iterator[bytes]
    start: int
    total: int | None
    version: str


class Mirror(Protocol):
    """Gives files by their paths in the list of models."""

    def address(self, path: str) -> str:
        """The address of a file, for messages and the bundle's origin."""
        ...

    def open(self, path: str, start: int, version: str) -> AbstractContextManager[OpenedFile]:
        """Open a file at an offset, or at its beginning if that is not possible.

        Args:
            start: offset of the first wanted byte.
            version: version of the bytes before `start`.

        Raises:
            ExportError: it is not there; names its address.
            TransientError: it is not available at the moment.
        """
        ...


def mirror_of(url: str) -> Mirror:
    """The mirror at an address.

    Args:
        url: http(s)://, file://, or a directory.

    Raises:
        ExportError: it is none of these, or no such directory exists.
    """
    # An address that can't be parsed may have a password at any place: it is not repeated.
    shown = "the address" if "@" in url else repr(url[:200])
    try:
        parts = urlsplit(url)
        is_whole = bool(parts.hostname) and parts.port != 0 and not (parts.query or parts.fragment)
    except ValueError as exc:
        raise ExportError(f"--models-url: {shown} is damaged; a port has up to 65535") from exc
    if parts.scheme in ("http", "https"):
        if not is_whole:
            raise ExportError(f"--models-url: {shown} has no host, or more than a path")
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            _log.warning("%s has no TLS: whoever is in between can replace models", _public(url))
        return HttpMirror(url.rstrip("/"))
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        directory = Path(url2pathname(parts.path))
    elif "://" in url:
        raise ExportError(f"--models-url: {shown} is not https://, file:// or a directory")
    else:
        directory = Path(url)
    if not directory.is_dir():
        raise ExportError(f"--models-url: there is no directory {directory}")
    return DirectoryMirror(directory)


class DirectoryMirror:
    """A directory that is laid out like Mozilla's bucket."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def address(self, path: str) -> str:
        """The path in the list, so that a bundle's origin reveals no directory."""
        return path

    @contextlib.contextmanager
    def open(self, path: str, start: int, version: str) -> Iterator[OpenedFile]:
        """The file from its beginning on; see `Mirror.open`."""
        file = self._directory / path
        try:
            reader = file.open("rb")
        except OSError as exc:
            raise ExportError(f"{file}: {exc.strerror}") from exc
        with reader:
            chunks = iter(lambda: reader.read(_CHUNK), b"")
            yield OpenedFile(chunks, 0, file.stat().st_size, "")


class HttpMirror:
    """A server, over HTTP. Proxies are those of the usual variables (HTTPS_PROXY).

    Args:
        url: its address.
        opening_seconds: limit for an answer's headers, redirects included.
    """

    def __init__(self, url: str, opening_seconds: float = 120.0) -> None:
        import requests

        self._url, self._opening_seconds = url, opening_seconds
        self._session = requests.Session()
        # Bytes as they lie there: offsets count them.
        self._session.headers["Accept-Encoding"] = "identity"

    def address(self, path: str) -> str:
        """The URL without a password."""
        return _public(f"{self._url}/{path}")

    @contextlib.contextmanager
    def open(self, path: str, start: int, version: str) -> Iterator[OpenedFile]:
        """The file from an offset on, if it is still the same; see `Mirror.open`."""
        import requests
        import urllib3

        headers = {"Range": f"bytes={start}-", "If-Range": version} if start and version else {}
        address = self.address(path)
        try:
            get = partial(self._session.get, headers=headers, stream=True, timeout=_SECONDS)
            with _within(self._opening_seconds, lambda: get(f"{self._url}/{path}")) as response:
                self._check(response, address)
                yield _opened(response, start if headers else 0, version, address)
        except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as exc:
            cause = _cause(exc)
            if isinstance(exc, requests.exceptions.InvalidURL):  # its text may have a password
                raise ExportError(f"{address} is, or leads to, an invalid address") from exc
            # No other attempt differs: a redirect to ftp://, or in a circle, is a ValueError.
            is_final = isinstance(exc, (ValueError, requests.TooManyRedirects))
            if is_final or isinstance(cause, ssl.SSLCertVerificationError):
                raise ExportError(f"{address}: {cause}") from exc
            raise TransientError(str(cause) or type(cause).__name__) from exc

    def _check(self, response: requests.Response, address: str) -> None:
        urls = [each.url for each in (*response.history, response)]
        if self._url.startswith("https:") and not all(url.startswith("https:") for url in urls):
            raise ExportError(f"{address} leads to an address without TLS")
        status = response.status_code
        if status in _AGAIN:
            raise TransientError(f"the server answers {status} {response.reason}")
        if status == _BEGINS_ANEW or status in (200, 206):
            return
        raise ExportError(f"{address}: the server answers {status} {response.reason}")


def _opened(response: requests.Response, start: int, version: str, address: str) -> OpenedFile:
    headers = response.headers
    # Some servers give a part of any version, whatever If-Range says.
    is_other = response.status_code == 206 and _version(headers) not in ("", version)
    if response.status_code == _BEGINS_ANEW or is_other:
        return OpenedFile(iter(()), 0, None, "")
    chunks = _arriving(response.raw)
    if response.status_code == 206:
        found = _RANGE.fullmatch(headers.get("Content-Range", ""))
        if found is None or int(found[1]) != start:
            raise ExportError(f"{address}: the server answers with another part than asked for")
        return OpenedFile(chunks, start, int(found[2]), _version(headers))
    if "Content-Encoding" in headers:  # against our wish: lengths and offsets are of other bytes
        return OpenedFile(chunks, 0, None, "")
    length = headers.get("Content-Length", "")
    total = int(length) if _LENGTH.fullmatch(length) else None
    return OpenedFile(chunks, 0, total, _version(headers))


def _arriving(raw: Any) -> Iterator[bytes]:
    """Bytes as they arrive, so that slow ones are seen, and kept if the connection breaks."""
    while chunk := raw.read1(_CHUNK, decode_content=True):
        yield chunk


def _within(seconds: float, call: Callable[[], requests.Response]) -> requests.Response:
    """The result of a call, which is given up after some time: others are limited for each read.

    Raises:
        TransientError: there was none by then.
    """
    results: Future[requests.Response] = Future()

    def run() -> None:
        try:
            found = call()
        except BaseException as exc:
            results.set_exception(exc)
        else:
            results.set_result(found)

    threading.Thread(target=run, name="mirror", daemon=True).start()
    try:
        return results.result(seconds)
    except TimeoutError:
        results.add_done_callback(_close)
        raise TransientError(f"there was no answer in {seconds:g} s") from None


def _close(late: Future[requests.Response]) -> None:
    if late.exception() is None:
        late.result().close()


def _version(headers: Any) -> str:
    """The value for If-Range: a strong entity tag, or a date."""
    tag = str(headers.get("ETag", ""))
    version = tag if tag.startswith('"') else str(headers.get("Last-Modified", ""))
    # Others are no value of a header that is sent back.
    return version if version.isascii() and version.isprintable() else ""


def _public(url: str) -> str:
    """The URL without a user's name and password."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=host))


def _cause(exc: BaseException) -> BaseException:
    """The innermost cause: libraries wrap it several times."""
    while (inner := exc.__cause__ or exc.__context__) is not None:
        exc = inner
    return exc
