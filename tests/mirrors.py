"""A mirror of Mozilla's bucket with random students, and a server of it that can fail."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from export.store.registry import MOZILLA_URL

_LONGEST_WAIT = 20.0  # seconds
MODEL = "model.ende.intgemm.alphas.bin"


def entry_of(
    files: dict[str, bytes],
    folder: str,
    *,
    source: str = "en",
    target: str = "de",
    architecture: str = "tiny",
    release: str | None = "Release",
) -> dict[str, Any]:
    """An entry of the list for files by their roles and names.

    As `PublicModelsJsonGenerator` in `db/updater.py` of mozilla/translations makes it: statistics
    and metrics are left out where there are none, and a model that is not shipped has no status.

    Args:
        files: decompressed bytes by "role:name".
        folder: where they lie, compressed.
        source, target, architecture, release: as in the entry.
    """
    described: dict[str, Any] = {}
    for key, content in files.items():
        role, _, name = key.partition(":")
        described[role] = {"path": f"{folder}/{name}.gz"}
        if role == "model":
            described[role] |= {
                "uncompressedSize": len(content),
                "uncompressedHash": hashlib.sha256(content).hexdigest(),
            }
    entry = {
        "architecture": architecture,
        "releaseStatus": release,
        "sourceLanguage": source,
        "targetLanguage": target,
        "files": described,
    }
    if release is None:
        return entry
    return {
        **entry,
        "modelStatistics": {
            "parameters": 16_907_062,
            "encoderParameters": 6_314_532,
            "decoderParameters": 2_400_528,
        },
        "metrics": {
            "flores200-plus": {
                "bleu": 38.8,
                "chrf": 65.2,
                "comet22": 0.8551,
                "metricx24": 2.1,
                "metricx24-qe": 2.4,
                "llm-ref": 4.2,
            }
        },
    }


def write_mirror(directory: Path, *entries: tuple[dict[str, Any], dict[str, bytes]]) -> None:
    """Write the list, and the files of its entries, each by "role:name" as in `entry_of`."""
    models: dict[str, list[dict[str, Any]]] = {}
    for entry, files in entries:
        pair = f"{entry['sourceLanguage']}-{entry['targetLanguage']}"
        models.setdefault(pair, []).append(entry)
        for key, content in files.items():
            file = directory / entry["files"][key.partition(":")[0]]["path"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(gzip.compress(content, mtime=0))
    registry = {
        "generated": "2026-08-07T00:00:00Z",
        "baseUrl": MOZILLA_URL,
        "models": models,
    }
    (directory / "db").mkdir(parents=True, exist_ok=True)
    (directory / "db" / "models.json").write_text(json.dumps(registry, indent=2))


@dataclass
class MirrorServer:
    """A server of a directory, with the byte ranges and entity tags of Google's bucket.

    Attributes:
        directory: the files.
        url: the server's address.
        cuts: bytes after which the next answers break, by the end of the path; used up in order.
        statuses: statuses of the next answers, by the end of the path; used up in order.
        redirects: where paths are instead.
        drips: number of first bytes of an answer that come one by one, each after the client has
            set `arrived` for the one before; the answer ends after them.
        ignores_versions: whether a part of any version is given, whatever If-Range says.
        length: Content-Length, if it is not the true one.
        ranges: the header Range of all requests, by path; None where there was none.
    """

    directory: Path
    url: str = ""
    cuts: dict[str, list[int]] = field(default_factory=dict)
    statuses: dict[str, list[int]] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    drips: int = 0
    arrived: threading.Event = field(default_factory=threading.Event)
    ignores_versions: bool = False
    length: str = ""
    ranges: dict[str, list[str | None]] = field(default_factory=dict)

    def asked(self, ending: str) -> list[str | None]:
        """The ranges that were asked for of the file whose path ends so."""
        return [
            each for path, all_ in self.ranges.items() if path.endswith(ending) for each in all_
        ]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer a GET request."""
        path, wanted = handler.path, handler.headers.get("Range")
        self.ranges.setdefault(path, []).append(wanted)
        status = self._next(self.statuses, path)
        file = self.directory / path.lstrip("/")
        if (to := self.redirects.get(path)) is not None:
            handler.send_response(302)
            handler.send_header("Location", to)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        if status is not None or not file.is_file():
            handler.send_error(status or 404)
            return
        content = file.read_bytes()
        tag = f'"{hashlib.md5(content).hexdigest()}"'
        start = 0
        is_same = self.ignores_versions or handler.headers.get("If-Range") == tag
        if wanted is not None and is_same:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        if start >= len(content) > 0:
            handler.send_error(416)
            return
        handler.send_response(206 if start else 200)
        handler.send_header("ETag", tag)
        handler.send_header("Content-Length", self.length or str(len(content) - start))
        if start:
            span = f"bytes {start}-{len(content) - 1}/{len(content)}"
            handler.send_header("Content-Range", span)
        handler.end_headers()
        for i in range(start, start + self.drips):
            handler.wfile.write(content[i : i + 1])
            if not self.arrived.wait(_LONGEST_WAIT):
                return
            self.arrived.clear()
        if self.drips:
            return
        cut = self._next(self.cuts, path)
        handler.wfile.write(content[start:] if cut is None else content[start : start + cut])

    @staticmethod
    def _next(scripts: dict[str, list[int]], path: str) -> int | None:
        for ending, script in scripts.items():
            if path.endswith(ending) and script:
                return script.pop(0)
        return None


@contextlib.contextmanager
def serving(directory: Path, tls: ssl.SSLContext | None = None) -> Iterator[MirrorServer]:
    """Serve a directory on a free port of loopback."""
    mirror = MirrorServer(directory)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            mirror.answer(self)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        mirror.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield mirror
        finally:
            server.shutdown()
            thread.join()
