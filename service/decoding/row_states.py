"""The state of every row, as arrays over rows: tokens, positions, log-probabilities.

They are arrays, not objects: a step of a small model takes well under a millisecond, so that one
Python statement for each row and step would be measurable.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from service.domain.plan import Int32, Int64
from service.domain.requests import Hypothesis

Float64 = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]


class RowStates:
    """Tokens, and their log-probabilities, of each row of the batch.

    Attributes:
        token_ids: [max_rows] last token of each row, which is the input of its next step.
        positions: [max_rows] position of that token; also the number of tokens generated, and the
            number of positions in the row's self-attention cache before the next step.
        generated: [max_rows, max_target] generated tokens.
        log_probabilities: [max_rows, max_target] the model's log-probability of each token.
    """

    def __init__(
        self, max_rows: int, max_target_positions: int, *, bos_id: int, eos_id: int
    ) -> None:
        self.token_ids: Int64 = np.zeros(max_rows, np.int64)
        self.positions: Int32 = np.zeros(max_rows, np.int32)
        self.generated: Int64 = np.zeros((max_rows, max_target_positions), np.int64)
        self.log_probabilities: Float64 = np.zeros((max_rows, max_target_positions), np.float64)
        self._row_numbers: Indices = np.arange(max_rows)
        self._bos_id = bos_id
        self._eos_id = eos_id

    def begin(self, row: int) -> None:
        """Start a new sequence in `row`: BOS at position 0."""
        self.token_ids[row] = self._bos_id
        self.positions[row] = 0

    def move(self, source: int, target: int) -> None:
        """Copy the row `source` to the row `target`."""
        length = self.positions[source]
        for array in (self.generated, self.log_probabilities):
            array[target, :length] = array[source, :length]
        self.token_ids[target] = self.token_ids[source]
        self.positions[target] = length

    def swap(self, one: int, other: int) -> None:
        """Exchange two rows."""
        rows, exchanged = [one, other], [other, one]
        length = int(self.positions[rows].max())
        for array in (self.generated, self.log_probabilities):
            array[rows, :length] = array[exchanged, :length]
        self.token_ids[rows] = self.token_ids[exchanged]
        self.positions[rows] = self.positions[exchanged]

    def append(self, token_ids: Int64, log_probabilities: Float64) -> None:
        """Append a token to each of the first rows.

        Args:
            token_ids: [n] tokens for rows 0 to n-1.
            log_probabilities: [n] their log-probabilities.
        """
        num_rows = len(token_ids)
        rows, positions = self._row_numbers[:num_rows], self.positions[:num_rows]
        self.generated[rows, positions] = token_ids
        self.log_probabilities[rows, positions] = log_probabilities
        self.token_ids[:num_rows] = token_ids
        positions += 1

    def append_run(self, token_ids: Int64, log_probabilities: Float64) -> None:
        """Append the tokens of several steps to each of the first rows.

        Args:
            token_ids: [steps, n] tokens for rows 0 to n-1.
            log_probabilities: [steps, n] their log-probabilities.
        """
        num_steps, num_rows = token_ids.shape
        rows, positions = self._row_numbers[:num_rows], self.positions[:num_rows]
        every = positions + np.arange(num_steps)[:, np.newaxis]  # [steps, n]
        self.generated[rows, every] = token_ids
        self.log_probabilities[rows, every] = log_probabilities
        self.token_ids[:num_rows] = token_ids[-1]
        positions += num_steps

    def append_some(self, rows: Indices, token_ids: Int64, log_probabilities: Float64) -> None:
        """Append a token to each of `rows` [m]: token_ids and log_probabilities [m]."""
        positions = self.positions[rows]
        self.generated[rows, positions] = token_ids
        self.log_probabilities[rows, positions] = log_probabilities
        self.token_ids[rows] = token_ids
        self.positions[rows] = positions + 1

    def hypothesis(self, row: int, length: int, score: float) -> Hypothesis:
        """The first `length` tokens of `row` as a hypothesis."""
        token_ids: list[int] = self.generated[row, :length].tolist()
        log_probabilities = self.log_probabilities[row, :length]
        ended = length > 0 and token_ids[-1] == self._eos_id
        return Hypothesis(
            token_ids=token_ids[:-1] if ended else token_ids,
            token_log_probabilities=log_probabilities.tolist(),
            log_probability=total(log_probabilities),
            score=score,
            ended=ended,
        )

    def tokens(self, row: int, start: int = 0) -> list[int]:
        """The tokens generated in `row` from the position `start`."""
        tokens: list[int] = self.generated[row, start : self.positions[row]].tolist()
        return tokens


def total(log_probabilities: Float64) -> float:
    """The sum of log-probabilities, added up in the order of the positions, as in a search."""
    return float(np.add.accumulate(log_probabilities)[-1]) if len(log_probabilities) else 0.0
