"""The number of a model's processes, and their shares of its rows and threads."""

from __future__ import annotations

import dataclasses

from model.bundle.processor import num_usable_cores
from service.errors import StartupError
from service.settings import Settings, shipped_models

# More threads in one process gain little, and with more processes the server's own is the
# bottleneck: `bench/NOTES.md`.
_CORES_OF_A_PROCESS = 2
_MOST_BY_DEFAULT = 8
# Fewest rows of a process, unless the settings ask for more processes: beams have to fit in.
_MIN_ROWS = 32


def has_own_process(settings: Settings) -> bool:
    """Whether models run in processes of their own.

    On one core, it would gain nothing. On a GPU, the runner is in the server's process, which reads
    its metrics.
    """
    return settings.device == "cpu" and not settings.in_process and num_usable_cores() > 1


def num_processes(settings: Settings) -> int:
    """The number of processes of each model; 1 also for a model in the server's process.

    Raises:
        StartupError: the settings ask for several processes where there can only be one.
    """
    wanted = settings.model_processes
    if not has_own_process(settings):
        if wanted > 1:
            raise StartupError(
                f"setting model_processes: {wanted} processes of a model need several cores of a "
                "CPU; on a GPU and with in_process, models run in the server's process"
            )
        return 1
    if settings.max_rows and wanted > settings.max_rows:
        raise StartupError(
            f"setting model_processes: {wanted} processes, and max_rows has only "
            f"{settings.max_rows} rows for them"
        )
    if wanted:
        return wanted
    cores = settings.threads or num_usable_cores()
    fitting = cores // _CORES_OF_A_PROCESS // len(settings.model or shipped_models())
    if settings.max_rows:
        fitting = min(fitting, settings.max_rows // _MIN_ROWS)
    return max(1, min(fitting, _MOST_BY_DEFAULT))


def divided(settings: Settings) -> list[Settings]:
    """The settings of each process of a model: rows and threads are divided equally.

    Without `max_rows`, each process has the default number of rows.

    Raises:
        StartupError: same as for `num_processes`.
    """
    count = num_processes(settings)
    if count == 1:
        return [settings]
    threads = settings.threads or num_usable_cores()
    return [
        dataclasses.replace(
            settings,
            max_rows=_part(settings.max_rows, count, number),
            threads=max(1, _part(threads, count, number)),
        )
        for number in range(count)
    ]


def _part(whole: int, count: int, number: int) -> int:
    return whole // count + (number < whole % count)
