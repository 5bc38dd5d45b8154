"""Downloads a file of limited size, and resumes after an interruption. Free of torch.

While a file arrives, it is called `NAME.part`; `NAME.version` says which version of it that is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from export.errors import ExportError
from export.store.mirror import Mirror, TransientError

_MOST_ATTEMPTS = 6
_FIRST_WAIT_SECONDS = 0.5  # doubled with every attempt

_log = logging.getLogger("dragoman.pull")

# Called with the file's name, the number of bytes that have arrived, and of all bytes (0 if that is
# not known).
OnBytes = Callable[[str, int, int], None]


def download(
    mirror: Mirror,
    path: str,
    file: Path,
    most_bytes: int,
    on_bytes: OnBytes,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Download a file, unless it is there already.

    Bytes that arrived before an interruption are kept and not asked for again. Without room on the
    disk, they are removed.

    Args:
        most_bytes: limit of its size in bytes.

    Raises:
        ExportError: it is not there, is too large, or did not arrive whole after some attempts;
            names its address.
        OSError: it can't be written.
    """
    if file.exists():
        return
    address = mirror.address(path)
    part = file.with_name(f"{file.name}.part")
    for attempt in range(_MOST_ATTEMPTS):
        if attempt:
            wait(_FIRST_WAIT_SECONDS * 2 ** (attempt - 1))
        try:
            _receive(mirror, path, part, most_bytes, on_bytes)
        except TransientError as exc:
            reason = exc
            _log.info("%s: %s", address, exc)
            continue
        except OSError:
            _remove(part)
            raise
        part.replace(file)
        _version_file(part).unlink(missing_ok=True)
        return
    raise ExportError(
        f"{address} did not arrive in {_MOST_ATTEMPTS} attempts ({reason}); what did is kept, and "
        f"the next pull resumes from there"
    )


def _receive(mirror: Mirror, path: str, part: Path, most_bytes: int, on_bytes: OnBytes) -> None:
    """Receive the missing part of a file."""
    version_file = _version_file(part)
    start = part.stat().st_size if part.exists() else 0
    version = version_file.read_text(encoding="utf-8") if version_file.exists() else ""
    with mirror.open(path, start, version) as found:
        # The bytes that are there are of the version in the file beside them, whenever this ends.
        if not found.start:
            part.write_bytes(b"")
            version_file.write_text(found.version, encoding="utf-8")
        size = found.start
        with part.open("ab") as writer:
            for chunk in found.chunks:
                size += len(chunk)
                if size > most_bytes:
                    _remove(part)
                    raise ExportError(
                        f"{mirror.address(path)} has more than {most_bytes:,} bytes, more than "
                        f"such a file can have"
                    )
                writer.write(chunk)
                on_bytes(part.stem, size, found.total or 0)
    # Where nobody says the length, the end is that of HTTP's chunks, which the library checks.
    if size != found.total and (found.total is not None or not size):
        raise TransientError(f"{size:,} bytes arrived, not {found.total or 'all'}")


def _remove(part: Path) -> None:
    part.unlink(missing_ok=True)
    _version_file(part).unlink(missing_ok=True)


def _version_file(part: Path) -> Path:
    return part.with_suffix(".version")
