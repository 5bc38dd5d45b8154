"""The candidates for the next token of each row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.decoding.row_states import Float64
from service.domain.plan import Int64, StepOutput


@dataclass
class Candidates:
    """The best tokens of every row, best first.

    Attributes:
        token_ids: [n, m] ids of the tokens.
        log_probabilities: [n, m] the model's log-probabilities, in float64: raw logit minus
            log-sum-exp.
        scores: [n, m] scores by which a search ranks; -inf for a forbidden token. The same array as
            `log_probabilities` while no row has constraints.
    """

    token_ids: Int64
    log_probabilities: Float64
    scores: Float64

    @classmethod
    def of(cls, output: StepOutput) -> Candidates:
        """The candidates of a step, without constraints."""
        log_probabilities = np.subtract(
            output.top_logits, output.log_sum_exp[:, None], dtype=np.float64
        )
        return cls(output.top_ids, log_probabilities, log_probabilities)

    def own(self) -> None:
        """Copy the arrays that constraints change: tokens and scores."""
        self.token_ids = self.token_ids.copy()
        self.scores = self.scores.copy()
