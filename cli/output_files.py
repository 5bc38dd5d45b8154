"""Files that commands write: never one of their inputs, and whole or not at all."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cli.exits import fail
from service.common.whole_files import replacing


def writes(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a command fail before it writes to one of its own inputs, or to one file twice.

    Its inputs are all paths that it is given, those of glossaries and certificates among them.

    Args:
        names: the parameters with the files that it writes.
    """

    def checked(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def run(**given: Any) -> Any:
            _check(given, names)
            return command(**given)

        run.__annotations__ = {}  # typer would resolve the command's own in another module
        run.__signature__ = inspect.signature(command, eval_str=True)  # type: ignore[attr-defined]
        return run

    return checked


def _check(given: Mapping[str, Any], names: tuple[str, ...]) -> None:
    inputs = [path for name, value in given.items() if name not in names for path in _paths(value)]
    written: list[Path] = []
    for name in names:
        if not given[name]:
            continue
        output = Path(given[name])
        if any(is_same_file(output, other) for other in written):
            fail(f"--{name}: {output} is written twice")
        written.append(output)
        for path in inputs:
            if is_same_file(output, path):
                fail(f"--{name}: {output} is an input of this command")
            if (path / "bundle.json").is_file() and path.resolve() in output.resolve().parents:
                fail(f"--{name}: {output} lies in a model, {path}")


def _paths(value: Any) -> Iterator[Path]:
    if isinstance(value, Path):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _paths(each)


def is_same_file(one: Path, other: Path) -> bool:
    """Whether two paths are one file: by links of any kind, or by letters of another case."""
    try:
        return one.samefile(other)
    except OSError:  # one is not there
        return one.resolve() == other.resolve()


def write_whole(output: Path, content: Iterable[bytes]) -> None:
    """Write a file as a whole, or not at all, as `service.common.whole_files.replacing` does.

    A device or a pipe is written to.

    Raises:
        OSError: it can't be written.
    """
    if output.exists() and not output.is_file():
        with output.open("wb") as special:
            special.writelines(content)
        return
    with replacing(output) as file:
        file.writelines(content)
