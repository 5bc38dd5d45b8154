"""Documents that are zip files of XML parts: read within limits, written with other parts."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping

from service.documents.document import DocumentLimits, bad_document

# The ratio of smaller parts does not matter.
_SMALL_PART = 2**20
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Archive:
    """A zip file.

    Attributes:
        names: names of the parts, in order.

    Raises:
        InvalidArgumentError: the file is not a zip file, is damaged, or exceeds a limit; names it.
    """

    def __init__(self, data: bytes, limits: DocumentLimits) -> None:
        self._data = data
        self._limits = limits
        # Each directory entry begins with this. They are counted before they are parsed.
        limits.check("parts", data.count(b"PK\x01\x02"))
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, ValueError, OSError, RuntimeError) as exc:
            raise bad_document(f"is no zip file, or cut off: {exc}") from exc
        self._infos = {info.filename: info for info in self._zip.infolist()}
        self.names = list(self._infos)
        self._check()

    def _check(self) -> None:
        limits, infos = self._limits, self._zip.infolist()
        if len(self._infos) != len(infos):
            raise bad_document("has two parts of one name")
        total = sum(info.file_size for info in infos)
        limits.check("unpacked_bytes", total)
        self._check_ratio(total, len(self._data), "")
        for info in infos:
            if info.flag_bits & 1:
                raise bad_document("is encrypted")
            if info.compress_type not in _METHODS:
                raise bad_document(f"{info.filename[:100]!r} is packed in an unknown way")
            where = f"{info.filename[:100]!r}: "
            self._check_ratio(info.file_size, info.compress_size, where)

    def _check_ratio(self, unpacked: int, packed: int, where: str) -> None:
        if unpacked > _SMALL_PART:
            self._limits.check("ratio", unpacked // max(packed, 1), f"{where}unpacks to ")

    def read(self, name: str) -> bytes:
        """Read a part.

        Raises:
            InvalidArgumentError: the part is missing or damaged.
        """
        info = self._infos.get(name)
        if info is None:
            raise bad_document(f"has no part {name}: it is no document of this format")
        try:
            with self._zip.open(info) as part:
                found = part.read(info.file_size + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError) as exc:
            raise bad_document(f"{name} is damaged: {exc}") from exc
        if len(found) != info.file_size:  # the size in the directory is too small
            raise bad_document(f"{name} has another size than the zip file says")
        return found

    def write(self, parts: Mapping[str, bytes]) -> bytes:
        """Write the zip file with these parts replaced; without parts, its bytes stay the same."""
        if not parts:
            return self._data
        output = io.BytesIO()
        with zipfile.ZipFile(output, "w") as target:
            target.comment = self._zip.comment
            for name, info in self._infos.items():
                content = parts[name] if name in parts else self.read(name)
                copied = zipfile.ZipInfo(name, info.date_time)
                copied.compress_type = info.compress_type
                copied.external_attr = info.external_attr
                copied.create_system = info.create_system
                copied.comment = info.comment
                target.writestr(copied, content)
        return output.getvalue()
