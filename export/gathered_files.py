"""The model that a user names: a directory, a name on the hub, or single files."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from export.errors import ExportError
from export.huggingface.hub import locate


@contextlib.contextmanager
def located(sources: Sequence[str], revision: str | None) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A directory with a model's files, and facts about their origin.

    Files are linked into a temporary directory, which readers then find them in.

    Args:
        sources: a directory, a name on the hub, or files.
        revision: branch, tag or commit of a model on the hub.

    Raises:
        ExportError: a file does not exist or is a directory, two have the same name, or what
            `locate` raises.
        OSError: there is no room for a temporary directory.
    """
    files = [Path(source) for source in sources]
    if len(files) == 1 and not files[0].is_file():
        yield locate(sources[0], revision)
        return
    # The name must say no languages.
    with tempfile.TemporaryDirectory(prefix="dragoman.") as name:
        directory = Path(name)
        for file in files:
            if not file.is_file():
                raise ExportError(f"{file} is not a file: name one directory, or files only")
            link = directory / file.name
            if link.is_symlink():
                raise ExportError(f"{file}: another file is called {file.name}, too")
            link.symlink_to(file.resolve())
        try:
            yield directory, {"directory": files[0].resolve().parent.name}
        except ExportError as exc:
            # The user knows the files by other names than the links'.
            text = str(exc).replace(f"{directory}/", "").replace(name, " ".join(sources))
            raise ExportError(text) from exc
