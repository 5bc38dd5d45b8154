"""The timestamps of a sentence, which calls hand to a tracing system."""

from __future__ import annotations

from dataclasses import dataclass

MAX_SEQUENCES = 32
"""Most sentences of a call with spans of their own, so that a trace stays readable."""


@dataclass(frozen=True)
class SequenceTimes:
    """Timestamps of a sentence as it moves through the pipeline, in `time.monotonic()` seconds.

    Attributes:
        submitted_at: time at which the engine accepted it.
        started_at: time at which it joined the batch, or of its end if it never did.
        ended_at: time of its end.
        encoded_at: time at which its source was encoded, possibly before it joined; None if it was
            not encoded.
        encode_seconds: duration of the encode, possibly of several sources together.
        num_source_tokens: number of tokens of its source.
        num_rows: number of rows that it took; 0 if it was scored.
        num_steps: number of decoder steps that its rows took.
        finish_reason: reason why it ended.
    """

    submitted_at: float
    started_at: float
    ended_at: float
    encoded_at: float | None
    encode_seconds: float
    num_source_tokens: int
    num_rows: int
    num_steps: int
    finish_reason: str
