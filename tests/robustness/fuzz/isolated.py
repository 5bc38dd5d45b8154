"""Runs parser targets in processes of their own, with checks of time, memory and crashes.

An input that takes too much time or memory, or ends the process, is a finding like other errors.
"""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import queue
import resource
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from bench.processes import status_bytes
from tests.robustness.fuzz.target import ParserTarget, Tally, describe, random_of, shown

_CONTEXT = multiprocessing.get_context("spawn")
_POLL_SECONDS = 0.2
_MOST_ENDS = 100  # of processes in one shard: the rest of it is left out
_WARM_UP = 200  # inputs, after which a process has its usual size


@dataclass(frozen=True)
class InputLimits:
    """Resources that one input may take.

    Attributes:
        cpu_seconds: CPU time of the process.
        hang_seconds: elapsed time after which the process is killed.
        memory_bytes: growth of the process's peak memory.
    """

    cpu_seconds: float = 5.0
    hang_seconds: float = 60.0
    memory_bytes: int = 512 * 2**20


@dataclass(frozen=True)
class Shard:
    """Some inputs of a target.

    Attributes:
        factory: factory of the target, as MODULE:NAME.
        seed: random seed of the run.
        numbers: numbers of the inputs.
    """

    factory: str
    seed: int
    numbers: range


def target_of(factory: str) -> ParserTarget[Any]:
    """The target that MODULE:NAME makes."""
    module, _, name = factory.partition(":")
    made: ParserTarget[Any] = getattr(importlib.import_module(module), name)()
    return made


def run_shards(
    shards: Iterable[Shard],
    limits: InputLimits,
    num_processes: int,
    ended: Callable[[Shard, Tally], None],
) -> None:
    """Run shards in processes, and call `ended` for each.

    Args:
        shards: shards in order.
        limits: limits of each input.
        num_processes: number of processes at a time.
        ended: called from several threads, one at a time.
    """
    shards = list(shards)
    for factory in {shard.factory for shard in shards}:
        target_of(factory)  # an error here is the fuzzer's, not the target's
    waiting: queue.SimpleQueue[Shard] = queue.SimpleQueue()
    for shard in shards:
        waiting.put(shard)
    lock = threading.Lock()
    failures: list[BaseException] = []

    def serve() -> None:
        with _Worker(limits) as worker:
            while not failures:
                try:
                    shard = waiting.get_nowait()
                except queue.Empty:
                    return
                try:
                    tally = worker.run(shard)
                    with lock:
                        ended(shard, tally)
                except BaseException as exc:
                    failures.append(exc)

    threads = [threading.Thread(target=serve) for _ in range(num_processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


class _Worker:
    """A process that runs shards, which is replaced when it ends."""

    def __init__(self, limits: InputLimits) -> None:
        self._limits = limits
        # The number of the input in progress, and when it began.
        self._progress = _CONTEXT.Array("d", 2)
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *exc: object) -> None:
        self._end()

    def run(self, shard: Shard) -> Tally:
        """Run all inputs of a shard, even if the process ends."""
        tally = Tally()
        numbers: range = shard.numbers
        for _ in range(_MOST_ENDS):
            if not numbers:
                break
            part, reason = self._run_part(Shard(shard.factory, shard.seed, numbers))
            tally.add(part)
            if not reason:
                break
            number = int(self._progress[0])
            tally.found(reason, f"input {number}", number)
            tally.outcomes[f"({reason})"] += 1
            # Those that the process had run and not told of yet; what they found, it tells at once.
            if lost := numbers.index(number) - part.num_inputs:
                tally.outcomes["(lost)"] += lost
            numbers = numbers[numbers.index(number) + 1 :]
        return tally

    def _run_part(self, shard: Shard) -> tuple[Tally, str]:
        """Results of inputs, and why they ended before the last one; "" if they did not."""
        connection = self._started()
        self._progress[0], self._progress[1] = shard.numbers[0], time.monotonic() + 60
        connection.send(shard)
        tally = Tally()
        while True:
            try:
                if connection.poll(_POLL_SECONDS):
                    received = connection.recv()
                    if isinstance(received, str):
                        raise RuntimeError(f"an error of the fuzzer: {received}")
                    found, is_last = received
                    tally.add(found)
                    if is_last:
                        return tally, ""
                    continue
            except (EOFError, OSError):
                assert self._process is not None
                self._process.join()
                status = self._process.exitcode
                self._end()
                return tally, f"the process ended with status {status}"
            if time.monotonic() - self._progress[1] > self._limits.hang_seconds:
                self._end()
                return tally, f"no end within {self._limits.hang_seconds:g} s"

    def _started(self) -> Connection:
        if self._connection is None:
            self._connection, other = _CONTEXT.Pipe()
            self._process = _CONTEXT.Process(
                target=_work, args=(other, self._progress, self._limits), daemon=True
            )
            self._process.start()
            other.close()
        return self._connection

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None


def _work(connection: Connection, progress: Any, limits: InputLimits) -> None:
    """Run shards until the other side closes."""
    # Without a handler, warnings of each input (variables that no setting has) go to the terminal.
    logging.getLogger().addHandler(logging.NullHandler())
    targets: dict[str, ParserTarget[Any]] = {}
    while True:
        try:
            shard: Shard = connection.recv()
        except EOFError:
            return
        try:
            if shard.factory not in targets:
                targets[shard.factory] = target_of(shard.factory)
            _run(targets[shard.factory], shard, connection, progress, limits)
        except Exception:  # the fuzzer's own: `run_one` keeps those of targets
            connection.send(traceback.format_exc())


def _run(
    target: ParserTarget[Any],
    shard: Shard,
    connection: Connection,
    progress: Any,
    limits: InputLimits,
) -> None:
    tally, reported_at = Tally(), time.monotonic()
    peak = 0
    _limit_memory(limits.memory_bytes)
    for count, number in enumerate(shard.numbers):
        if tally.defects or time.monotonic() - reported_at > 1:
            connection.send((tally, False))
            tally, reported_at = Tally(), time.monotonic()
        given = target.generate(random_of(target.name, shard.seed, number))
        progress[0], progress[1] = number, time.monotonic()
        run_one(target, given, number, tally, limits)
        # Not `ru_maxrss`, which begins with that of the process that started this one.
        now = status_bytes("VmHWM")
        if count > _WARM_UP and now - peak > limits.memory_bytes:
            tally.found(f"more than {limits.memory_bytes >> 20} MiB", shown(given), number)
        peak = max(peak, now)
    connection.send((tally, True))


def run_one(
    target: ParserTarget[Any], given: Any, number: int, tally: Tally, limits: InputLimits
) -> None:
    """Run one input, and count its result."""
    started = time.process_time()
    try:
        outcome = target.run(given)
    except MemoryError as exc:
        outcome = "(MemoryError)"
        tally.found(outcome, f"{exc} {shown(given)}", number)
    except BaseException as exc:  # the panic of a library in Rust is no Exception
        if isinstance(exc, KeyboardInterrupt):
            raise
        what, evidence = describe(exc)
        outcome = f"({what})"
        tally.found(what, f"{evidence}\n{shown(given)}", number)
    seconds = time.process_time() - started
    tally.outcomes[outcome] += 1
    tally.took(seconds, number)
    if seconds > limits.cpu_seconds:
        tally.found(f"more than {limits.cpu_seconds:g} s", shown(given), number)


def _limit_memory(memory_bytes: int) -> None:
    """Let an allocation of twice the limit fail, so that it does not affect the machine."""
    most = status_bytes("VmSize") + 2 * memory_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def shards_of(factories: Sequence[tuple[str, int]], seed: int, most: int = 10_000) -> list[Shard]:
    """Divide the inputs of each target into shards of limited size."""
    return [
        Shard(factory, seed, range(start, min(start + most, count)))
        for factory, count in factories
        for start in range(0, count, most)
    ]
