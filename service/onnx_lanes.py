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
from service.runner import Graphs, OnnxRunner

# A beam has to fit into a lane; and with fewer rows, the weights are read for too little.
_LEAST_ROWS = 32


def cpu_runner(bundle: Bundle, max_rows: int, sessions: SessionSettings) -> OnnxRunner | OnnxLanes:
    """What serves a bundle best on a CPU: lanes, if there are cores and rows for them.

    Raises:
        StartupError: as `OnnxRunner`.
    """
    threads = sessions.intra_op_threads or num_usable_cores()
    num_lanes = min(threads, max_rows // _LEAST_ROWS)
    if num_lanes < 2:
        return OnnxRunner(bundle, max_rows=max_rows, sessions=sessions)
    return OnnxLanes(bundle, max_rows=max_rows, num_lanes=num_lanes, sessions=sessions)


class OnnxLanes:
    """The `LanedRunner` of a bundle on a CPU.

    A row's outputs are the same bits in any lane, alone and beside others.

    Args:
        bundle: what to run.
        max_rows: rows that can step at once, in all lanes.
        num_lanes: how many; they get equal shares of rows and threads.
        sessions: the threads of all lanes together.

    Raises:
        StartupError: as `OnnxRunner`.
    """

    def __init__(
        self, bundle: Bundle, *, max_rows: int, num_lanes: int, sessions: SessionSettings
    ) -> None:
        threads = sessions.intra_op_threads or num_usable_cores()
        share = dataclasses.replace(sessions, intra_op_threads=max(1, threads // num_lanes))
        self._whole = Graphs.open(bundle, sessions)
        graphs = Graphs.open(bundle, share)
        lanes = []
        for number in range(num_lanes):
            if number and share.intra_op_threads != 1:
                # A pool of threads belongs to a session. One thread is the caller's own.
                graphs = Graphs.open(bundle, share)
            rows = max_rows // num_lanes + (number < max_rows % num_lanes)
            alone = OnnxRunner(bundle, max_rows=rows, graphs=self._whole)
            beside = OnnxRunner(bundle, max_rows=rows, graphs=graphs, cache=alone.cache)
            lanes.append((alone, beside))
        self._runners = lanes
        self._cache_bytes = sum(alone.cache_bytes for alone, _ in lanes)
        self._limits = dataclasses.replace(lanes[0][0].limits, max_rows=max_rows)

    @property
    def limits(self) -> RunnerLimits:
        """What all lanes hold together."""
        return self._limits

    @property
    def lanes(self) -> Sequence[LaneRunners]:
        """The lanes."""
        return [LaneRunners(alone, beside) for alone, beside in self._runners]

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
        for alone, beside in self._runners:
            alone.close()
            beside.close()
        self._runners.clear()
        del self._whole
