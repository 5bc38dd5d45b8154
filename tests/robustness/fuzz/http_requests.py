"""Requests over HTTP: every path, with valid and invalid bodies, headers and bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlencode

from google.api import annotations_pb2
from google.protobuf import descriptor_pool

from tests.robustness.fuzz.messages import json_bytes, json_of
from tests.robustness.fuzz.mutations import NUMBERS, changed_bytes, odd_text, random_bytes
from tests.robustness.fuzz.requests import SERVICE
from tests.robustness.fuzz.served import check_text
from tests.robustness.fuzz.server import KEY, FuzzedServer
from tests.robustness.fuzz.target import Finding, expect

_CONTRACT = "contract"


@dataclass(frozen=True)
class FuzzedFront:
    """A front.

    Attributes:
        fields: sensible values of its parameters.
        needed: parameters that nearly all requests have.
        error: the key of its errors, and the type of their value.
        paths: HTTP methods and paths.
    """

    fields: Mapping[str, Sequence[Any]]
    needed: Sequence[str]
    error: tuple[str, type]
    paths: Sequence[tuple[str, str]]


_LANGUAGES = ("en", "de", "auto", "EN", "xx", "")
_TEXTS: Sequence[Any] = (
    "A dog runs.",
    ["Hello.", "Good morning!"],
    "<b>A dog</b> runs.",
    "",
    [],
    " ",
)
_LIBRE = {
    "q": _TEXTS, "source": _LANGUAGES, "target": ("de", "de", "xx", ""), "format": ("text",
    "html", "x"),
    "alternatives": (0, 1, 3, "2", -1, 99), "api_key": (KEY, "", "x"),
}  # fmt: skip
_DEEPL = {
    "text": _TEXTS, "source_lang": ("EN", "en", "", "XX"), "target_lang": ("DE", "de", "DE", "XX",
    ""),
    "tag_handling": ("xml", "html", "", "x"), "ignore_tags": (["x"], "x,y", [1]),
    "split_sentences": ("0", "1", "nonewlines", 1, 2), "formality": ("default", "more"),
    "auth_key": (KEY, "x"), "show_billed_characters": (True, "0", 7), "type": ("source", "target",
    "x"),
    "glossary_id": ("g",),
}  # fmt: skip
_GOOGLE_2 = {
    "q": _TEXTS, "source": ("en", "", "xx"), "target": ("de", "de", "xx"), "key": (KEY, "x"),
    "format": ("html", "text", "x"), "model": ("nmt", "base", "en-de", "x"),
}  # fmt: skip
_GOOGLE_3 = {
    "contents": (["A dog."], ["A", "B"], "A", [], [1]), "content": ("A dog.", 1),
    "sourceLanguageCode": ("en", ""), "targetLanguageCode": ("de", "xx"),
    "mimeType": ("text/plain", "x"),
    "model": ("", "x"), "glossaryConfig": ({"glossary": "x"},), "displayLanguageCode": ("en",),
}  # fmt: skip
FRONTS = {
    "libretranslate": FuzzedFront(
        _LIBRE, ("q", "target"), ("error", str),
        (("POST", "/translate"), ("POST", "/translate"), ("POST", "/detect"), ("GET", "/languages"),
         ("GET", "/frontend/settings"), ("POST", "/translate_file")),
    ),
    "deepl": FuzzedFront(
        _DEEPL, ("text",), ("message", str),
        (("POST", "/v2/translate"), ("POST", "/v2/translate"), ("GET", "/v2/languages"),
         ("POST", "/v2/usage"), ("POST", "/v2/glossaries"), ("POST", "/v2/document")),
    ),
    "google-v2": FuzzedFront(
        _GOOGLE_2, ("q", "target"), ("error", dict),
        (("POST", "/language/translate/v2"), ("GET", "/language/translate/v2"),
         ("POST", "/language/translate/v2/detect"), ("GET", "/language/translate/v2/languages")),
    ),
    "google-v3": FuzzedFront(
        _GOOGLE_3, ("contents",), ("error", dict),
        (("POST", "/v3/projects/p:translateText"), ("POST",
        "/v3/projects/p/locations/g:translateText"),
         ("POST", "/v3/projects/p:detectLanguage"), ("GET", "/v3/projects/p/supportedLanguages")),
    ),
}  # fmt: skip
_PLAIN_PATHS = (
    "/",
    "/openapi.json",
    "/spec",
    "/health",
    "/readyz",
    "/page.js",
    "/favicon.ico",
    "/v1",
)
_LIBRE_PLAIN_PATHS = ("/spec", "/health")
# Refused before the path is looked at: in the shape of the contract.
_BEFORE_FRONTS = (
    *("headers:", "trailers:", "host:", "origin:", "transfer-encoding:", "body: chunks of"),
    "not an HTTP/1.1 request",
)
# Bytes whose cost is in their number.
_TINY = (
    *(b"1\r\n \r\n", b"1;a\r\n \r\n", b"0\r\na:\r\n", b"a:\n", b" a\n", b"\r\n", b"a=&"),
    *(b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n", b"--x\r\n", b"{},", b"[", b"%41"),
)
_DOCUMENTED_5XX = (501, 503, 504)
_MOST_ANSWER_BYTES = 32 * 2**20
# A server waits 10 s for the rest of a head and 30 s for that of a body.
_ANSWER_SECONDS = 45.0
_ODD_HEADERS = (
    "Content-Type: text/plain", "Content-Type: application/json; charset=utf-16",
    "Content-Type: ,,",
    "Content-Type: application/x-www-form-urlencoded",
    "Content-Type: multipart/form-data; boundary=x",
    "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: ,", "Referer: https://other.example/",
    "Content-Encoding: gzip", "Content-Encoding: br", "Content-Length: 5", "Content-Length: -1",
    "Content-Length: 99999999999999999999", "Content-Length: 1e3", "Content-Length: 10, 10",
    "Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: xchunked",
    "Host: evil.example", "Host: 127.0.0.1", "Host:", "Origin: http://evil.example", "Origin: null",
    "Authorization: Bearer", "Authorization: Basic a:b", "X-Api-Key: \xff\xfe", "X-Api-Key: a\x00b",
    "Grpc-Timeout: 1S", "Grpc-Timeout: 0n", "Grpc-Timeout: 99999999H", "Grpc-Timeout: x",
    "X-Priority: urgent", "X-Client-Id: " + "a" * 5_000, "Traceparent: 00-0-0-0",
    "Upgrade: websocket",
    "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__",
    "Expect: 100-continue", "Expect: x", "Range: bytes=0-1", "If-None-Match: *", "Cookie: a=b",
    "X: ",
    " X: folded", "X : y", "X", ":", "X:\t\x0b", "Accept: text/event-stream", "TE: trailers",
    "\xe4: x",
    "Accept-Encoding: gzip", "Last-Event-ID: 5", "Content-Length: 0", "Content-Length: +5",
)  # fmt: skip


@dataclass(frozen=True)
class HttpInput:
    """A request.

    Attributes:
        front: front with this path; "contract" for all other paths.
        data: bytes to send.
        is_sound: whether it is a valid HTTP request, which has to be answered.
        pieces: number of parts in which it is sent.
    """

    front: str
    data: bytes
    is_sound: bool
    pieces: int = 1


class HttpRequests:
    """The HTTP port."""

    name: ClassVar[str] = "http"
    share: ClassVar[float] = 0.04
    what: ClassVar[str] = (
        f"HTTP: the contract's paths with SSE, {', '.join(FRONTS)}, the page: "
        "JSON, forms, headers, queries, raw bytes"
    )
    at_once: ClassVar[int] = 32

    def __init__(self) -> None:
        contract: Any = descriptor_pool.Default().FindServiceByName(SERVICE)
        self._methods = []
        for method in contract.methods:
            rule = method.GetOptions().Extensions[annotations_pb2.http]
            verb = rule.WhichOneof("pattern")
            self._methods.append((verb.upper(), getattr(rule, verb), method.input_type))

    def generate(self, rng: random.Random) -> HttpInput:
        """Generate a request to the contract, to a front, to the page, or to an unknown path."""
        choice = rng.random()
        headers = (
            ["Host: localhost", f"X-Api-Key: {KEY}"] if rng.random() < 0.9 else ["Host: localhost"]
        )
        front, query = _CONTRACT, ""
        if choice < 0.4:
            verb, path, kind = rng.choice(self._methods)
            path = path.replace(
                "{name}", rng.choice(("en-de", "x", "%00", "..%2f", "ä", "a" * 3_000))
            )
            body = json_bytes(rng, json_of(rng, kind)) if verb == "POST" else b""
            headers.append("Content-Type: application/json")
        elif choice < 0.9:
            front = rng.choice(list(FRONTS))
            fuzzed = FRONTS[front]
            verb, path = rng.choice(fuzzed.paths)
            values = {
                name: rng.choice(
                    known if rng.random() < 0.85 else (*NUMBERS, odd_text(rng, 3), None)
                )
                for name, known in fuzzed.fields.items()
                if rng.random() < (0.95 if name in fuzzed.needed else 0.4)
            }
            body, content_type, query = self._encoded(rng, values, verb)
            if content_type:
                headers.append(f"Content-Type: {content_type}")
        else:
            verb, path, body = "GET", rng.choice(_PLAIN_PATHS), b""
            front = "libretranslate" if path in _LIBRE_PLAIN_PATHS else _CONTRACT
        return self._request(rng, front, verb, path + query, headers, body)

    def _encoded(
        self, rng: random.Random, values: Mapping[str, Any], verb: str
    ) -> tuple[bytes, str, str]:
        """Encode parameters: body, content type and query."""
        form = urlencode(
            [
                (name, str(each).encode("utf-8", "replace"))
                for name, value in values.items()
                for each in (value if isinstance(value, list) else [value])
            ]
        )
        choice = rng.random()
        if verb == "GET" or choice < 0.05:
            return b"", "", f"?{form}"[:6_000]
        if choice < 0.4:
            data = form.encode()
            if rng.random() < 0.3:
                data = changed_bytes(rng, data)
            return data, "application/x-www-form-urlencoded", ""
        return json_bytes(rng, values), "application/json", ""

    def _request(
        self, rng: random.Random, front: str, verb: str, path: str, headers: list[str], body: bytes
    ) -> HttpInput:
        is_sound = True
        if rng.random() < 0.04:
            verb = rng.choice(("PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "PATCH"))
        if rng.random() < 0.04:
            path = changed_bytes(
                rng, path.encode(), (b"/", b"//", b"..", b"%", b"?", b"#", b";", b" ")
            ).decode("latin-1")
            front, is_sound = _CONTRACT, False
        odd = [rng.choice(_ODD_HEADERS) for _ in range(rng.choice((0, 0, 0, 0, 1, 2)))]
        if odd:
            front, is_sound = f"{front}?", False  # what answers depends on the header
        if rng.random() < 0.01:
            odd += [f"X-{number}: {'a' * 100}" for number in range(rng.choice((10, 70, 700)))]
            front, is_sound = f"{front}?", False
        headers += odd
        if (body or verb == "POST") and rng.random() < 0.97:
            if rng.random() < 0.1 and is_sound:
                headers.append("Transfer-Encoding: chunked")
                body = _chunked(rng, body)
            else:
                headers.append(f"Content-Length: {len(body)}")
        elif body:
            is_sound = False
        version = (
            "HTTP/1.1"
            if rng.random() < 0.97
            else rng.choice(("HTTP/1.0", "HTTP/2.0", "HTTP/9", ""))
        )
        is_sound = is_sound and version == "HTTP/1.1"
        lines = [f"{verb} {path} {version}", *headers, "Connection: close", "", ""]
        data = "\r\n".join(lines).encode("latin-1", "replace") + body
        choice = rng.random()
        if choice < 0.06:
            data, front, is_sound = changed_bytes(rng, data), f"{front}?", False
        elif choice < 0.07:
            data, front, is_sound = random_bytes(rng), f"{front}?", False
        elif choice < 0.075:
            data, front, is_sound = data + data, f"{front}?", False  # pipelined
        elif choice < 0.085:
            number = rng.choice((10, 1000, 20_000))
            data, front, is_sound = data + rng.choice(_TINY) * number, f"{front}?", False
        return HttpInput(front, data, is_sound, rng.choice((1, 1, 1, 1, 2, 5)))

    @contextlib.asynccontextmanager
    async def connected(self, server: Any) -> AsyncIterator[None]:
        """Nothing: each request has a connection of its own."""
        yield

    async def run(self, given: HttpInput, server: FuzzedServer) -> str:
        """Send the request."""
        data = given.data.replace(KEY.encode(), server.key.encode())
        reader, writer = await asyncio.open_connection(*server.http)
        try:
            with contextlib.suppress(ConnectionError):
                size = -(-len(data) // given.pieces) or 1
                for start in range(0, len(data), size):
                    writer.write(data[start : start + size])
                    await writer.drain()
                    await asyncio.sleep(0)
            answer = await self._answer(reader, writer, given.is_sound)
        finally:
            writer.transport.abort()
        return judge_answer(given, answer)

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_sound: bool
    ) -> bytes:
        """All bytes until the server closes the connection. If it waits for more, send the end."""
        answer = b""
        with contextlib.suppress(ConnectionError):
            while len(answer) < _MOST_ANSWER_BYTES:
                try:
                    async with asyncio.timeout(_ANSWER_SECONDS if is_sound else 3.0):
                        received = await reader.read(65536)
                except TimeoutError:
                    if is_sound:
                        raise Finding("no answer, and the connection stays open") from None
                    is_sound = True
                    writer.write_eof()
                    continue
                if not received:
                    break
                answer += received
        return answer


def judge_answer(given: HttpInput, answer: bytes) -> str:
    """The outcome of a request, by all bytes of the answer.

    Raises:
        Finding: there is no answer, or it is an error of the server or in another front's form.
    """
    if not answer:
        expect(not given.is_sound, "a sound request has no answer", given)
        return "closed"
    head, _, body = answer.partition(b"\r\n\r\n")
    line = head.partition(b"\r\n")[0].decode("latin-1")
    parts = line.split(" ", 2)
    is_status = len(parts) >= 2 and parts[0].startswith("HTTP/1.") and parts[1].isdigit()
    expect(is_status, "an answer that is not HTTP", answer[:200])
    status = int(parts[1])
    text = body.decode("utf-8", "replace")
    if status >= 400:
        check_text(text, "an error")
    if status >= 500 and status not in _DOCUMENTED_5XX:
        raise Finding(f"an answer with status {status}", f"{line} {text[:500]}")
    is_head = given.data.startswith(b"HEAD ")
    if status >= 400 and given.is_sound and not is_head:
        _check_shape(given, status, head, text)
    return str(status)


def _check_shape(given: HttpInput, status: int, head: bytes, text: str) -> None:
    evidence = (given.front, status, text[:300], given.data[:300])
    expect(b"content-type: application/json" in head.lower(), "an error that is not JSON", evidence)
    try:
        error = json.loads(text)
    except ValueError:
        raise Finding("an error that is not JSON", str(evidence)) from None
    expect(isinstance(error, dict), "an error in another shape than its front's", evidence)
    is_contracts = isinstance(error.get("message"), str) and isinstance(error.get("code"), int)
    if given.front == _CONTRACT:
        expect(
            is_contracts or status == 404, "an error in another shape than the contract's", evidence
        )
        return
    name, kind = FRONTS[given.front].error
    is_fronts = isinstance(error.get(name), kind) and bool(error.get(name))
    is_before = is_contracts and error["message"].startswith(_BEFORE_FRONTS)
    expect(is_fronts or is_before, "an error in another shape than its front's", evidence)


def _chunked(rng: random.Random, body: bytes) -> bytes:
    chunks = bytearray()
    size = rng.choice((1, 7, 20, 100, 5_000))
    size = max(size, len(body) // 5_000)
    for start in range(0, len(body), size):
        chunk = body[start : start + size]
        chunks += b"%x\r\n%s\r\n" % (len(chunk), chunk)
    return bytes(chunks) + b"0\r\n\r\n"
