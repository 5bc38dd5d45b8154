"""The list of models that Mozilla publishes, `db/models.json`. Free of torch.

`PublicModelsJsonGenerator` in `db/updater.py` of mozilla/translations writes it:

    {"generated": "...Z", "baseUrl": "https://storage.googleapis.com/...", "models": {"en-de": [{
        "architecture": "base-memory", "releaseStatus": "Release",
        "sourceLanguage": "en", "targetLanguage": "de",
        "files": {
            "model": {"path": "models/en-de/.../model.ende.intgemm.alphas.bin.gz",
                      "uncompressedSize": 31561787, "uncompressedHash": "8df29d94..."},
            "vocab": {"path": "..."},                 or "srcVocab" and "trgVocab"
            "lexicalShortlist": {"path": "..."}},
        "metrics": {"flores200-plus": {"bleu": 40.0, "chrf": 66.1, "comet22": 0.865}}}]}}

Only the model has a size and a hash. Paths are relative to where the list's `db/` is, so that a
mirror needs no other list: `baseUrl` is not used.
"""

from __future__ import annotations

import json
import logging
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from export.errors import ExportError
from export.store.download import download
from export.store.mirror import Mirror
from export.store.pairs import language_code, pair_key

REGISTRY_FILE = "db/models.json"
MOZILLA_URL = "https://storage.googleapis.com/moz-fx-translations-data--303e-prod-translations-data"
LICENCE = "MPL-2.0"  # as Mozilla labels all of them; the list has no field for it
TYPES = ("base-memory", "base", "tiny")
"""Architectures, the preferred one first: that of Firefox on desktops."""
_RELEASES = ("Release", "Release Desktop", "Release Android")  # the preferred one first
_VOCABULARIES = ("vocab", "srcVocab", "trgVocab")
_ROLES = ("model", *_VOCABULARIES, "lexicalShortlist")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FILE_NAME = re.compile(r"[\w][\w.-]{0,127}")
# No others: config.json, say, would make a model of another kind of it.
_ENDING = re.compile(r".+\.(bin|spm)(\.gz|\.zstd?)?")
_RELEASE = re.compile(r"[\w .-]{0,64}")
_LARGEST = 2**31  # bytes of a file; the largest that is published has 2**26
_LARGEST_OTHER = 2**26
_LARGEST_LIST = 2**25
_MOST_LISTED = 12

_log = logging.getLogger("dragoman.pull")


@dataclass(frozen=True)
class PublishedFile:
    """A file of a model.

    Attributes:
        path: relative to the mirror.
        size: bytes when decompressed; None where the list does not say it.
        sha256: hexadecimal digest of the decompressed bytes; None where the list does not say it.
    """

    path: str
    size: int | None = None
    sha256: str | None = None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self.path).name

    @property
    def most_bytes(self) -> int:
        """Upper limit of its size in bytes, compressed or not."""
        return _LARGEST_OTHER if self.size is None else self.size + 2**16


@dataclass(frozen=True)
class PublishedModel:
    """A model of the list.

    Attributes:
        source, target: BCP-47 codes.
        architecture: its type: "base-memory", "tiny" ...
        release: channel in which Mozilla ships it: "Release", "Nightly" ...; "" if it does not.
        model: the file with the weights, which has a size and a hash.
        others: vocabularies, and the shortlist if there is one.
        scores: scores on FLORES-200, by metric.
    """

    source: str
    target: str
    architecture: str
    release: str
    model: PublishedFile
    others: tuple[PublishedFile, ...]
    scores: Mapping[str, float] = field(default_factory=dict)

    @property
    def pair(self) -> str:
        """Source and target, as the store names the pair."""
        return f"{self.source}-{self.target}"

    @property
    def files(self) -> tuple[PublishedFile, ...]:
        """All files."""
        return (self.model, *self.others)

    @property
    def is_released(self) -> bool:
        """Whether Firefox ships it."""
        return self.release in _RELEASES

    @property
    def rank(self) -> tuple[int, int]:
        """The place among the models of a pair; the preferred one has the smallest."""
        return _place(self.release, _RELEASES), _place(self.architecture, TYPES)


def read_registry(content: bytes, where: str) -> list[PublishedModel]:
    """The models of a list, by pair and then in order of preference.

    A model whose entry is damaged or of a new kind is left out with a warning: others can be
    pulled.

    Args:
        where: its address, for messages.

    Raises:
        ExportError: it is no such list; names the field.
    """
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as exc:
        raise ExportError(f"{where} is not JSON: {exc}") from exc
    pairs = fields.get("models") if isinstance(fields, dict) else None
    if not isinstance(pairs, dict) or not all(isinstance(each, list) for each in pairs.values()):
        raise ExportError(f"{where} is no list of models: it has no object `models` with lists")
    found = []
    for pair, entries in pairs.items():
        for number, entry in enumerate(entries):
            try:
                found.append(_ModelEntry(entry, f"models[{pair!r:.40}][{number}]").model())
            except ExportError as exc:
                _log.warning("%s: %s: left out", where, exc)
    return sorted(found, key=lambda model: (model.pair, model.rank))


def fetch_registry(mirror: Mirror) -> list[PublishedModel]:
    """The models that a mirror lists, as in `read_registry`.

    Raises:
        ExportError: the list can't be fetched, or is not such a list.
        OSError: there is no room for temporary files.
    """
    with tempfile.TemporaryDirectory(prefix="dragoman-") as folder:
        file = Path(folder) / "models.json"
        download(mirror, REGISTRY_FILE, file, _LARGEST_LIST, lambda *_: None)
        return read_registry(file.read_bytes(), mirror.address(REGISTRY_FILE))


def choose(models: Sequence[PublishedModel], pair: str, wanted_type: str | None) -> PublishedModel:
    """The preferred model of a pair.

    Args:
        models: models of the list, in its order.
        pair: languages in any spelling.
        wanted_type: the model's architecture; None for any.

    Raises:
        ExportError: no model fits; names those that come close.
    """
    key = pair_key(pair)
    of_pair = [model for model in models if model.pair.lower() == key]
    for model in of_pair:
        if wanted_type in (None, model.architecture):
            return model
    if of_pair:
        there = ", ".join(sorted({model.architecture for model in of_pair}))
        raise ExportError(f"{pair} has no model of the type {wanted_type}; it has {there}")
    raise ExportError(f"there is no model for {pair}{_hint(models, key)}")


def choose_all(
    models: Sequence[PublishedModel], language: str, wanted_type: str | None
) -> list[PublishedModel]:
    """The preferred released model of each pair with a language.

    Raises:
        ExportError: there is no such model.
    """
    code, chosen = language_code(language), dict[str, PublishedModel]()
    for model in models:
        is_wanted = wanted_type in (None, model.architecture) and model.is_released
        if is_wanted and code in (model.source, model.target):
            chosen.setdefault(model.pair, model)
    if not chosen:
        kind = f" of the type {wanted_type}" if wanted_type else ""
        raise ExportError(f"there is no released model{kind} from or into {language!r:.40}")
    return list(chosen.values())


def _hint(models: Sequence[PublishedModel], key: str) -> str:
    """Two models that translate through English, or else the languages of the source."""
    pairs = {model.pair.lower(): model.pair for model in models}
    source, _, target = key.partition("-")
    legs = [pairs.get(f"{source}-en"), pairs.get(f"en-{target}")]
    if all(legs):
        both = " ".join(filter(None, legs))
        return f", but two translate it through English: {both}"
    near = [pair for low, pair in pairs.items() if low.startswith(f"{source}-")][:_MOST_LISTED]
    return f"; from {source} there is {', '.join(near)}" if near else "; --list shows all"


def _place(value: str, preferred: Sequence[str]) -> int:
    return preferred.index(value) if value in preferred else len(preferred)


class _ModelEntry:
    """An entry of the list, read field by field."""

    def __init__(self, fields: Any, where: str) -> None:
        self._fields = fields
        self._where = where

    def model(self) -> PublishedModel:
        if not isinstance(self._fields, dict):
            raise ExportError(f"{self._where} is not an object")
        files = dict(self._files())
        model = files.pop("model", None)
        if model is None or model.sha256 is None or model.size is None:
            raise ExportError(
                f"{self._where}.files.model has no path with uncompressedSize and uncompressedHash"
            )
        if files.keys() & {*_VOCABULARIES} not in ({"vocab"}, {"srcVocab", "trgVocab"}):
            raise ExportError(f"{self._where}.files has neither vocab nor srcVocab and trgVocab")
        if len({PurePosixPath(file.path).name for file in (model, *files.values())}) <= len(files):
            raise ExportError(f"{self._where}.files has two files of the same name")
        release = self._fields.get("releaseStatus")
        return PublishedModel(
            *(self._language("sourceLanguage"), self._language("targetLanguage")),
            self._text("architecture"),
            release if isinstance(release, str) and _RELEASE.fullmatch(release) else "",
            model,
            tuple(files.values()),
            self._scores(),
        )

    def _text(self, name: str) -> str:
        value = self._fields.get(name)
        if not isinstance(value, str) or not re.fullmatch(r"[\w.-]{1,64}", value):
            raise ExportError(f"{self._where}.{name} is {value!r:.80}")
        return value

    def _language(self, name: str) -> str:
        code = language_code(self._text(name))
        try:
            pair_key(f"{code}-en")
        except ExportError as exc:
            raise ExportError(f"{self._where}.{name} is no language: {code!r}") from exc
        return code

    def _files(self) -> Iterator[tuple[str, PublishedFile]]:
        files = self._fields.get("files")
        if not isinstance(files, dict):
            raise ExportError(f"{self._where}.files is not an object")
        for role in _ROLES:
            if isinstance(entry := files.get(role), dict):
                yield role, self._file(entry, f"{self._where}.files.{role}")

    def _file(self, entry: Mapping[str, Any], where: str) -> PublishedFile:
        path, size = entry.get("path"), entry.get("uncompressedSize")
        digest = entry.get("uncompressedHash")
        parts = path.split("/") if isinstance(path, str) else []
        # From a foreign list: it must not lead out of the mirror, nor out of a directory here.
        if not parts or not all(_FILE_NAME.fullmatch(part) for part in parts):
            raise ExportError(f"{where}.path is no relative path of plain names: {path!r:.120}")
        if not _ENDING.fullmatch(parts[-1]):
            raise ExportError(f"{where}.path is no .bin or .spm, compressed or not: {path!r:.120}")
        if size is not None and (type(size) is not int or not 0 < size <= _LARGEST):
            raise ExportError(f"{where}.uncompressedSize is {size!r:.40}")
        if digest is not None and not (isinstance(digest, str) and _SHA256.fullmatch(digest)):
            raise ExportError(f"{where}.uncompressedHash is no SHA-256: {digest!r:.80}")
        return PublishedFile("/".join(parts), size, digest)

    def _scores(self) -> dict[str, float]:
        metrics = self._fields.get("metrics")
        scores = metrics.get("flores200-plus") if isinstance(metrics, dict) else None
        if not isinstance(scores, dict):
            return {}
        return {
            name: float(value)
            for name, value in scores.items()
            if isinstance(value, (int, float)) and abs(value) <= 100
        }
