"""Files that are replaced as a whole, or stay as they were."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO


def check_regular(path: Path) -> os.stat_result | None:
    """The status of a regular file; None if nothing is there.

    Raises:
        OSError: it is no regular file, but a folder, a pipe or a device, or can't be reached.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "Is not a regular file", str(path))
    return found


@contextlib.contextmanager
def replacing(path: Path, mode: int | None = None) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` at the end of the block, or of nothing after an error.

    A link stays one: the file is replaced that it leads to. Permissions stay, and the owner where
    the process may set it: root may write the file of another user's server.

    Args:
        mode: permissions of a file that was not there; by default, what the process gives.

    Raises:
        OSError: it can't be written, or is no regular file.
    """
    check_regular(path)
    path = path.resolve()
    with tempfile.NamedTemporaryFile(
        dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            _take_over(check_regular(path), file.fileno(), mode)
            os.replace(file.name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(file.name)
            raise


def _take_over(found: os.stat_result | None, descriptor: int, mode: int | None) -> None:
    """Give a file the permissions and the owner of the one that it replaces, if there is one."""
    if found is None:
        os.fchmod(descriptor, 0o666 & ~_mask() if mode is None else mode)
        return
    own = os.fstat(descriptor)
    if (found.st_uid, found.st_gid) != (own.st_uid, own.st_gid):
        with contextlib.suppress(PermissionError):  # only root may give files away
            os.fchown(descriptor, found.st_uid, found.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(found.st_mode))


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
