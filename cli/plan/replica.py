"""A measured replica: the durations of its work, its size, and the lengths of its sentences."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from cli.output_files import write_whole

FORMAT = "dragoman-replica-1"
MOST_LENGTHS = 2_000


class ReplicaError(Exception):
    """A replica can't be measured, or its file can't be used. The message may be shown to users."""


@dataclass(frozen=True)
class MeasuredReplica:
    """One server, as measured.

    Attributes:
        model: name of its model.
        cores: CPU cores of the replica.
        memory_bytes: resident memory under load, of all of its processes.
        max_rows: sentences that step together at most.
        step_base, step_row: a step of n rows takes `step_base + n * step_row` seconds.
        encode_base, encode_token: an encode of n tokens takes `encode_base + n * encode_token`.
        call_seconds: time of the event loop for a call.
        other_seconds: the rest of a call's latency without load: network, proxy, client.
        encodes_beside_from_rows: rows from which on sources are encoded beside the steps; None if
            steps wait for encodes.
        lengths: (source tokens, decoder steps) of sentences.
        tokens_per_character: source tokens, for texts that were not measured.
    """

    model: str
    cores: int
    memory_bytes: float
    max_rows: int
    step_base: float
    step_row: float
    encode_base: float
    encode_token: float
    call_seconds: float
    other_seconds: float
    encodes_beside_from_rows: int | None
    lengths: tuple[tuple[int, int], ...]
    tokens_per_character: float = 0.25

    def __post_init__(self) -> None:
        for name in ("cores", "max_rows", "memory_bytes", "tokens_per_character"):
            if not getattr(self, name) > 0:
                raise ReplicaError(f"{name} must be above 0, not {getattr(self, name)}")
        times = ("step_base", "step_row", "encode_base", "encode_token", "call_seconds")
        for name in (*times, "other_seconds"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ReplicaError(f"{name} must not be negative, not {getattr(self, name)}")
        if self.step_base + self.step_row <= 0:
            raise ReplicaError("step_base and step_row are both 0")
        if not self.lengths or min(map(min, self.lengths)) < 1:
            raise ReplicaError("lengths must have pairs of numbers above 0")

    @property
    def is_single_core(self) -> bool:
        """Whether calls and steps share a core, so that a call delays the step in flight."""
        return self.cores == 1

    @property
    def mean_source_tokens(self) -> float:
        """Mean number of source tokens."""
        return sum(source for source, _ in self.lengths) / len(self.lengths)

    @property
    def mean_steps(self) -> float:
        """Mean number of decoder steps."""
        return sum(steps for _, steps in self.lengths) / len(self.lengths)

    def step_seconds(self, num_rows: int) -> float:
        """Duration of a step."""
        return self.step_base + num_rows * self.step_row

    def encode_seconds(self, num_tokens: float) -> float:
        """Duration of an encode of this number of source tokens."""
        return self.encode_base + num_tokens * self.encode_token

    def idle_seconds(self, source_tokens: int, steps: int) -> float:
        """Latency of a sentence on an idle replica."""
        fixed = self.call_seconds + self.other_seconds
        return fixed + self.encode_seconds(source_tokens) + steps * self.step_seconds(1)

    def capacity(self) -> float:
        """Sentences a second with a full batch: no queue is stable beyond it."""
        step, steps, rows = self.step_seconds(self.max_rows), self.mean_steps, self.max_rows
        # Sentences that join in the same step are encoded together.
        joining = max(1.0, rows / steps)
        encode = self.encode_seconds(joining * self.mean_source_tokens) / joining
        stepping = steps * step / rows
        if self.is_single_core:
            return 1.0 / (stepping + encode + self.call_seconds)
        if self.encodes_beside_from_rows is None:
            return 1.0 / max(stepping + encode, self.call_seconds)
        return 1.0 / max(stepping, encode, self.call_seconds)

    def with_texts(self, texts: Sequence[str]) -> MeasuredReplica:
        """The replica with the lengths of other texts, estimated from their characters."""
        steps_per_token = self.mean_steps / self.mean_source_tokens
        lengths = []
        for text in texts[:MOST_LENGTHS]:
            source = max(1, round(len(text) * self.tokens_per_character))
            lengths.append((source, max(1, round(source * steps_per_token))))
        return replace(self, lengths=tuple(lengths))

    def write(self, path: Path) -> None:
        """Write the replica to a JSON file.

        Raises:
            ReplicaError: the file can't be written.
        """
        content = {"format": FORMAT, **asdict(self)}
        try:
            write_whole(path, [f"{json.dumps(content)}\n".encode()])
        except OSError as exc:
            raise ReplicaError(f"{path}: {exc.strerror or exc}") from exc

    @classmethod
    def read(cls, path: Path) -> MeasuredReplica:
        """The replica that `write` wrote.

        Raises:
            ReplicaError: the file can't be read, or does not hold a replica.
        """
        try:
            found: Any = json.loads(path.read_text(encoding="utf-8"))
        except OSError as exc:
            raise ReplicaError(f"{path}: {exc.strerror or exc}") from exc
        except ValueError as exc:
            raise ReplicaError(f"{path} is not JSON: {exc}") from exc
        if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
            raise ReplicaError(f"{path} is not a replica that `dragoman plan --measure` wrote")
        known = {field.name for field in fields(cls)}
        if unknown := found.keys() - known:
            raise ReplicaError(f"{path}: unknown field {min(unknown)}")
        try:
            pairs = tuple((int(source), int(steps)) for source, steps in found.pop("lengths"))
            return cls(lengths=pairs, **found)
        except ReplicaError as exc:
            raise ReplicaError(f"{path}: {exc}") from exc
        except (KeyError, TypeError, ValueError) as exc:
            raise ReplicaError(f"{path} lacks a field, or has a wrong one: {exc}") from exc
