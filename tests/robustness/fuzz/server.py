"""A server under attack: its ports, memory and log, and whether it still translates correctly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from prometheus_client.parser import text_string_to_metric_families

from bench.processes import descendants
from bench.server_process import RunningProcess, environment, server_process
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1 import translation_pb2_grpc
from service.access.key_file import write_keys
from service.access.keys import new_key
from service.access.principal import Principal
from service.observability import loop_monitor

TRANSLATE = "/dragoman.v1.TranslationService/Translate"
_TEXTS = (
    "She is reading a book.",
    "Two men are playing chess. It is <late> & dark!",
    "Hello {name}!",
)
# Placeholder of the key in inputs, which are the same in each run. It is as long as a key.
KEY = "KEY_" + "x" * 60
_LARGEST_SECONDS = 600.0  # one of the largest requests, on a busy machine
_LANGUAGES: Any = {"source_language_code": "en", "target_language_code": "de"}
_CANARY_SECONDS = 60.0
# A refusal for load counts if it goes on: on a machine with other work, a queue is soon too long.
_PATIENT = json.dumps(
    {
        "methodConfig": [
            {
                "name": [{}],
                "retryPolicy": {
                    "maxAttempts": 5,
                    "initialBackoff": "1s",
                    "maxBackoff": "10s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
                },
            }
        ]
    }
)
_QUIET_SECONDS = 60.0
_PAUSE_SECONDS = 0.2
_HELD = ("dragoman_rows_used", "dragoman_waiting_sentences", "dragoman_requests_in_flight")
_WARM_CALLS = 300
# No leak: pages of the caches are committed when a row first holds a text of that length, ONNX
# Runtime's arenas grow with the largest batch, and files and glossaries that clients leave are kept
# for a while, within limits. A million inputs came to 210 MiB.
MEMORY_BOUND_BYTES = 256 * 2**20
DESCRIPTORS_BOUND = 16


@dataclass(frozen=True)
class Footprint:
    """Resources that a server takes of its machine.

    Attributes:
        memory_bytes: resident memory of all its processes.
        num_descriptors: number of open descriptors of all its processes.
        held: gauges that must be zero without calls, by name.
    """

    memory_bytes: int
    num_descriptors: int
    held: Mapping[str, float] = field(default_factory=dict)

    def problems(self, base: Footprint) -> list[str]:
        """Resources that have not returned to their base, as properties that do not hold."""
        found = [f"{name} is not zero again" for name, value in self.held.items() if value]
        if self.memory_bytes > base.memory_bytes + MEMORY_BOUND_BYTES:
            found.append(f"memory is more than {MEMORY_BOUND_BYTES >> 20} MiB above its base")
        if self.num_descriptors > base.num_descriptors + DESCRIPTORS_BOUND:
            found.append(f"more than {DESCRIPTORS_BOUND} descriptors above the base")
        return found


class ServerLog:
    """Reads a server's log, so that the server never waits, and keeps possible defects.

    Attributes:
        errors: number of lines of level error or with an exception, by message, and one example.
    """

    def __init__(self) -> None:
        self.errors: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def read(self, line: str) -> None:
        """Read a line."""
        try:
            entry = json.loads(line)
        except ValueError:
            entry = {"message": f"no JSON: {line[:200]}", "level": "error"}
        if entry.get("level") in ("error", "critical") or "exception" in entry:
            last = str(entry.get("exception", "")).strip().rpartition("\n")[2]
            what = f"logged: {entry.get('message', '')[:200]} {last[:200]}".strip()
            self.errors[what] += 1
            self.examples.setdefault(what, line[:3000])


class FuzzedServer:
    """A server process of the included model, with keys, glossaries, HTTP and all fronts.

    Attributes:
        address: gRPC address, HOST:PORT.
        http: HTTP host and port.
        key: API key of the only accepted client.
        log: log of the server.
    """

    def __init__(self, server: RunningProcess, log: ServerLog, key: str) -> None:
        self.log = log
        self.key = key
        self.address = server.address
        host, _, port = server.http_url.rpartition("//")[2].rstrip("/").rpartition(":")
        self.http = host, int(port)
        self._metrics_url = server.metrics_url
        self._process = server.process
        self._expected: list[bytes] = []

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    async def translate(self, channel: grpc.aio.Channel) -> list[bytes]:
        """The canary's texts, translated."""
        request = pb.TranslateRequest(contents=_TEXTS, source_language_code="en")
        call: Any = channel.unary_unary(
            TRANSLATE, pb.TranslateRequest.SerializeToString, pb.TranslateResponse.FromString
        )
        metadata = [("x-api-key", self.key), ("x-priority", "high")]
        response = await call(request, timeout=_CANARY_SECONDS, metadata=metadata)
        return [each.translated_text.encode() for each in response.translations]

    async def canary(self) -> str:
        """Translate over a new connection; what is wrong, or ""."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.service_config", _PATIENT)]
        try:
            async with grpc.aio.insecure_channel(self.address, options=options) as channel:
                found = await self.translate(channel)
        except grpc.aio.AioRpcError as exc:
            return f"the canary got no answer: {exc.code().name} {exc.details()}"
        if not self._expected:
            self._expected = found
        if found != self._expected:
            return f"the canary's translation changed: {found} instead of {self._expected}"
        return ""

    async def warm_up(self) -> None:
        """Make the server load all that it loads at first use, and reach its working size."""
        metadata = [("x-api-key", self.key)]
        async with grpc.aio.insecure_channel(self.address) as channel:
            stub: Any = translation_pb2_grpc.TranslationServiceStub(channel)
            for _ in range(_WARM_CALLS // 10):
                await asyncio.gather(*(self.translate(channel) for _ in range(10)))
                for method, request in _warm_requests():
                    await getattr(stub, method)(request, metadata=metadata, timeout=_CANARY_SECONDS)
            [model] = (await stub.ListModels(pb.ListModelsRequest(), metadata=metadata)).models
            for method, request in _largest_requests(model.limits):
                await getattr(stub, method)(request, metadata=metadata, timeout=_LARGEST_SECONDS)
        if problem := await self.canary():
            raise RuntimeError(problem)

    async def quiet_footprint(self) -> Footprint:
        """The footprint when nothing is in progress, or after some time."""
        deadline = time.monotonic() + _QUIET_SECONDS
        while True:
            held = await asyncio.to_thread(self._held)
            if not any(held.values()) or time.monotonic() > deadline:
                return Footprint(*self._resources(), held)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def settled(self, base: Footprint) -> Footprint:
        """The footprint when it has returned to its base, or after some time."""
        deadline = time.monotonic() + _QUIET_SECONDS
        while True:
            found = await self.quiet_footprint()
            if not found.problems(base) or time.monotonic() > deadline:
                return found
            await asyncio.sleep(1.0)

    def _held(self) -> dict[str, float]:
        with urllib.request.urlopen(self._metrics_url, timeout=30) as response:
            page = response.read().decode()
        held = dict.fromkeys(_HELD, 0.0)
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                if sample.name in held:
                    held[sample.name] += sample.value
        return held

    def _resources(self) -> tuple[int, int]:
        memory = descriptors = 0
        for pid in (self._process.pid, *descendants(self._process.pid)):
            with contextlib.suppress(OSError):
                pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
                memory += pages * os.sysconf("SC_PAGE_SIZE")
                descriptors += len(os.listdir(f"/proc/{pid}/fd"))
        return memory, descriptors


def _warm_requests() -> list[tuple[str, Any]]:
    """A call of each kind that loads something of its own."""
    html = pb.TranslateRequest(contents=["a <b>dog</b>"] * 50, mime_type="text/html", **_LANGUAGES)
    html.options.num_hypotheses = html.options.search.beam_size = 4
    terms = pb.Glossary(entries=[pb.GlossaryEntry(source_term="dog", target_term="Hund")])
    pair = pb.ScorePair(source_text="A dog.", translated_text="Ein Hund.")
    page = pb.TranslateDocumentRequest(
        content=b"<p>A dog.</p>" * 50, file_name="a.html", **_LANGUAGES
    )
    return [
        ("Translate", html),
        ("Translate", pb.TranslateRequest(contents=["A dog."], glossary=terms, **_LANGUAGES)),
        ("DetectLanguage", pb.DetectLanguageRequest(contents=["Ein Hund rennt."])),
        ("GetAttention", pb.AttentionRequest(source_text="A dog.", **_LANGUAGES)),
        ("Score", pb.ScoreRequest(pairs=[pair], **_LANGUAGES)),
        ("TranslateDocument", page),
    ]


def _largest_requests(limits: pb.ModelLimits) -> list[tuple[str, Any]]:
    """Calls that use all rows at their full length: caches take memory when they are touched."""
    words = "dog " * (limits.max_source_tokens // 2)
    requests: list[tuple[str, Any]] = []
    for beam_size in (1, 4):
        long = pb.TranslateRequest(contents=[words] * limits.max_rows, **_LANGUAGES)
        long.options.max_new_tokens = limits.max_target_tokens - 1
        long.options.search.min_new_tokens = limits.max_target_tokens - 1
        long.options.search.beam_size = beam_size
        requests.append(("Translate", long))
    pair = pb.ScorePair(source_text=words, translated_text=words)
    scores = pb.ScoreRequest(pairs=[pair] * limits.max_rows, **_LANGUAGES)
    scores.options.return_tokens = True
    attention = pb.AttentionRequest(source_text=words, translated_text=words, **_LANGUAGES)
    return [*requests, ("Score", scores), ("GetAttention", attention)]


@contextlib.contextmanager
def fuzzed_server(*options: str) -> Iterator[FuzzedServer]:
    """Start a server, and stop it at the end of the context.

    Args:
        options: further options of `dragoman serve`.

    Raises:
        LoadError: the server does not start.
    """
    with tempfile.TemporaryDirectory(prefix="dragoman-fuzz-") as folder:
        key, stored = new_key(Principal("fuzz"))
        keys, terms = Path(folder, "keys.jsonl"), Path(folder, "terms.en-de.tsv")
        write_keys(keys, {stored.id: stored})
        terms.write_text("dog\tKöter|Köters\nbook\tSchmöker\n", encoding="utf-8")
        arguments = [
            *("-m", "cli.main", "serve", "--port", "0", "--metrics-port", "0", "--http-port", "0"),
            *("--keys", str(keys), "--glossary", f"terms={terms}"),
            *("--memory-store", str(Path(folder, "memories.db"))),
            *options,
        ]
        kept = {
            name: value for name, value in environment().items() if not name.startswith("DRAGOMAN_")
        }
        variables = {**kept, loop_monitor.VARIABLE: "1"}  # a block is logged as an error
        log = ServerLog()
        with server_process(arguments, variables, on_line=log.read) as server:
            yield FuzzedServer(server, log, key)
