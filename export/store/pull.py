"""Pulls a model into the store: downloads its files, checks them, imports and proves them."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from export.bundle_writer import ExportOptions
from export.carriers import NUM_SENTENCES
from export.errors import ExportError
from export.importer import Imported, import_directory
from export.marian.binary import read_compressed
from export.output_directory import check_output
from export.parity import OnProgress
from export.store.download import OnBytes, download
from export.store.mirror import Mirror
from export.store.model_store import ModelStore
from export.store.registry import LICENCE, PublishedFile, PublishedModel
from model.bundle.bundle import Bundle
from model.bundle.languages import is_common_code
from model.bundle.manifest import BundleError

_log = logging.getLogger("dragoman.pull")

# Makes what shows progress in a unit ("bytes", "sentences"), for the time of a stage.
ShowProgress = Callable[[str], contextlib.AbstractContextManager[OnProgress]]


@dataclass(frozen=True)
class PullOptions:
    """Options for the import of models.

    Attributes:
        precision: int8, fp32 or fp16.
        num_sentences: sentences of the proof; None for all, 0 for no proof.
        threads: CPU threads of the proof; 0 to measure how many are fastest.

    Raises:
        ExportError: there is no such precision; nothing has been downloaded then.
    """

    precision: str = "int8"
    num_sentences: int | None = None
    threads: int = 0

    def __post_init__(self) -> None:
        ExportOptions(self.precision).check()


@dataclass(frozen=True)
class Pulled:
    """A model in the store.

    Attributes:
        imported: the outcome of the import; None if the store had the model already.
    """

    pair: str
    bundle: Path
    imported: Imported | None


def pull_published(
    model: PublishedModel,
    mirror: Mirror,
    store: ModelStore,
    options: PullOptions,
    show: ShowProgress,
) -> Pulled:
    """Pull a model of the list, unless the store has the same, undamaged.

    Another model of the pair is replaced. Of two pulls of a pair at once, the second one waits and
    finds the first one's result.

    Raises:
        ExportError: a file is missing or damaged, or the import failed; names the file.
        OSError: the store can't be written.
    """
    origin: dict[str, Any] = {
        "url": mirror.address(model.model.path),
        "revision": model.model.sha256,
        "license": LICENCE,
        "type": model.architecture,
        "release": model.release,
    }

    def obtain(folder: Path) -> Path:
        with show("bytes") as on_bytes:
            origin["files"] = {
                file.path: _obtain(file, mirror, folder, on_bytes) for file in model.files
            }
        return folder

    version = f"{model.architecture}-{str(model.model.sha256)[:8]}"
    languages = [model.source, model.target]
    return _pull(model.pair, version, languages, origin, obtain, store, options, show, model.files)


def pull_hub(
    pair: str,
    locate: Callable[[str], tuple[Path, dict[str, Any]]],
    store: ModelStore,
    options: PullOptions,
    show: ShowProgress,
) -> Pulled:
    """Pull the OPUS-MT model of a pair from the Hugging Face hub, by the convention of its names.

    Args:
        pair: languages as the model's name has them: "en-de", "en-ROMANCE".

    Raises:
        ExportError: the hub has no such model or can't be reached, or the import failed.
        OSError: the store can't be written.
    """
    name = f"Helsinki-NLP/opus-mt-{pair}"
    folder, origin = locate(name)
    parts = pair.split("-")
    # A group's code ("roa") is no language: the model's own files say which ones it has.
    languages = parts if len(parts) == 2 and all(map(is_common_code, parts)) else None
    version = f"opus-{str(origin.get('revision', ''))[:8]}".rstrip("-")
    origin = {"hub": name, **origin}
    return _pull(pair, version, languages, origin, lambda _: folder, store, options, show)


def _pull(
    pair: str,
    version: str,
    languages: list[str] | None,
    origin: dict[str, Any],
    obtain: Callable[[Path], Path],
    store: ModelStore,
    options: PullOptions,
    show: ShowProgress,
    listed: Sequence[PublishedFile] = (),
) -> Pulled:
    """Obtain a model's files and import them.

    Args:
        listed: what a list says of its files. If the import fails, those without a hash are
            removed: one of them may be the reason.
    """
    bundle = store.bundle(pair)

    def on_wait() -> None:
        _log.info("%s: another pull is at work; waiting for it", pair)

    made_as = ExportOptions(options.precision, pair, version)
    made_as.check()  # before files are downloaded that no bundle can be made of
    with store.locked(pair, on_wait):
        if _is_there(store.manifest(pair), origin, listed, options) and _is_whole(pair, bundle):
            return Pulled(pair, bundle, None)
        check_output(bundle)  # before files are downloaded, too
        # Files of another model of the pair have the same names.
        folder = store.downloads(pair) / hashlib.sha256(version.encode()).hexdigest()[:16]
        folder.mkdir(exist_ok=True)
        files = obtain(folder)
        try:
            with show("sentences") as on_progress:
                imported = import_directory(
                    files,
                    bundle,
                    made_as,
                    languages,
                    num_sentences=options.num_sentences,
                    num_carrier_sentences=NUM_SENTENCES,
                    threads=options.threads,
                    on_progress=on_progress,
                    origin=origin,
                )
        except OSError:  # of this machine, such as no room: the files are good
            raise
        except Exception:
            for file in listed:
                if file.sha256 is None:
                    (files / file.name).unlink(missing_ok=True)
            raise
        for old in filter(Path.is_dir, store.downloads(pair).iterdir()):
            shutil.rmtree(old)
    return Pulled(pair, bundle, imported)


def _is_there(
    manifest: dict[str, Any],
    origin: dict[str, Any],
    listed: Sequence[PublishedFile],
    options: PullOptions,
) -> bool:
    """Whether a bundle was made of these files, with the precision and the proof of the options."""
    provenance = manifest.get("provenance")
    made_from = provenance.get("imported_from") if isinstance(provenance, dict) else None
    if not isinstance(provenance, dict) or not isinstance(made_from, dict):
        return False
    return (
        made_from.get("revision") == origin.get("revision") is not None
        and _is_made_of(made_from.get("files"), listed)
        and manifest.get("precision") == options.precision
        and (options.num_sentences == 0 or provenance.get("proof") is not None)
    )


def _is_made_of(digests: Any, listed: Sequence[PublishedFile]) -> bool:
    """Whether files with these digests, by path, are those of a list, as far as it says."""
    if not isinstance(digests, dict):
        return True  # a bundle from before digests were kept: its revision is the model's
    return all(
        file.path in digests if file.sha256 is None else file.sha256 in digests.values()
        for file in listed
    )


def _is_whole(pair: str, path: Path) -> bool:
    """Whether a bundle can be served: its files are there, and as its manifest says."""
    try:
        Bundle.load(path)
    except BundleError as exc:
        _log.warning("%s: the model here can't be used, and is pulled again. %s", pair, exc)
        return False
    return True


def _obtain(file: PublishedFile, mirror: Mirror, folder: Path, on_bytes: OnBytes) -> str:
    """Download a file and compare it with what the list says of it; returns its SHA-256."""
    here = folder / file.name
    download(mirror, file.path, here, file.most_bytes, on_bytes)
    try:
        found = hashlib.sha256(read_compressed(here, file.most_bytes)).hexdigest()
        if file.sha256 not in (None, found):
            raise ExportError(
                f"{mirror.address(file.path)} is damaged, or another file than the list says: "
                f"its SHA-256 is {found}, not {file.sha256}; it was removed"
            )
        return found
    except ExportError:
        here.unlink(missing_ok=True)
        raise
