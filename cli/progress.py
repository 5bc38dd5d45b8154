"""Progress on standard error."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator

Advance = Callable[[int, int], None]
ShowStage = Callable[[str, int, int], None]

_LINE_EVERY_SECONDS = 10.0


class _StandardError:
    """The current `sys.stderr`, which a progress bar replaces for its time."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def log_to_standard_error(line: str) -> None:
    """Log from INFO in the format `line`, above a progress bar if there is one."""
    logging.basicConfig(level=logging.INFO, format=line, stream=_StandardError())


@contextlib.contextmanager
def progress(shown: bool) -> Iterator[Advance]:
    """Show the progress of reading standard input on standard error.

    Only if standard error is a terminal and standard output, which shows progress itself, is not.

    Yields:
        A function to call with the numbers of finished lines and bytes.
    """
    if not shown or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda lines, size: None
        return

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    about = os.fstat(sys.stdin.fileno())
    total = about.st_size if stat.S_ISREG(about.st_mode) else None  # unknown for a pipe
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


@contextlib.contextmanager
def stages(unit: str) -> Iterator[ShowStage]:
    """Show work in stages on standard error: a bar for each, or lines without a terminal.

    Args:
        unit: unit of the counts in the lines, such as "sentences".

    Yields:
        A function to call with a stage's name, the finished count, and the total.
    """
    if not sys.stderr.isatty():
        yield _Lines(unit)
        return

    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.0f} {unit}/s" if task.speed else "")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        *((DownloadColumn(), TransferSpeedColumn()) if unit == "bytes" else ()),
        *((MofNCompleteColumn(), Speed()) if unit != "bytes" else ()),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done)

        yield show


class _Lines:
    """Prints a line when a stage begins, and every few seconds."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._stage = ""
        self._began = self._last = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._began, self._last = stage, now, now
            print(f"{stage}: {total} {self._unit}", file=sys.stderr, flush=True)
        elif done and now - self._last > _LINE_EVERY_SECONDS:
            self._last = now
            left = (now - self._began) / done * (total - done)
            print(
                f"{stage}: {done} of {total} {self._unit}, {left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )
