"""Hostile calls, over gRPC and over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import io
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from dragoman.v1 import translation_pb2 as pb
from service.settings import Settings
from tests.robustness.hostile.raw import RAW_ATTACKS, RawAttack, send_raw

_SERVICE = "/dragoman.v1.TranslationService/"
_CLIENT = ("x-client-id", "attacker")
_LANGUAGES: Any = {"source_language_code": "en", "target_language_code": "de"}
# Marked up at every word, and each sentence with a number.
_MARKED_UP = "<p>A <b>dog</b> has 4 <i>legs</i> &amp; <a href='x'>runs</a>.</p>"
_WORDS = "A dog has 4 legs and runs. "


@dataclass(frozen=True)
class Attack:
    """Calls with the same message, up to a number or a time.

    Attributes:
        target: method of the service, or path for HTTP.
        message: request as bytes.
        at_once: number of calls in progress.
        count: number of calls in all.
        connections: number of connections that the calls use in turn.
        seconds: time from the first call until those in progress are cancelled.
        content_type: for HTTP.
    """

    target: str
    message: bytes
    at_once: int
    count: int
    connections: int = 1
    seconds: float = 120.0
    content_type: str = "application/json"

    @property
    def is_http(self) -> bool:
        """Whether the calls go over HTTP."""
        return self.target.startswith("/")


def _texts(text: str, count: int, **fields: Any) -> bytes:
    return pb.TranslateRequest(contents=[text] * count, **_LANGUAGES, **fields).SerializeToString()


def _refused() -> Attack:
    most = Settings().message_bytes - 1024
    return Attack(
        "Translate", pb.TranslateRequest(contents=["a" * most]).SerializeToString(), 4, 1000
    )


def _empty_pairs() -> Attack:
    return Attack("Score", b"\x0a\x00" * (Settings().message_bytes // 2 - 512), 8, 16)


def _burst(connections: int) -> Attack:
    return Attack("Translate", _texts("A dog is running.", 1), 10_000, 10_000, connections)


def _repeated(at_once: int) -> Attack:
    """Calls that are sent again as soon as they are answered or refused."""
    return Attack("Translate", _texts("A dog is running.", 1), at_once, 1_000_000, 10, 30)


def _plain() -> Attack:
    """A million characters of sentences with numbers: 200,000 sentences in each call."""
    return Attack("Translate", _texts("A 5. " * 20_000, 10), 3, 6, seconds=60)


def _html(length: int, texts: int, at_once: int, count: int, connections: int = 1) -> Attack:
    """HTML texts of a length, a number of them in each call."""
    page = _MARKED_UP * (length // len(_MARKED_UP))
    message = _texts(page, texts, mime_type="text/html")
    return Attack("Translate", message, at_once, count, connections, 30)


def _small_texts() -> Attack:
    """Texts just short enough to be prepared at once."""
    text = _WORDS * (3900 // len(_WORDS))
    return Attack("Translate", _texts(text, 1), 1000, 100_000, 10, 30)


def _detection() -> Attack:
    text = _WORDS * (900 // len(_WORDS))
    message = pb.DetectLanguageRequest(contents=[text] * 1024).SerializeToString()
    return Attack("DetectLanguage", message, 64, 100_000, seconds=30)


def _json() -> Attack:
    """A million characters, each as the longest escape: the largest body."""
    text = b'"' + b"\\ud83d\\ude00" * 99_000 + b'"'
    return Attack(
        "/v1/translate", b'{"contents":[' + b",".join([text] * 10) + b"]}", 8, 100_000, seconds=30
    )


def _json_values() -> Attack:
    """As many values as a body may have."""
    return Attack(
        "/v1/translate", b'{"contents":[' + b'"",' * 27_000 + b'""]}', 8, 100_000, seconds=30
    )


_FORM = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data; boundary=x"
_PART = b"--x\r\ncontent-disposition: form-data; name=q\r\n\r\n"


def _body(message: bytes, content_type: str = "application/json") -> Attack:
    """A body for LibreTranslate's API."""
    return Attack("/translate", message, 8, 100_000, seconds=30, content_type=content_type)


def _fields() -> Attack:
    """Many fields that no one knows, as many as are parsed."""
    known = pb.TranslateRequest(contents=[""] * 1000).SerializeToString()
    return Attack("Translate", known + b"\xf8\x06\x01" * 4900, 16, 100_000, seconds=30)


def _search(count: int = 1, num_hypotheses: int = 1, **search: Any) -> Attack:
    """Texts with a costly search, from two threads of a client."""
    options = pb.TranslateOptions(search=pb.SearchOptions(**search), num_hypotheses=num_hypotheses)
    message = _texts("A dog is running in the park.", count, options=options)
    return Attack("Translate", message, 2, 100_000, 2, 20)


def _streams() -> Attack:
    text = _WORDS * (20_000 // len(_WORDS))
    message = pb.StreamTranslateRequest(content=text, **_LANGUAGES).SerializeToString()
    return Attack("StreamTranslate", message, 500, 100_000, 10, 30)


def _document(file_name: str, content: str | bytes) -> Attack:
    content = content.encode() if isinstance(content, str) else content
    request = pb.TranslateDocumentRequest(content=content, file_name=file_name, **_LANGUAGES)
    return Attack("TranslateDocument", request.SerializeToString(), 8, 100_000, seconds=30)


def _docx(paragraph: str) -> Attack:
    namespace = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as target:
        document = f'<w:document xmlns:w="{namespace}"><w:p>{paragraph}</w:p></w:document>'
        target.writestr("word/document.xml", document)
    return _document("a.docx", output.getvalue())


def _docx_formats() -> Attack:
    """A large format, which each of many texts has."""
    run = f"<w:rPr>{'<w:b/>' * 8000}</w:rPr>{'<w:t>a</w:t><w:tab/>' * 8000}"
    return _docx(f"<w:r>{run}</w:r>")


def _docx_levels() -> Attack:
    """Many runs, deep in insertions."""
    levels = 150
    return _docx("<w:ins>" * levels + "<w:r><w:t>A</w:t></w:r>" * 20_000 + "</w:ins>" * levels)


def _xliff() -> Attack:
    """Namespaces, which each element that is made could get."""
    names = "".join(f' xmlns:n{number}="urn:{number}"' for number in range(60_000))
    unit = "<trans-unit><source>A <g>dog</g>.</source></trans-unit>"
    return _document("a.xlf", f'<xliff version="1.2"{names}><file>{unit * 10}</file></xliff>')


def _xliff_levels() -> Attack:
    """Marks in each other, in many units."""
    marks = "<mrk>" * 240 + "A dog." + "</mrk>" * 240
    unit = f"<trans-unit><source>{marks}</source></trans-unit>"
    return _document("a.xlf", f'<xliff version="1.2"><file>{unit * 100}</file></xliff>')


def _po() -> Attack:
    """Words that may be access keys."""
    return _document("a.po", f'msgid "{" _Ab" * 25_000}"\nmsgstr ""\n')


def _undecodable() -> Attack:
    return Attack("Translate", b"\xff" * 100, 16, 1000)


ATTACKS: Mapping[str, Callable[[], Attack | RawAttack]] = {
    "refused": _refused,
    "empty-pairs": _empty_pairs,
    "burst": lambda: _burst(1),
    "burst-50": lambda: _burst(50),
    "undecodable": _undecodable,
    "busy": lambda: _repeated(64),
    "retries": lambda: _repeated(1000),
    "plain": _plain,
    # Documents just short enough not to count as large, alone and by hundreds.
    "html": lambda: _html(2000, 1, 1000, 100_000, 10),
    "html-texts": lambda: _html(2000, 500, 4, 10_000),
    # Of the greatest length of a text.
    "html-long": lambda: _html(99_000, 10, 8, 10_000),
    "small-texts": _small_texts,
    "detection": _detection,
    "json": _json,
    "json-values": _json_values,
    # Just small enough to be parsed at once, and of the largest size.
    "json-objects": lambda: _body(b'{"q":[' + b"{}," * 5_000 + b"{}]}"),
    "json-names": lambda: _body(b"{%b}" % b",".join(b'"%d":1' % i for i in range(27_000))),
    "form-fields": lambda: _body(b"q=b&" * 27_000, _FORM),
    "form-escapes": lambda: _body(b"q=" + b"%41" * 4_000_000, _FORM),
    "multipart-parts": lambda: _body((_PART + b"\r\n") * 1_000 + b"--x--\r\n", _MULTIPART),
    "multipart-lines": lambda: _body(_PART + b"\r\n--" * 3_000_000 + b"\r\n--x--", _MULTIPART),
    "fields": _fields,
    "streams": _streams,
    "beam": lambda: _search(beam_size=64, min_new_tokens=400),
    "beams": lambda: _search(16, beam_size=64, min_new_tokens=400),
    "hypotheses": lambda: _search(16, 16, beam_size=16, min_new_tokens=400),
    "long": lambda: _search(500, min_new_tokens=400),
    "samples": lambda: _search(500, sampling=pb.Sampling(seed=1), min_new_tokens=400),
    "rules": lambda: _search(500, no_repeat_ngram_size=3, repetition_penalty=1.5),
    "sentences": lambda: _search(1000),
    "docx-formats": _docx_formats,
    "docx-levels": _docx_levels,
    "xliff": _xliff,
    "xliff-levels": _xliff_levels,
    "po": _po,
    **RAW_ATTACKS,
}


class Outcomes:
    """Outcomes of the calls."""

    def __init__(self) -> None:
        self.codes: Counter[str] = Counter()
        self.num_hints = 0


async def send(addresses: Mapping[str, str], attack: Attack | RawAttack) -> dict[str, Any]:
    """Send an attack; returns counts of status codes and of retry hints.

    Args:
        addresses: addresses of the server's ports, by "grpc", "http" and "metrics".
    """
    outcomes = Outcomes()
    started = time.perf_counter()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(attack.seconds):
            if isinstance(attack, RawAttack):
                await send_raw(addresses[attack.port], attack, outcomes.codes)
            elif attack.is_http:
                await _send_http(addresses["http"], attack, outcomes)
            else:
                await _send_grpc(addresses["grpc"], attack, outcomes)
    seconds = time.perf_counter() - started
    return {
        "codes": dict(outcomes.codes),
        "retry_hints": outcomes.num_hints,
        "seconds": round(seconds, 2),
    }


async def _send_grpc(address: str, attack: Attack, outcomes: Outcomes) -> None:
    async with contextlib.AsyncExitStack() as channels:
        methods: list[Any] = []
        for number in range(attack.connections):
            # The number keeps gRPC from sharing one connection among the channels.
            options = [("grpc.max_send_message_length", -1), ("dragoman.connection", number)]
            channel = grpc.aio.insecure_channel(address, options=options)
            await channels.enter_async_context(channel)
            await channel.channel_ready()
            streams = attack.target.startswith("Stream")
            make = channel.unary_stream if streams else channel.unary_unary
            methods.append(make(_SERVICE + attack.target))

        async def send_one(number: int) -> None:
            call = methods[number % len(methods)](attack.message, timeout=120, metadata=[_CLIENT])
            try:
                if attack.target.startswith("Stream"):
                    async for _ in call:
                        pass
                else:
                    await call
                outcomes.codes["OK"] += 1
            except grpc.aio.AioRpcError as exc:
                outcomes.codes[exc.code().name] += 1
                metadata = exc.trailing_metadata() or ()
                outcomes.num_hints += any(key == "grpc-retry-pushback-ms" for key, _ in metadata)

        await _at_once(attack, send_one)


async def _send_http(address: str, attack: Attack, outcomes: Outcomes) -> None:
    host, _, port = address.rpartition(":")
    head = (
        f"POST {attack.target} HTTP/1.1\r\nhost: {address}\r\n"
        f"content-type: {attack.content_type}\r\n"
        f"{_CLIENT[0]}: {_CLIENT[1]}\r\ncontent-length: {len(attack.message)}\r\n"
        "connection: close\r\n\r\n"
    ).encode()

    async def send_one(number: int) -> None:
        try:
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(head + attack.message)
                status = (await reader.readline()).split()
                await reader.read()
            finally:
                writer.close()
            outcomes.codes[status[1].decode() if len(status) > 1 else "closed"] += 1
        except OSError as exc:
            outcomes.codes[type(exc).__name__] += 1

    await _at_once(attack, send_one)


async def _at_once(attack: Attack, send_one: Callable[[int], Any]) -> None:
    """Send all calls, a number of them at a time."""
    numbers = iter(range(attack.count))

    async def work() -> None:
        for number in numbers:
            await send_one(number)

    await asyncio.gather(*(work() for _ in range(min(attack.at_once, attack.count))))
