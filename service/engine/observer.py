"""What the engine tells about itself; the metrics are made of it."""

from __future__ import annotations

from typing import Protocol

from service.decoding.requests import GenerationRequest, GenerationResult
from service.engine.admission import Refusal


class EngineObserver(Protocol):
    """Is told what happens. Called on the event loop: must be quick and must not raise."""

    def on_step(self, rows: int, encodes: int, encode_seconds: float, step_seconds: float) -> None:
        """An iteration encoded `encodes` sources and stepped.

        `rows` stepped at that time, those of lanes beside each other included.
        """
        return None

    def on_scored(self, count: int, seconds: float) -> None:
        """An iteration scored so many targets."""
        return None

    def on_padding(self, tokens: int) -> None:
        """An iteration's encoder computed so many positions that held no token."""
        return None

    def on_queue(self, waiting: int, running: int) -> None:
        """So many sequences wait and so many rows are in use. Told once an iteration."""
        return None

    def on_held_back(self, calls: int) -> None:
        """So many calls were let in and have more sequences, for which there is no place yet."""
        return None

    def on_refused(self, reason: Refusal) -> None:
        """A call was refused before anything was computed for it."""
        return None

    def on_admitted(self, queue_seconds: float) -> None:
        """A sequence joined the batch."""
        return None

    def on_first_token(self, seconds: float) -> None:
        """A sequence got its first token, so long after it was submitted."""
        return None

    def on_finished(self, result: GenerationResult, request: GenerationRequest) -> None:
        """A sequence ended, for whatever reason."""
        return None


class SilentObserver(EngineObserver):
    """Ignores everything."""
