"""Token choice: what a step's candidates mean for every running row.

The state is arrays over rows, not objects: a step of a small model takes well under a millisecond,
so one Python statement per row and step would show.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from service.plan import Int32, Int64, StepOutput

IntIndex = npt.NDArray[np.intp]


class GreedyRows:
    """The state of greedy decoding for each row of the batch.

    The best token is taken as it is, whatever it is: suppressing padding or BOS here would differ
    from the reference search, and a trained model gives them no probability worth speaking of.

    Attributes:
        token_ids: [max_rows] the last token of each row; what the next step is fed.
        positions: [max_rows] the position of that token; also the number of tokens generated, and
            the number of positions in the row's self-attention cache before the next step.
        log_probabilities: [max_rows] of the tokens generated so far, in float64, added up in the
            order of the positions, so that a row's sum does not depend on its neighbours.
    """

    def __init__(
        self, max_rows: int, max_target_positions: int, *, bos_id: int, eos_id: int
    ) -> None:
        self.token_ids: Int64 = np.zeros(max_rows, np.int64)
        self.positions: Int32 = np.zeros(max_rows, np.int32)
        self.log_probabilities = np.zeros(max_rows, np.float64)
        self._max_new_tokens: Int32 = np.zeros(max_rows, np.int32)
        self._generated: Int64 = np.zeros((max_rows, max_target_positions), np.int64)
        self._row_numbers: IntIndex = np.arange(max_rows)
        self._bos_id = bos_id
        self._eos_id = eos_id

    def begin(self, row: int, max_new_tokens: int) -> None:
        """Start a new sequence in `row`: BOS at position 0."""
        self.token_ids[row] = self._bos_id
        self.positions[row] = 0
        self.log_probabilities[row] = 0.0
        self._max_new_tokens[row] = max_new_tokens

    def move(self, source: int, target: int) -> None:
        """Let `target` be what `source` was."""
        length = self.positions[source]
        self._generated[target, :length] = self._generated[source, :length]
        self.token_ids[target] = self.token_ids[source]
        self.positions[target] = length
        self.log_probabilities[target] = self.log_probabilities[source]
        self._max_new_tokens[target] = self._max_new_tokens[source]

    def advance(self, output: StepOutput) -> IntIndex:
        """Take the best candidate of every row that stepped.

        Args:
            output: candidates [num_rows, top_k] for rows 0 .. num_rows-1.

        Returns:
            The rows that are finished, by EOS or by length.
        """
        num_rows = len(output.top_ids)
        chosen = output.top_ids[:, 0]
        positions = self.positions[:num_rows]
        self._generated[self._row_numbers[:num_rows], positions] = chosen
        self.token_ids[:num_rows] = chosen
        self.log_probabilities[:num_rows] += np.subtract(
            output.top_logits[:, 0], output.log_sum_exp, dtype=np.float64
        )
        positions += 1
        finished = (chosen == self._eos_id) | (positions >= self._max_new_tokens[:num_rows])
        rows: IntIndex = finished.nonzero()[0]
        return rows

    def ended(self, row: int) -> bool:
        """Whether the model itself ended the row's sequence: its last token is EOS."""
        return int(self.token_ids[row]) == self._eos_id

    def generated(self, row: int) -> list[int]:
        """The tokens generated in `row` so far, without EOS."""
        stop = int(self.positions[row])
        if stop and self.ended(row):
            stop -= 1
        tokens: list[int] = self._generated[row, :stop].tolist()
        return tokens
