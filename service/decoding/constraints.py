"""Constraints: tokens that a request forbids, forces, or makes less likely, in its own rows.

They are not in the graph, so that a row with constraints does not affect others. They do not need
the whole vocabulary either: constraints only lower scores, so if they change d tokens, the best n
tokens under them are among the model's best n + d.
"""

from __future__ import annotations

import numpy as np

from service.decoding.candidates import Candidates
from service.domain.plan import Int64
from service.domain.requests import SearchOptions


class Constraints:
    """The constraints of one request.

    Args:
        options: search options of the request.
        eos_id: id that ends a target.

    Attributes:
        forbidden_ids: tokens that they forbid whatever was generated, EOS only at first.
        is_fixed: whether they change no other tokens.
    """

    def __init__(self, options: SearchOptions, eos_id: int) -> None:
        at_first = (eos_id,) if options.min_new_tokens else ()
        self.forbidden_ids = frozenset((*options.suppressed_ids, *at_first))
        self.is_fixed = options.has_only_fixed_constraints
        self._options = options
        self._only_forces = options.has_only_prefix
        self._eos = np.array([eos_id], np.int64)
        self._suppressed = np.array(options.suppressed_ids, np.int64)

    def num_touched(self, generated: Int64) -> int:
        """An upper bound of the number of best candidates that they change at the next step.

        Args:
            generated: [P] tokens so far.
        """
        if len(generated) < len(self._options.prefix_ids):
            return 0
        touched = self._forbidden(generated)
        if self._options.repetition_penalty > 1.0:
            touched = np.concatenate([touched, generated])
        return len(np.unique(touched))

    def are_over(self, num_generated: int) -> bool:
        """Whether they change nothing after `num_generated` tokens: all forced ones were chosen."""
        return self._only_forces and num_generated >= len(self._options.prefix_ids)

    def apply(self, candidates: Candidates, row: int, generated: Int64) -> None:
        """Change the candidates of `row`, and sort them again, best first; equals keep their order.

        Scores follow the constraints; log-probabilities stay the model's. A forced token is given,
        not chosen: its log-probability and score are 0.

        Args:
            candidates: candidates of all rows.
            row: a row of this request.
            generated: [P] tokens of the row so far.
        """
        token_ids, scores = candidates.token_ids[row], candidates.scores[row]
        if len(generated) < len(self._options.prefix_ids):
            token_ids[0] = self._options.prefix_ids[len(generated)]
            candidates.log_probabilities[row, 0] = scores[0] = 0.0
            scores[1:] = -np.inf
            return
        if self._options.repetition_penalty > 1.0:
            scores[np.isin(token_ids, generated)] *= self._options.repetition_penalty
        scores[np.isin(token_ids, self._forbidden(generated))] = -np.inf
        order = np.argsort(-scores, kind="stable")
        for values in (token_ids, candidates.log_probabilities[row], scores):
            values[:] = values[order]

    def _forbidden(self, generated: Int64) -> Int64:
        options = self._options
        forbidden = [self._suppressed]
        if len(generated) < options.min_new_tokens:
            forbidden.append(self._eos)
        if options.no_repeat_ngram_size:
            forbidden.append(_would_repeat(generated, options.no_repeat_ngram_size))
        return np.concatenate(forbidden)


def _would_repeat(generated: Int64, size: int) -> Int64:
    """The tokens that would repeat an n-gram of this size."""
    if len(generated) < size:
        return generated[:0]
    ngrams = np.lib.stride_tricks.sliding_window_view(generated, size)
    last = generated[len(generated) - size + 1 :]
    ends: Int64 = ngrams[(ngrams[:, :-1] == last).all(axis=1), -1]
    return ends
