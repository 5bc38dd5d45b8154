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

_MOST_ATTEMPTS = 6  # without progress
_FIRST_WAIT_SECONDS = 0.5  # doubled with every attempt
_LEAST_SPEED = 2**14  # bytes a second: the largest model takes an hour then
_SLOW_SECONDS = 300  # in which none need arrive
_KEPT = "what did is kept, and the next pull resumes from there"

_log = logging.getLogger("dragoman.pull")

# Called with the file's name, the number of bytes that have arrived, and of all bytes (0 if that is
# not known).
OnBytes = Callable[[str, int, int], None]


class _Pace:
    """Ends a download whose bytes arrive too slowly on average, waits included.

    Args:
        address: the file's address, for messages.
        clock: gives seconds.
    """

    def __init__(self, address: str, clock: Callable[[], float]) -> None:
        self._address, self._clock = address, clock
        self._begin, self._num_bytes = clock(), 0

    def check(self, num_bytes: int) -> None:
        """Count bytes that arrived.

        Raises:
            ExportError: they are too few.
        """
        self._num_bytes += num_bytes
        seconds = self._clock() - self._begin
        if seconds > _SLOW_SECONDS + self._num_bytes / _LEAST_SPEED:
            raise ExportError(
                f"{self._address} is too slow: {self._num_bytes:,} bytes arrived in {seconds:,.0f} "
                f"s, and after {_SLOW_SECONDS} s {_LEAST_SPEED:,} a second are the least; {_KEPT}"
            )


def download(
    mirror: Mirror,
    path: str,
    file: Path,
    most_bytes: int,
    on_bytes: OnBytes,
    wait: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Download a file, unless it is there already.

    Bytes that arrived before an interruption are kept and not asked for again. Without room on the
    disk, they are removed. As long as each attempt brings more of the file, there is another one.

    Args:
        most_bytes: limit of its size in bytes.
        clock: gives seconds.

    Raises:
        ExportError: it is not there, is too large, arrives too slowly, or did not arrive whole
            after some attempts; names its address.
        OSError: it can't be written.
    """
    if file.exists():
        return
    address = mirror.address(path)
    part = file.with_name(f"{file.name}.part")
    pace, most, num_failed = _Pace(address, clock), _size(part), 0
    while True:
        pace.check(0)
        try:
            _receive(mirror, path, part, most_bytes, on_bytes, pace)
            break
        except TransientError as exc:
            _log.info("%s: %s", address, exc)
            num_failed = 0 if _size(part) > most else num_failed + 1
            most = max(most, _size(part))
            if num_failed == _MOST_ATTEMPTS:
                raise ExportError(
                    f"{address} did not arrive: the last {_MOST_ATTEMPTS} attempts brought nothing "
                    f"more ({exc}); {_KEPT}"
                ) from exc
        except OSError:
            _remove(part)
            raise
        wait(_FIRST_WAIT_SECONDS * 2 ** max(0, num_failed - 1))
    part.replace(file)
    _version_file(part).unlink(missing_ok=True)


def _receive(
    mirror: Mirror, path: str, part: Path, most_bytes: int, on_bytes: OnBytes, pace: _Pace
) -> None:
    """Receive the missing part of a file."""
    version_file = _version_file(part)
    start = _size(part)
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
                pace.check(len(chunk))
    # Where nobody says the length, the end is that of HTTP's chunks, which the library checks.
    if size != found.total and (found.total is not None or not size):
        raise TransientError(f"{size:,} bytes arrived, not {found.total or 'all'}")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _remove(part: Path) -> None:
    part.unlink(missing_ok=True)
    _version_file(part).unlink(missing_ok=True)


def _version_file(part: Path) -> Path:
    return part.with_suffix(".version")
