"""The inputs of a job, and the places that it writes to, which are none of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cli.batch.formats import FORMATS, format_name
from cli.batch.storage import Storage

# Ends of names of what a job writes beside its output. The first is a folder, until the job ends,
# and the second is there while a command works on the job.
STATE, LOCK = ".dragoman-job", ".dragoman-lock"
MANIFEST, PROBLEMS = ".manifest.json", ".problems.jsonl"


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


def find_inputs(url: str, output: Storage, format: str) -> list[InputFile]:
    """The files that a path, a folder, a pattern or a URL means, with their outputs.

    One file is translated to a file, or into a folder that exists; several into a folder, in which
    they keep their names.

    Args:
        url: path, pattern or URL, for example in.jsonl, texts/, s3://bucket/*.parquet.
        output: file or folder.
        format: a name in `FORMATS`; "" for the one that the names of the files say.

    Raises:
        JobError: there is no such file, or one of no known format, or the job would write to one.
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
        _check_places(files, into, lambda place: False)
        return files
    if any(sign in path for sign in "*?["):
        paths = sorted(each for each in fs.glob(path) if _is_visible(each) and fs.isfile(each))
        base = path[: min(path.find(sign) for sign in "*?[" if sign in path)].rpartition("/")[0]
        is_input = _pattern(source)
    elif fs.isdir(path):
        names = fs.find(path)
        paths = sorted(
            each for each in names if (format or format_name(each)) and _is_visible(each)
        )
        base = path
        is_input = _folder(source)
    else:
        raise JobError(f"INPUT: there is no file {url}")
    if not paths:
        raise JobError(f"INPUT: {url} has no files of a known type")
    files = [
        InputFile(Storage(fs, each), output / _name(base, each), _format(each, format))
        for each in paths
    ]
    _check_places(files, output, is_input)
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
    if found := wanted or format_name(path):
        return found
    suffixes = ", ".join(suffix for _, suffixes in FORMATS.values() for suffix in suffixes)
    raise JobError(f"{path}: unsupported file type: expected {suffixes}, or --format")


def _check_places(
    files: Sequence[InputFile], output: Storage, is_input: Callable[[Storage], Any]
) -> None:
    """Check that a job writes to none of its inputs, and to no input of the same command later.

    Args:
        files: its files.
        output: its output, a file or folder.
        is_input: whether a file in a place would be an input.

    Raises:
        JobError: it does; or two outputs are one file.
    """
    outputs = [file.output for file in files]
    check_different(outputs)
    state = output.with_suffix(STATE)
    whole = [*outputs, output.with_suffix(MANIFEST), output.with_suffix(PROBLEMS)]
    written = [*whole, *(place.unfinished for place in whole), output.with_suffix(LOCK)]
    inputs = {each: file.storage for file in files for each in file.storage.identities}
    for place in written:
        for each in place.identities & inputs.keys():
            raise JobError(f"--output: {place.path} is the input {inputs[each].path}")
    for file in files:
        if file.storage.is_in(state):
            raise JobError(f"--output: the input {file.storage.path} lies in the job's own folder")
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
