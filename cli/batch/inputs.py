"""The inputs of a job, and the places that it writes to, which are none of them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from cli.batch.formats import FORMATS, format_name
from cli.batch.storage import Storage

# Ends of names of what a job writes beside its output. The first is a folder, until the job ends,
# and the second is there while a command works on the job.
STATE, LOCK = ".dragoman-job", ".dragoman-lock"
MANIFEST, PROBLEMS = ".manifest.json", ".problems.jsonl"

_OTHER_COMPRESSIONS = (".zip", ".zst", ".lz4", ".lzma", ".br", ".snappy", ".z", ".7z")


class JobError(Exception):
    """A job can't be done. The message may be shown to users."""


@dataclass(frozen=True)
class InputFile:
    """A file to translate.

    Attributes:
        storage: place of the file.
        output: place of its translation.
        format: a name in `FORMATS`.
    """

    storage: Storage
    output: Storage
    format: str


class _Folders(LocalFileSystem):  # type: ignore[misc]
    """A disk on which no folder is passed over in silence: one to read fails if it can't be."""

    def ls(self, path: str, detail: bool = False, **about: Any) -> Any:
        if os.path.islink(path):  # it may lead to a folder around it, or to that of the outputs
            raise JobError(f"INPUT: {path} is a link to a folder: needs a job of its own")
        found = super().ls(path, detail=True, **about)
        for each in found:
            if os.path.isdir(each["name"]):  # for fsspec, a link is no folder
                each["type"] = "directory"
        return found if detail else [each["name"] for each in found]

    def walk(self, path: str, *args: Any, on_error: str = "raise", **about: Any) -> Any:
        return super().walk(path, *args, on_error="raise", **about)


def find_inputs(
    url: str,
    output: Storage,
    format: str,
    others: Sequence[Path] = (),
    on_skipped: Callable[[Sequence[str]], None] = lambda paths: None,
) -> list[InputFile]:
    """The files that a path, a folder, a pattern or a URL means, with their outputs.

    One file is translated to a file, or into a folder that exists; several into a folder, in which
    they keep their names.

    Args:
        url: path, pattern or URL, for example in.jsonl, texts/, s3://bucket/*.parquet.
        output: file or folder.
        format: a name in `FORMATS`; "" for the one that the names of the files say.
        others: files and folders that the command reads besides.
        on_skipped: called with the paths of files that are none of the inputs, by their names.

    Raises:
        JobError: there is no such file, or one of no known format, or the job would write to one.
        OSError: a folder can't be read.
    """
    found = Storage.of(url)
    fs, path = found.fs, found.path.rstrip("/")
    source = Storage(fs, path)
    if output.is_in(source):
        raise JobError("--output: is the input, or lies in it")
    if output.is_special:
        raise JobError("--output: is neither a file nor a folder")
    if fs.isfile(path):
        into = output / found.name if output.fs.isdir(output.path) else output
        files = [InputFile(found, into, _format(path, format))]
        _check_places(files, into, lambda place: False, others)
        return files
    folders = _Folders() if found.is_local else fs
    if fs.isdir(path):
        names = folders.find(path)
        paths = [each for each in names if (format or format_name(each)) and _is_visible(each)]
        base = path
        is_input = _folder(source)
    elif any(sign in path for sign in "*?["):
        about = folders.glob(path, detail=True)
        names = [each for each in about if about[each].get("type") != "directory"]
        paths = [each for each in names if _is_visible(each)]
        base = path[: min(path.find(sign) for sign in "*?[" if sign in path)].rpartition("/")[0]
        is_input = _pattern(source)
    else:
        raise JobError(f"INPUT: there is no file {url}")
    if skipped := sorted({*names} - {*paths}):
        on_skipped(skipped)
    if not paths:
        raise JobError(f"INPUT: {url} has no files of a known type")
    files = [
        InputFile(Storage(fs, each), output / _name(base, each), _format(each, format))
        for each in sorted(paths)
    ]
    for file in files:
        if file.storage.is_special:
            raise JobError(f"INPUT: {file.storage.path} is neither a file nor a folder")
    _check_places(files, output, is_input, others)
    return files


def _pattern(source: Storage) -> Callable[[Storage], Any]:
    from fsspec.utils import glob_translate

    pattern = re.compile(glob_translate(source.path))
    return lambda place: type(place.fs) is type(source.fs) and pattern.match(place.path)


def _folder(source: Storage) -> Callable[[Storage], Any]:
    return lambda place: place.is_in(source)


def _is_visible(path: str) -> bool:
    return not path.rpartition("/")[2].startswith((".", "_"))


def _name(base: str, path: str) -> str:
    """The name of an input below `base`, and of its output."""
    name = path[len(base) :].lstrip("/")
    if ".." in name.split("/"):  # in a bucket, whose names are no paths
        raise JobError(f"INPUT: {path}: the output would not be in the folder of the outputs")
    return name


def _format(path: str, wanted: str) -> str:
    _check_compression(path)
    if found := wanted or format_name(path):
        return found
    suffixes = ", ".join(suffix for _, suffixes in FORMATS.values() for suffix in suffixes)
    raise JobError(f"{path}: unsupported file type: expected {suffixes}, or --format")


def _check_compression(path: str) -> None:
    if path.lower().endswith(_OTHER_COMPRESSIONS):
        raise JobError(f"{path}: unsupported compression: expected .gz, .bz2 or .xz")


def _check_places(
    files: Sequence[InputFile],
    output: Storage,
    is_input: Callable[[Storage], Any],
    others: Sequence[Path],
) -> None:
    """Check that a job writes to none of its inputs, and to no input of the same command later.

    Args:
        files: its files.
        output: its output, a file or folder.
        is_input: whether a file in a place would be an input.
        others: files and folders that the command reads besides.

    Raises:
        JobError: it does; or two outputs are one file.
    """
    outputs = [file.output for file in files]
    check_different(outputs)
    for place in outputs:
        _check_compression(place.path)
    state = output.with_suffix(STATE)
    beside = (output.with_suffix(end) for end in (MANIFEST, PROBLEMS, LOCK))
    written = [*outputs, *beside]
    besides = [Storage(LocalFileSystem(), os.path.realpath(path)) for path in others]
    read = [*(file.storage for file in files), *besides]
    inputs = {each: place for place in read for each in place.identities}
    for place in written:
        if place.is_local and os.path.isdir(place.path):
            raise JobError(f"--output: {place.path} is a folder")
        for each in place.identities & inputs.keys():
            raise JobError(f"--output: {place.path} is the input {inputs[each].path}")
        for folder in besides:  # of a model
            if place.is_in(folder):
                raise JobError(f"--output: {place.path} lies in the input {folder.path}")
    for place in read:
        if place.is_in(state):
            raise JobError(f"--output: the input {place.path} lies in the job's own folder")
    for place in [*written, state / "plan.json", state / "00000-000000.part"]:
        if is_input(place):
            raise JobError(
                f"--output: {place.path} would be an input of the same command: choose a place "
                "that INPUT does not mean"
            )


def check_different(outputs: Iterable[Storage]) -> None:
    """Check that no two outputs are one file.

    Raises:
        JobError: two are, by a link, or where upper and lower case are alike.
    """
    seen: dict[Any, Storage] = {}
    for output in outputs:
        for each in output.identities & seen.keys():
            raise JobError(f"--output: {seen[each].path} and {output.path} are one file")
        seen.update(dict.fromkeys(output.identities, output))
