"""Options of random sampling."""

from __future__ import annotations

import hashlib
import secrets
import struct
from dataclasses import dataclass, replace

from service.errors import InvalidArgumentError

# Each costs every row of the batch one more candidate, like each of `MAX_SUPPRESSED`.
MAX_SAMPLED = 256
# All rows of a step return as many candidates as the row that asks for most. In CPU time on one
# thread, a step of 64 rows with 64 candidates takes 1.1 (Transformer base) to 1.35 times (included
# model) as long as with one candidate, with 256 candidates 1.25 to 2.2 times; most of that is the
# heap of TopK. In the included model, the best 64 tokens have 88 % of the probability and the best
# 256 have 92 %: label smoothing spreads the rest over the whole vocabulary.
DEFAULT_SAMPLED = 64


@dataclass(frozen=True)
class Sampling:
    """Options of random sampling.

    Attributes:
        temperature: divisor of log-probabilities; below 1, likely tokens become likelier.
        top_k: number of best tokens to draw from; at most 256.
        top_p: fraction of those tokens' probability to draw from: the fewest best tokens that reach
            it are kept.
        seed: 0 to 2^64 - 1. The same seed draws the same tokens from the same candidates, whatever
            else is in the batch. None for a random seed for each sentence (`for_sentence`).

    Raises:
        InvalidArgumentError: a value is out of range; names the field and the limit.
    """

    temperature: float = 1.0
    top_k: int = DEFAULT_SAMPLED
    top_p: float = 1.0
    seed: int | None = 0

    def __post_init__(self) -> None:
        _check_between("temperature", self.temperature, 0.01, 100.0)
        _check_between("top_k", self.top_k, 1, MAX_SAMPLED)
        if not 0.0 < self.top_p <= 1.0:
            raise InvalidArgumentError("top_p", f"must be over 0 and at most 1, not {self.top_p}")
        if self.seed is not None:
            _check_between("seed", self.seed, 0, 2**64 - 1)

    def for_sentence(self, source_ids: tuple[int, ...]) -> Sampling:
        """The same options with a seed for one sentence of the request.

        With one seed for all, every sentence would draw its n-th token at the same quantile, and
        the samples would not be independent.
        """
        if self.seed is None:
            return replace(self, seed=secrets.randbits(64))
        key = self.seed.to_bytes(8, "little")
        source = struct.pack(f"<{len(source_ids)}q", *source_ids)
        digest = hashlib.blake2b(source, digest_size=8, key=key).digest()
        return replace(self, seed=int.from_bytes(digest, "little"))


def _check_between(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:  # also true of NaN
        raise InvalidArgumentError(name, f"must be between {least:g} and {most:g}, not {value}")
