"""Files that a server or command reads: settings, manifests and caches."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from cli.segment_cache import SegmentCache
from model.bundle.bundle import Bundle
from model.bundle.manifest import MANIFEST_FILE, BundleError
from service.errors import StartupError
from service.settings_sources import load_settings
from tests.robustness.fuzz.mutations import (
    NUMBERS,
    changed_bytes,
    odd_text,
    random_bytes,
)
from tests.robustness.fuzz.target import MEMORY, ROOT, expect

_BUNDLE = ROOT / "model" / "pretrained" / "en-de"


def json_changed(rng: random.Random, value: Any) -> Any:
    """A JSON value with another one somewhere in it."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(list(value))
        if rng.random() < 0.1:
            return {key: inner for key, inner in value.items() if key != name}
        if rng.random() < 0.05:
            return {**value, odd_text(rng, 1): None}
        return {**value, name: json_changed(rng, value[name])}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], json_changed(rng, value[at]), *value[at + 1 :]]
    odd: tuple[Any, ...] = (
        None,
        True,
        0,
        -1,
        10**30,
        1e300,
        float("nan"),
        "",
        "x",
        [],
        {},
        [[]],
        *NUMBERS,
    )
    return odd_text(rng, 2) if rng.random() < 0.3 else rng.choice(odd)


def json_bytes(rng: random.Random, value: Any) -> bytes:
    """A JSON file, changed in some values or bytes."""
    for _ in range(rng.choice((0, 1, 1, 2))):
        value = json_changed(rng, value)
    data = json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    return changed_bytes(rng, data) if rng.random() < 0.3 else data


class InDirectory:
    """A target that writes files into a directory of its own."""

    def __init__(self) -> None:
        self._made = tempfile.TemporaryDirectory(prefix="dragoman-fuzz-", dir=MEMORY)
        self.directory = Path(self._made.name)


class SettingsFiles(InDirectory):
    """Settings in files and variables."""

    name: ClassVar[str] = "settings"
    share: ClassVar[float] = 4
    what: ClassVar[str] = "settings in TOML files and environment variables"
    _names = (
        "port",
        "host",
        "model",
        "threads",
        "max_rows",
        "keys",
        "tracing",
        "glossary",
        "default",
    )

    def generate(self, rng: random.Random) -> tuple[bytes, dict[str, str]]:
        """Generate a file and variables."""
        values = (
            "1",
            "-1",
            '"x"',
            "true",
            "[]",
            '["a", "b"]',
            "1.5",
            "nan",
            "inf",
            "{}",
            "2026-01-01",
        )
        lines = (
            f"{rng.choice(self._names)} = {rng.choice(values)}" for _ in range(rng.randint(0, 4))
        )
        data = "\n".join(lines).encode()
        if rng.random() < 0.4:
            data = changed_bytes(rng, data)
        if rng.random() < 0.001:
            data = rng.choice((b"a = " + b"[" * 50_000, b"a = " + b"9" * 50_000))
        names = (
            f"DRAGOMAN_{rng.choice(self._names).upper()}" for _ in range(rng.choice((0, 0, 1, 2)))
        )
        variables = {name: rng.choice((odd_text(rng, 2), *NUMBERS)) for name in names}
        return data, variables

    def run(self, given: tuple[bytes, dict[str, str]]) -> str:
        """Load them."""
        data, variables = given
        file = self.directory / "dragoman.toml"
        file.write_bytes(data)
        try:
            load_settings({}, variables, file)
        except StartupError as exc:
            expect(bool(str(exc)), "a refusal without a reason", given)
            return "refused"
        return "loaded"


class Manifests(InDirectory):
    """Bundles with a changed manifest and the files of the included model."""

    name: ClassVar[str] = "bundles"
    share: ClassVar[float] = 2
    what: ClassVar[str] = "manifests of bundles and their calibration (files are not compared)"

    def __init__(self) -> None:
        super().__init__()
        for file in _BUNDLE.iterdir():
            if file.name != MANIFEST_FILE:
                (self.directory / file.name).symlink_to(file)
        self._manifest = json.loads((_BUNDLE / MANIFEST_FILE).read_text(encoding="utf-8"))

    def generate(self, rng: random.Random) -> bytes:
        """A manifest."""
        if rng.random() < 0.002:
            return rng.choice((b"[" * 100_000, b'{"a":' * 100_000, b""))
        return json_bytes(rng, self._manifest)

    def run(self, given: bytes) -> str:
        """Load the bundle, without its checksums."""
        (self.directory / MANIFEST_FILE).write_bytes(given)
        try:
            bundle = Bundle.load(self.directory, verify=False)
        except BundleError as exc:
            expect(bool(str(exc)), "a refusal without a reason", given)
            return "refused"
        expect(bool(bundle.name) and bool(bundle.directions.sources), "a bundle without a name")
        return "loaded"


_MIME_TYPES = ("text/plain", "text/html", "text/markdown")


class Caches(InDirectory):
    """Caches from which `translate-file` continues."""

    name: ClassVar[str] = "caches"
    share: ClassVar[float] = 2
    what: ClassVar[str] = "caches from which translate-file goes on"

    def generate(self, rng: random.Random) -> tuple[list[tuple[str, str, str]], bytes, int]:
        """Generate parts with translations, and bytes to write over the file at a position."""
        parts = [(odd_text(rng, 3), rng.choice(_MIME_TYPES), odd_text(rng, 3)) for _ in range(3)]
        return parts, random_bytes(rng, 30), rng.getrandbits(16)

    def run(self, given: tuple[list[tuple[str, str, str]], bytes, int]) -> str:
        """Write the cache, damage it, and read it: entries found must be those written."""
        parts, damage, place = given
        output = self.directory / "a.txt"
        kept = {}
        with SegmentCache(output, ["m"]) as cache:
            for text, mime_type, translation in parts:
                if _is_text(translation) and (text, mime_type) not in kept:
                    cache.add(text, mime_type, translation)
                    kept[text, mime_type] = translation
            cache.flush()
        data = cache.path.read_bytes()
        place %= len(data) + 1
        spoilt = data[:place] + damage + data[place + len(damage) :] if damage else data[:place]
        cache.path.write_bytes(spoilt)
        try:
            with SegmentCache(output, ["m"]) as cache:
                for (text, mime_type), translation in kept.items():
                    found = cache.get(text, mime_type)
                    is_same = found in (None, translation) or bool(damage)
                    expect(is_same, "another translation than was kept", given)
                cache.remove()
        finally:
            cache.path.unlink(missing_ok=True)
        return "read"


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


TARGETS: Sequence[Callable[[], Any]] = (
    SettingsFiles, Manifests, Caches,
)  # fmt: skip
