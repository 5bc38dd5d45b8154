"""Progress on a terminal, where it disturbs nothing."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterator

Advance = Callable[[int, int], None]


@contextlib.contextmanager
def progress(shown: bool) -> Iterator[Advance]:
    """Show the progress of reading standard input, on standard error.

    Nothing is shown unless standard error is a terminal and standard output is not (there the
    translations themselves are the progress).

    Args:
        shown: False to show nothing in any case.

    Yields:
        A function to call with the numbers of lines and bytes that are done.
    """
    if not shown or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda lines, size: None
        return

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    about = os.fstat(sys.stdin.fileno())
    total = about.st_size if stat.S_ISREG(about.st_mode) else None  # of a pipe nobody knows
    columns = (
        TextColumn("{task.fields[lines]:,} lines"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %" if total else ""),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("translating", total=total, lines=0)
        done = 0

        def advance(lines: int, size: int) -> None:
            nonlocal done
            done += lines
            bar.update(task, advance=size, lines=done)

        yield advance
