"""A bundle on the cores of one machine: rows in lanes, each with threads of its own.

Measured on two cores, 64 clients over gRPC: see `bench/NOTES.md`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnxruntime as ort

from model.bundle import Bundle
from model.processor import num_usable_cores
from model.sessions import SessionSettings
from service.plan import LaneRunners, RunnerLimits
from service.runner import Graphs, OnnxRunner, allocate, cache_shape, limits_of

# A beam has to fit into a lane; and with fewer rows, the weights are read for too little.
_LEAST_ROWS = 32


def cpu_runner(bundle: Bundle, max_rows: int, sessions: SessionSettings) -> OnnxRunner | OnnxLanes:
    """What serves a bundle best on a CPU: a lane for each thread, if there are rows for them.

    Raises:
        StartupError: as `OnnxRunner`.
    """
    threads = sessions.intra_op_threads or num_usable_cores()
    if threads == 1 or max_rows < threads * _LEAST_ROWS:
        return OnnxRunner(bundle, max_rows=max_rows, sessions=sessions)
    return OnnxLanes(bundle, max_rows=max_rows, num_lanes=threads, sessions=sessions)


class OnnxLanes:
    """The `LanedRunner` of a bundle on a CPU.

    Beside others, a lane has the thread that calls it and no more. So one session does for all of
    them: one with threads of its own would have to be opened for each, with the weights once more.

    A row's outputs are the same bits in any lane, alone and beside others.

    Args:
        bundle: what to run.
        max_rows: rows that can step at once, in all lanes.
        num_lanes: how many; they get equal shares of the rows.
        sessions: for a lane that is alone.

    Raises:
        StartupError: as `OnnxRunner`.
    """

    def __init__(
        self, bundle: Bundle, *, max_rows: int, num_lanes: int, sessions: SessionSettings
    ) -> None:
        one_thread = dataclasses.replace(sessions, intra_op_threads=1)
        self._limits = limits_of(bundle, max_rows)
        shape = cache_shape(bundle, self._limits)
        self._cache_bytes = shape.num_bytes
        rows = [max_rows // num_lanes + (i < max_rows % num_lanes) for i in range(num_lanes)]
        caches = allocate(shape, rows)
        self._whole = Graphs.open(bundle, sessions)
        shared = Graphs.open(bundle, one_thread)
        self._lanes = [
            LaneRunners(
                OnnxRunner(bundle, max_rows=lane_rows, graphs=self._whole, cache=cache),
                OnnxRunner(bundle, max_rows=lane_rows, graphs=shared, cache=cache),
            )
            for lane_rows, cache in zip(rows, caches, strict=True)
        ]

    @property
    def limits(self) -> RunnerLimits:
        """What all lanes hold together."""
        return self._limits

    @property
    def lanes(self) -> Sequence[LaneRunners]:
        """The lanes."""
        return self._lanes

    @property
    def cache_bytes(self) -> int:
        """Size of all lanes' caches: what they can grow to as rows touch them, never more."""
        return self._cache_bytes

    @property
    def encoder_session(self) -> ort.InferenceSession:
        """The encoder with all threads, for whoever else encodes."""
        return self._whole.encoder

    def close(self) -> None:
        """Free sessions and memory."""
        for lane in self._lanes:
            lane.alone.close()
            lane.beside.close()
        self._lanes.clear()
        del self._whole
