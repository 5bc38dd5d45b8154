"""Lanes: groups of rows that step independently, each on a core of its own.

`bench/NOTES.md` has measurements on two cores with 64 clients over gRPC.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnxruntime as ort

from model.bundle.bundle import Bundle
from model.bundle.processor import num_usable_cores
from model.bundle.sessions import SessionSettings
from service.domain.plan import EncodedBatch, LaneRunners, RunnerLimits
from service.runtime.cpu.kv_cache import cache_shape, limits_of
from service.runtime.cpu.lane_count import best_lanes, steps_on_one_thread
from service.runtime.cpu.runner import Graphs, OnnxRunner, allocate


def cpu_runner(bundle: Bundle, max_rows: int, sessions: SessionSettings) -> OnnxRunner | OnnxLanes:
    """The best runner for a bundle on a CPU: a lane for each thread, if there are enough rows.

    With a small decoder, two threads get one lane: encodes and the event loop then take as much of
    the processor as the steps, and in one lane more rows share a step. Lanes of a tiny decoder
    always step on one thread.

    Raises:
        StartupError: this device can't run the bundle, or has too little memory; says what to do.
    """
    num_lanes = best_lanes(bundle.config, max_rows, sessions.intra_op_threads or num_usable_cores())
    if not num_lanes:
        return OnnxRunner(bundle, max_rows=max_rows, sessions=sessions)
    has_shortlist = sessions.uses_shortlist and "shortlist" in bundle.manifest
    if steps_on_one_thread(bundle.config, has_shortlist=has_shortlist):
        sessions = dataclasses.replace(sessions, intra_op_threads=1)
    return OnnxLanes(bundle, max_rows=max_rows, num_lanes=num_lanes, sessions=sessions)


class OnnxLanes:
    """The `LanedRunner` of a bundle on a CPU.

    A lane that steps while others do uses only the calling thread. So all lanes share one session;
    with threads of its own, each lane would need another session.

    A row's outputs are the same bits in any lane, alone or with others.

    Args:
        bundle: bundle to run.
        max_rows: number of rows of all lanes; as many again are for background requests.
        num_lanes: number of lanes, with equal shares of the rows.
        sessions: session settings for a lane that steps alone.

    Raises:
        StartupError: this device can't run the bundle, or has too little memory; says what to do.
    """

    def __init__(
        self, bundle: Bundle, *, max_rows: int, num_lanes: int, sessions: SessionSettings
    ) -> None:
        one_thread = dataclasses.replace(sessions, intra_op_threads=1)
        is_shared = sessions == one_thread  # also by a lane that steps alone
        self._limits = limits_of(bundle, max_rows, max_rows)
        shape = cache_shape(bundle, self._limits)
        self._cache_bytes = shape.num_bytes
        rows = [max_rows // num_lanes + (i < max_rows % num_lanes) for i in range(num_lanes)]
        self._whole = Graphs.open(bundle, sessions)
        shared = self._whole if is_shared else Graphs.open(bundle, one_thread)
        caches = allocate(shape, [2 * lane_rows for lane_rows in rows])
        alone, beside = (
            [
                OnnxRunner(bundle, max_rows=lane_rows, graphs=graphs, cache=cache)
                for lane_rows, cache in zip(rows, caches, strict=True)
            ]
            for graphs in (self._whole, shared)
        )
        self._lanes = [LaneRunners(*pair) for pair in zip(alone, beside, strict=True)]
        self._encoder = beside[0]

    @property
    def limits(self) -> RunnerLimits:
        """Limits of all lanes together."""
        return self._limits

    @property
    def lanes(self) -> Sequence[LaneRunners]:
        """The lanes."""
        return self._lanes

    @property
    def cache_bytes(self) -> int:
        """Size of all lanes' caches in bytes, an upper bound of their memory."""
        return self._cache_bytes

    @property
    def encoder_session(self) -> ort.InferenceSession:
        """The encoder with the threads of a lane that steps alone, for scoring."""
        return self._whole.encoder

    def encode(self, sources: Sequence[tuple[int, ...]]) -> EncodedBatch:
        """Encode sources before their requests join, on the calling thread."""
        return self._encoder.encode(sources)

    def close(self) -> None:
        """Free sessions and memory."""
        for lane in self._lanes:
            lane.alone.close()
            lane.beside.close()
        self._lanes.clear()
        del self._whole, self._encoder
