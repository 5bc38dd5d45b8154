"""Replicas of known durations."""

from __future__ import annotations

import dataclasses
from typing import Any

from cli.plan.replica import MeasuredReplica

# Roughly the included model on one core.
USUAL = MeasuredReplica(
    model="en-de",
    cores=1,
    memory_bytes=256 * 2**20,
    max_rows=64,
    step_base=1.2e-3,
    step_row=0.3e-3,
    encode_base=2.5e-3,
    encode_token=0.25e-3,
    call_seconds=1.5e-3,
    other_seconds=1e-3,
    encodes_beside_from_rows=None,
    lengths=((6, 7), (10, 11), (17, 18), (25, 24), (13, 12)),
)


def usual(**changes: Any) -> MeasuredReplica:
    return dataclasses.replace(USUAL, **changes)


def one_at_a_time(steps: list[int], step_seconds: float) -> MeasuredReplica:
    """A replica of one row that only steps: a queue with one server."""
    return usual(
        max_rows=1,
        step_base=step_seconds,
        step_row=0.0,
        encode_base=0.0,
        encode_token=0.0,
        call_seconds=0.0,
        other_seconds=0.0,
        lengths=tuple((1, number) for number in steps),
    )
