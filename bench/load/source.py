"""The texts to send, one a line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.load.errors import SourceError


def read_texts(path: Path) -> list[str]:
    """The lines of a UTF-8 file, blank ones left out.

    Raises:
        SourceError: the file can't be read, is not UTF-8, or has no text.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as exc:
        raise SourceError(f"source file {path}: {exc.strerror or exc}") from exc
    except UnicodeDecodeError as exc:
        raise SourceError(f"source file {path}: not UTF-8 at byte {exc.start}") from exc
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise SourceError(f"source file {path} has no text: it needs at least one line")
    return texts


class TextOrder:
    """The texts of the n-th request: all in random order, then all in another order.

    A function of the seed and n alone, so that several processes share one order, and two systems
    get the same requests.
    """

    def __init__(self, num_texts: int, texts_per_request: int, seed: int) -> None:
        self._num_texts = num_texts
        self._texts_per_request = texts_per_request
        self._seed = seed
        self._rounds: dict[int, Sequence[int]] = {}

    def of_request(self, number: int) -> list[int]:
        """Indices of the texts of request `number`, from 0."""
        first = number * self._texts_per_request
        return [self._at(position) for position in range(first, first + self._texts_per_request)]

    def _at(self, position: int) -> int:
        number, place = divmod(position, self._num_texts)
        if number not in self._rounds:
            order = np.random.default_rng((self._seed, number)).permutation(self._num_texts)
            self._rounds = {number: order.tolist()}  # only one is needed at a time
        return self._rounds[number][place]
