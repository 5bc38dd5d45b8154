"""Glossaries of the server, which requests refer to by name: tab-separated values, or TBX.

A line is a term, a tab and its translation, or several accepted ones with `|` between them. Blank
lines and those that begin with `#` are skipped. The languages are in the name of the file, as in
`NAME.en-de.tsv`, or in the first line: `#languages`, a tab, a code, a tab, a code. A glossary
without languages is for all. A file of TBX (`tbx.py`) has glossaries for all of its languages, or
for those in its name.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from model.bundle.languages import is_language_code, primary_subtag, without_region
from service.errors import InvalidArgumentError, NotFoundError, StartupError
from service.glossaries.glossary import Entry, Glossary

MAX_ENTRIES = 100_000
"""Most entries in one file."""
_MAX_BYTES = 64 * 2**20
_CHECK_SECONDS = 1.0
_SUFFIXES = (".tsv", ".tbx")
_LANGUAGES = re.compile(r"(.+)\.([A-Za-z]{2,3})-([A-Za-z]{2,3})")
_MAX_NAMES = 20  # most names in a message
_MAX_SHOWN = 80  # most characters of a name in a message

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GlossaryFile:
    """A glossary that was read from a file.

    Attributes:
        languages: BCP-47 codes of source and target; empty for all languages.
        glossary: entries of the glossary.
        stamp: time of the file's last change in nanoseconds, and its size in bytes.
    """

    languages: tuple[str, ...]
    glossary: Glossary
    stamp: tuple[int, int]

    def fits(self, source: str, target: str) -> bool:
        """Whether it is for these languages; an additional region or script does not matter."""
        pairs = zip(self.languages, (source, target), strict=False)
        return all(
            code.lower() in (given.lower(), without_region(given).lower(), primary_subtag(given))
            for code, given in pairs
        )


def read_glossary(path: Path) -> tuple[GlossaryFile, ...]:
    """Read a file: one glossary, or one for each direction of a TBX file.

    Raises:
        StartupError: the file can't be read; the message names the line.
    """
    try:
        status = path.stat()
    except OSError as exc:
        raise StartupError(f"{path}: can't be read: {exc}") from exc
    if status.st_size > _MAX_BYTES:
        raise StartupError(f"{path}: larger than {_MAX_BYTES // 2**20} MiB, the limit")
    read = _read_tbx if path.suffix.lower() == ".tbx" else _read_tsv
    files = []
    for languages, entries in read(path):
        glossary = Glossary(tuple(entries))
        glossary.prepare()
        files.append(GlossaryFile(languages, glossary, (status.st_mtime_ns, status.st_size)))
    return tuple(files)


def _read_tbx(path: Path) -> Iterator[tuple[tuple[str, ...], Iterable[Entry]]]:
    from service.glossaries.tbx import entries_of, read_tbx  # imports an XML library

    found = read_tbx(path, MAX_ENTRIES, _languages_of_name(path))
    if not found:
        raise StartupError(f"{path}: has no terms in two languages, or not in those of its name")
    for languages, terms in found.items():
        yield languages, entries_of(terms)


def _read_tsv(path: Path) -> Iterator[tuple[tuple[str, ...], Iterable[Entry]]]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as exc:
        raise StartupError(f"{path}: can't be read as UTF-8: {exc}") from exc
    languages = _languages(path, lines[0].rstrip("\r"))
    rows = [
        (number, line.rstrip("\r").split("\t"))
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.startswith("#")
    ]
    if len(rows) > MAX_ENTRIES:
        raise StartupError(f"{path}: more than {MAX_ENTRIES:,} entries, the limit")
    entries: list[Entry] = []
    for number, cells in rows:
        try:
            if len(cells) != 2:
                raise StartupError(
                    f"{path}, line {number}: needs two columns with a tab between them, "
                    f"has {len(cells)}"
                )
            entries += Glossary.of([(cells[0], cells[1])], field="line").entries
        except InvalidArgumentError as exc:
            name = exc.field.rpartition(".")[2]
            raise StartupError(f"{path}, line {number}: {name}: {exc.description}") from exc
    yield languages, entries


def _languages(path: Path, first_line: str) -> tuple[str, ...]:
    if first_line.startswith("#languages\t"):
        codes = tuple(code.strip() for code in first_line.split("\t")[1:])
        if len(codes) != 2 or not all(map(is_language_code, codes)):
            raise StartupError(f"{path}, line 1: must be #languages and two language codes")
        return codes
    return _languages_of_name(path)


def _languages_of_name(path: Path) -> tuple[str, ...]:
    match = _LANGUAGES.fullmatch(_stem(path))
    return match.group(2, 3) if match else ()


def _stem(path: Path) -> str:
    return path.stem if path.suffix.lower() in _SUFFIXES else path.name


@dataclass
class GlossaryFiles:
    """The glossaries that requests may name, read again when their files change.

    Attributes:
        files: name and path of each file; a name can have a file for each pair of languages.
        directories: directories with further files.
    """

    files: tuple[tuple[str, Path], ...] = ()
    directories: tuple[Path, ...] = ()
    _read: dict[Path, tuple[GlossaryFile, ...]] = field(default_factory=dict)
    _failed: dict[Path, tuple[int, int]] = field(default_factory=dict)
    _checked_at: float = float("-inf")
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def of(cls, named: Iterable[str], directories: Iterable[Path]) -> GlossaryFiles:
        """Read the glossaries of the settings.

        Args:
            named: files, each as NAME=FILE.
            directories: directories with further files.

        Raises:
            StartupError: a file can't be read; the message names the file and the line.
        """
        files = []
        for given in named:
            name, separator, path = given.partition("=")
            if not (name and separator and path):
                raise StartupError(f"setting glossary: must be NAME=FILE, not {given!r}")
            files.append((name, Path(path)))
        self = cls(tuple(files), tuple(directories))
        for directory in self.directories:
            if not directory.is_dir():
                raise StartupError(f"setting glossary_dir: {directory} is not a directory")
        self._read = {path: read_glossary(path) for _, path in self._paths()}
        return self

    async def get(self, name: str, source: str, target: str) -> Glossary:
        """The glossary with a name, for two languages.

        Args:
            name: name from a request.
            source: BCP-47 code of the texts.
            target: BCP-47 code of the translations.

        Raises:
            NotFoundError: no glossary has this name; the message lists the names.
            InvalidArgumentError: the glossary is not for these languages.
        """
        async with self._lock:
            if time.monotonic() - self._checked_at >= _CHECK_SECONDS:
                self._read = await asyncio.to_thread(self._refreshed, dict(self._read))
                self._checked_at = time.monotonic()
        paths: dict[str, list[Path]] = {}
        for each, path in self._paths_of(self._read):
            paths.setdefault(each, []).append(path)
        if name not in paths:
            names = ", ".join(sorted(paths)[:_MAX_NAMES]) or "none"
            shown = name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}..."
            raise NotFoundError(
                f"glossary.name: there is no glossary {shown!r}; there are: {names}"
            )
        found = [file for path in paths[name] for file in self._read.get(path, ())]
        for file in sorted(found, key=lambda file: not file.languages):
            if file.fits(source, target):
                return file.glossary
        pairs = ", ".join("-".join(file.languages) for file in found[:_MAX_NAMES])
        raise InvalidArgumentError("glossary.name", f"it is for {pairs}, not {source}-{target}")

    def _refreshed(
        self, read: dict[Path, tuple[GlossaryFile, ...]]
    ) -> dict[Path, tuple[GlossaryFile, ...]]:
        """Read changed files again. A glossary that can't be read stays unchanged."""
        now: dict[Path, tuple[GlossaryFile, ...]] = {}
        for _, path in self._paths():
            before = read.get(path)
            try:
                status = path.stat()
                stamp = (status.st_mtime_ns, status.st_size)
                if before is None or before[0].stamp != stamp:
                    if self._failed.get(path) == stamp:
                        raise StartupError("")  # has been logged
                    before = read_glossary(path)
                    _log.info("glossary read", extra={"path": str(path)})
            except (OSError, StartupError) as exc:
                if str(exc):
                    _log.error("glossary not read: %s", exc)
                if isinstance(exc, StartupError):
                    self._failed[path] = stamp
            if before is not None:
                now[path] = before
        return now

    def _paths(self) -> list[tuple[str, Path]]:
        """The name and path of each present file."""
        found = [
            path
            for each in self.directories
            for suffix in _SUFFIXES
            for path in sorted(each.glob(f"*{suffix}"))
        ]
        return [*self.files, *((_name(path), path) for path in found)]

    def _paths_of(self, read: Mapping[Path, tuple[GlossaryFile, ...]]) -> list[tuple[str, Path]]:
        """The name and path of each file that was read."""
        named = {path for _, path in self.files}
        return [*self.files, *((_name(path), path) for path in read if path not in named)]


def _name(path: Path) -> str:
    match = _LANGUAGES.fullmatch(_stem(path))
    return match.group(1) if match else _stem(path)
