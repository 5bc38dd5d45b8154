"""Marian's binary format: a header, then named items of numbers, some in 8 or 16 bits.

Little endian. uint64 version; uint64 n; n times four uint64: length of the name with its NUL, type,
number of dimensions, bytes of data with padding; the names; the shapes (int32); uint64 n and n
bytes of padding; the data of each item. See `src/common/binary.cpp` of Marian.

Sizes in a file are compared with the file's own size before they are used.
"""

from __future__ import annotations

import gzip
import importlib
import io
import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
import numpy.typing as npt

from export.errors import ExportError
from export.huggingface.directory import LARGEST_GROWTH, refuse_pointer

VERSION = 1
_MOST_DIMENSIONS = 4
_CHUNK = 2**20
TEXT, FLOAT32, INTGEMM8, INTGEMM16 = 0x0101, 0x0404, 0x4101, 0x4102
_FLOATS: Mapping[int, str] = {0x0402: "<f2", FLOAT32: "<f4", 0x0408: "<f8"}
# Integers [out, in] and one float32, by which they were multiplied: hardware-independent intgemm.
_QUANTIZED: Mapping[int, str] = {INTGEMM8: "<i1", INTGEMM16: "<i2"}

# By which numbers may be multiplied before they are rounded, so that products are finite.
SMALLEST_SCALE, LARGEST_SCALE = 1e-33, 1e33

Array = npt.NDArray[Any]


def is_scale(value: float) -> bool:
    """Whether a number is a usable multiplier; NaN is not."""
    return SMALLEST_SCALE <= value <= LARGEST_SCALE


def is_table(name: str) -> bool:
    """Whether an item is a table of embeddings, or the alpha of one, by Marian's rule for names.

    A quantised table is stored row by row, other matrices transposed; and only tables have
    quantised alphas.
    """
    return "Wemb" in name


@dataclass(frozen=True)
class Item:
    """A named array of a file.

    Attributes:
        kind: Marian's number of its type.
        shape: as the network sees it; a matrix is [in, out].
        data: its bytes, padding included.
        file: the file, for messages.
    """

    name: str
    kind: int
    shape: tuple[int, ...]
    data: memoryview
    file: Path

    @property
    def is_quantized(self) -> bool:
        """Whether it has integers and a multiplier."""
        return self.kind in _QUANTIZED

    def numbers(self) -> Array:
        """The float32 numbers of the item's shape. Quantised ones are divided by their multiplier.

        Raises:
            ExportError: they have an unknown type or no finite values, or there are too few.
        """
        count = math.prod(self.shape)
        if self.is_quantized:
            dtype = np.dtype(_QUANTIZED[self.kind])
            self._check_size(count * dtype.itemsize + 4)
            values = np.frombuffer(self.data, dtype, count).astype(np.float32)
            multiplier = self.multiplier()
            if not is_scale(float(multiplier)):
                self._refuse(
                    f"has the multiplier {multiplier}, not one from {SMALLEST_SCALE:g} to "
                    f"{LARGEST_SCALE:g}"
                )
            found = values / multiplier
            if len(self.shape) == 2 and not is_table(self.name):
                return np.asarray(found.reshape(self.shape[::-1]).T)
            return np.asarray(found.reshape(self.shape))
        if self.kind not in _FLOATS:
            self._refuse(
                f"has numbers of type {self.kind:#06x}, which is not supported: convert the model "
                f"to intgemm8 or float32"
            )
        dtype = np.dtype(_FLOATS[self.kind])
        self._check_size(count * dtype.itemsize)
        found = np.frombuffer(self.data, dtype, count).astype(np.float32).reshape(self.shape)
        if not np.isfinite(found).all():
            self._refuse("holds infinite or undefined numbers")
        return found

    def multiplier(self) -> np.float32:
        """The multiplier of quantised numbers, which only `numbers` checks."""
        at = math.prod(self.shape) * np.dtype(_QUANTIZED[self.kind]).itemsize
        found: np.float32 = np.frombuffer(self.data, "<f4", 1, at)[0]
        return found

    def text(self) -> bytes:
        """The bytes of a text, up to its NUL.

        Raises:
            ExportError: it is no text.
        """
        if self.kind != TEXT:
            self._refuse(f"has type {self.kind:#06x}, not that of a text")
        return bytes(self.data).split(b"\0", 1)[0]

    def _check_size(self, needed: int) -> None:
        if needed > len(self.data):
            self._refuse(
                f"has shape {list(self.shape)}, which takes {needed:,} bytes, but only "
                f"{len(self.data):,}"
            )

    def _refuse(self, why: str) -> NoReturn:
        raise ExportError(f"{self.file}: {self.name!r} {why}")


def read_binary(file: Path) -> dict[str, Item]:
    """The items of a file, by name.

    Args:
        file: the file, possibly compressed: `.bin`, `.bin.gz` or `.bin.zst`.

    Raises:
        ExportError: it can't be read, is no such file, or is cut off; names the field.
    """
    return _BinaryReader(file, memoryview(read_compressed(file))).items()


def read_compressed(file: Path, most: int | None = None) -> bytes:
    """The bytes of a file, decompressed if its name ends with .gz, .zst or .zstd.

    Args:
        most: bytes that it may have when decompressed; by default 16 times its own.

    Raises:
        ExportError: it can't be read, is damaged, or holds far more than weights can shrink.
    """
    refuse_pointer(file)
    try:
        size = file.stat().st_size
        with file.open("rb") as raw, _decompressed(file, raw) as stream:
            return _read_bounded(file, stream, LARGEST_GROWTH * size if most is None else most)
    except OSError as exc:
        raise ExportError(f"{file}: {exc.strerror or 'is damaged: copy it again'}") from exc
    except (EOFError, zlib.error) as exc:
        raise ExportError(f"{file} is cut off or damaged: copy it again") from exc


def _decompressed(file: Path, raw: IO[bytes]) -> Any:
    if file.suffix == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if file.suffix not in (".zst", ".zstd"):
        return raw
    try:
        zstandard: Any = importlib.import_module("zstandard")
    except ModuleNotFoundError as exc:
        raise ExportError(
            f"{file} needs the package zstandard (pip install zstandard), or decompress it first"
        ) from exc
    return zstandard.ZstdDecompressor().stream_reader(raw)


def _read_bounded(file: Path, stream: Any, most: int) -> bytes:
    found = io.BytesIO()
    try:
        while chunk := stream.read(_CHUNK):
            if found.tell() + len(chunk) > most:
                raise ExportError(
                    f"{file} holds more than {most:,} bytes when decompressed: it is no file of "
                    f"weights"
                )
            found.write(chunk)
    except ExportError:
        raise
    except Exception as exc:
        if type(exc).__module__.partition(".")[0] != "zstandard":
            raise
        raise ExportError(f"{file} is damaged: copy it again") from exc
    return found.getvalue()


class _BinaryReader:
    """Reads a file from its beginning, field by field."""

    def __init__(self, file: Path, content: memoryview) -> None:
        self._file = file
        self._content = content
        self._at = 0

    def items(self) -> dict[str, Item]:
        version = self._number("the version")
        if version != VERSION:
            raise ExportError(
                f"{self._file} is no binary Marian model, or one of another version: its first "
                f"number is {version}, not {VERSION}"
            )
        count = self._number("the number of items")
        heads = self._take(32 * count, f"the headers of {count:,} items")
        headers = list(struct.iter_unpack("<4Q", heads))
        names = [self._name(length, i) for i, (length, *_) in enumerate(headers)]
        shapes = [self._shape(name, h[2]) for name, h in zip(names, headers, strict=True)]
        self._take(self._number("the padding"), "the padding before the data")
        items: dict[str, Item] = {}
        for name, shape, (_, kind, _, size) in zip(names, shapes, headers, strict=True):
            if name in items:
                raise ExportError(f"{self._file}: there are two items {name!r}")
            data = self._take(size, f"the data of {name!r}")
            items[name] = Item(name, kind, shape, data, self._file)
        return items

    def _number(self, what: str) -> int:
        (number,) = struct.unpack("<Q", self._take(8, what))
        return int(number)

    def _name(self, length: int, index: int) -> str:
        content = bytes(self._take(length, f"the name of item {index}"))
        try:
            name = content.rstrip(b"\0").decode("utf-8")
        except UnicodeDecodeError as exc:
            raise ExportError(f"{self._file}: the name of item {index} is not UTF-8") from exc
        if not name or not name.isprintable():
            raise ExportError(f"{self._file}: the name of item {index} is {name[:64]!r}")
        return name

    def _shape(self, name: str, count: int) -> tuple[int, ...]:
        if count > _MOST_DIMENSIONS:
            raise ExportError(
                f"{self._file}: {name[:64]!r} has {count:,} dimensions, more than "
                f"{_MOST_DIMENSIONS}"
            )
        shape = struct.unpack(f"<{count}i", self._take(4 * count, f"the shape of {name[:64]!r}"))
        if any(size < 0 for size in shape):
            raise ExportError(f"{self._file}: {name[:64]!r} has the shape {list(shape)}")
        return shape

    def _take(self, count: int, what: str) -> memoryview:
        left = len(self._content) - self._at
        if count > left:
            raise ExportError(
                f"{self._file} is cut off or damaged: {what:.120} takes {count:,} bytes, but "
                f"{left:,} are left of {len(self._content):,}"
            )
        found = self._content[self._at : self._at + count]
        self._at += count
        return found
