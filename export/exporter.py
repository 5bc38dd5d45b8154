"""Export of a checkpoint to a bundle that passed the parity check."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from export.bundle_writer import ExportOptions, ExportSource, write_bundle
from export.cache_steps import CacheSteps
from export.calibration import caches_in_int8, calibrated_steps
from export.carriers import record_carriers
from export.errors import ExportError
from export.parity import SENTENCES, OnProgress, ParityReport, check_parity, is_english
from export.shortlists import record_agreement, shortlist_for
from model.bundle.bundle import Bundle
from model.bundle.manifest import MANIFEST_FILE
from model.bundle.tokenizer import TOKENIZER_FILE, Tokenizer
from model.network.checkpoint import checkpoint_folder, load_checkpoint


def export_checkpoint(
    checkpoint: Path,
    output: Path,
    options: ExportOptions,
    sentences: Sequence[str] | None = None,
    *,
    num_carrier_sentences: int = 0,
    threads: int = 0,
    on_progress: OnProgress | None = None,
    shortlist_from: tuple[Path, Path] | None = None,
) -> ParityReport:
    """Export a checkpoint to a bundle and check the bundle's parity with the checkpoint.

    `output` is only written if the check passes. An older bundle there is replaced as a whole,
    unless its directory contains other files.

    Args:
        checkpoint: a directory that `model.network.checkpoint.save_checkpoint` wrote, or a run's.
        sentences: sentences in the source language, of the parity check and to measure the steps
            of 8-bit caches on; by default the English `export.parity.SENTENCES`.
        num_carrier_sentences: sentences to measure on which carriers the model copies; by default,
            nothing is measured.
        threads: threads for the parity check, as in `export.parity.check_parity`.
        on_progress: called by the parity check, as in `export.parity.check_parity`.
        shortlist_from: files of sentences and of their translations, to make a shortlist from; by
            default, the training's shortlist if there is one.

    Raises:
        CheckpointError: the checkpoint can't be read.
        ExportError: the model can't be exported, `output` is not a bundle, or the parity check
            failed.
    """
    options.check(shortlist_from)
    check_output(output)
    loaded = load_checkpoint(checkpoint)
    folder = checkpoint_folder(checkpoint)
    tokenizer = folder / TOKENIZER_FILE
    shortlist = shortlist_for(folder, shortlist_from, Tokenizer.load(tokenizer), loaded.config)
    in_language = sentences is not None or is_english(loaded.languages["source"])
    sentences = sentences or SENTENCES
    cache_steps: CacheSteps = {}
    if caches_in_int8(loaded.config, options, in_language=in_language):
        cache_steps = calibrated_steps(loaded.model, loaded.tokenizer, sentences)
    source = ExportSource(
        loaded.config,
        {name: tensor.numpy() for name, tensor in loaded.model.state_dict().items()},
        tokenizer,
        loaded.languages["source"],
        loaded.languages["target"],
        loaded.provenance,
        loaded.alignment_head,
        loaded.trained_length,
        shortlist=shortlist,
        cache_steps=cache_steps,
    )
    with new_directory(output) as directory:
        write_bundle(source, options, directory)
        bundle = Bundle.load(directory)
        report = check_parity(
            bundle,
            loaded.model,
            sentences,
            cache_steps=cache_steps,
            threads=threads,
            on_progress=on_progress,
        )
        record_agreement(directory, report.listed)
        if num_carrier_sentences:
            record_carriers(
                directory, loaded.model, loaded.tokenizer, sentences, num_carrier_sentences
            )
        return report


def check_output(path: Path) -> None:
    """Refuse a directory that no bundle can be written to.

    Raises:
        ExportError: `path` exists and is not a bundle, or contains other files than a bundle's.
    """
    if path.exists() and not (path / MANIFEST_FILE).is_file() and _holds_something(path):
        raise ExportError(f"{path} is in the way: it is not a bundle; choose another directory")
    for name in _foreign_files(path):
        raise ExportError(
            f"{path / name} is in the way: it is not part of the bundle there, whose directory "
            f"would be replaced; move it or choose another directory"
        )


def check_unused(path: Path) -> None:
    """Refuse a path that has something, a bundle included.

    Raises:
        ExportError: `path` exists and is not an empty directory.
    """
    if path.exists() and _holds_something(path):
        raise ExportError(f"{path} is in the way: name another directory")


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """A temporary directory that replaces `path` at the end, or is removed after an exception.

    Raises:
        ExportError: as in `check_output`.
    """
    check_output(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    old = temporary.with_name(f"{temporary.name}.old")
    try:
        yield temporary
        temporary.chmod(0o755)  # mkdtemp creates a private one
        try:
            if path.exists():  # out of the way at once: a server may look for it at any time
                os.replace(path, old)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):  # there was none, or the new one is in its place
                os.replace(old, path)
            raise
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _holds_something(path: Path) -> bool:
    """Whether `path` is a file, or a directory that is not empty."""
    return not path.is_dir() or any(path.iterdir())


def _foreign_files(path: Path) -> list[str]:
    """Names of files in a bundle's directory that no export wrote."""
    if not path.is_dir() or not any(path.iterdir()):
        return []
    own = {MANIFEST_FILE, "MODEL_CARD.md"}
    with contextlib.suppress(ValueError, AttributeError, TypeError):  # damaged: lists nothing
        own |= set(json.loads((path / MANIFEST_FILE).read_bytes()).get("sha256", {}))
    return sorted(file.name for file in path.iterdir() if file.name not in own)
