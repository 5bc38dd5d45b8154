"""From a checkpoint to a bundle that is proven to translate alike."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from export.bundle_writer import ExportOptions, ExportSource, write_bundle
from export.errors import ExportError
from export.proof import SENTENCES, OnProgress, Proof, prove
from model.bundle import MANIFEST_FILE, Bundle
from model.checkpoint import load_checkpoint
from model.tokenizer import TOKENIZER_FILE


def export_checkpoint(
    checkpoint: Path,
    output: Path,
    options: ExportOptions,
    sentences: Sequence[str] | None = None,
    *,
    threads: int = 0,
    on_progress: OnProgress | None = None,
) -> Proof:
    """Make a bundle of a checkpoint and prove that it translates alike.

    `output` appears whole and proven, or not at all; an older bundle there is replaced, unless
    something else lies among its files.

    Args:
        checkpoint: a directory that `model.checkpoint.save_checkpoint` wrote.
        output: the bundle's directory.
        options: precision and names.
        sentences: to prove it on; by default `export.proof.SENTENCES`.
        threads: of the proof, as in `export.proof.prove`.
        on_progress: likewise.

    Raises:
        CheckpointError: the checkpoint can't be read.
        ExportError: the model can't be exported, `output` is something else than a bundle, or the
            bundle does not agree with the checkpoint.
    """
    loaded = load_checkpoint(checkpoint)
    source = ExportSource(
        loaded.config,
        {name: tensor.numpy() for name, tensor in loaded.model.state_dict().items()},
        checkpoint / TOKENIZER_FILE,
        loaded.languages["source"],
        loaded.languages["target"],
        loaded.provenance,
        loaded.alignment_head,
        loaded.trained_length,
    )
    with new_directory(output) as directory:
        write_bundle(source, options, directory)
        return prove(
            Bundle.load(directory),
            loaded.model,
            sentences or SENTENCES,
            threads=threads,
            on_progress=on_progress,
        )


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """A directory beside `path` that takes its place at the end, or vanishes after an exception.

    Raises:
        ExportError: `path` is there and not a bundle, or a bundle with other files beside it.
    """
    if path.exists() and not (path / MANIFEST_FILE).is_file() and _holds_something(path):
        raise ExportError(f"{path} is in the way: it is not a bundle; name another directory")
    for name in _foreign_files(path):
        raise ExportError(
            f"{path / name} is in the way: it is not part of the bundle beside it, which would be "
            f"replaced with everything in its directory; move it or name another directory"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield temporary
        temporary.chmod(0o755)  # mkdtemp makes private ones
        if path.exists():
            shutil.rmtree(path)
        os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _holds_something(path: Path) -> bool:
    """Whether `path` is a file, or a directory that isn't empty."""
    return not path.is_dir() or any(path.iterdir())


def _foreign_files(path: Path) -> list[str]:
    """What lies in a bundle's directory and is nothing that an export puts there."""
    if not path.is_dir() or not any(path.iterdir()):
        return []
    own = {MANIFEST_FILE, "MODEL_CARD.md"}
    with contextlib.suppress(ValueError, AttributeError, TypeError):  # damaged: it lists nothing
        own |= set(json.loads((path / MANIFEST_FILE).read_bytes()).get("sha256", {}))
    return sorted(file.name for file in path.iterdir() if file.name not in own)
