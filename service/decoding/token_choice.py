"""Token choice: from the candidates of a step to the next token of every row."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from service.decoding.beams import Beam, BeamGroup
from service.decoding.candidates import Candidates
from service.decoding.constraints import Constraints
from service.decoding.row_states import Float64, Indices, RowStates, total
from service.decoding.sampling import draw
from service.domain.plan import Int64, RowCopy, StepOutput
from service.domain.requests import Hypothesis, SearchOptions
from service.domain.sampling import Sampling


class Decoding:
    """The searches of all requests in the batch: greedy searches with one row, beams with several.

    A greedy row takes the best token, even padding or BOS: suppressing them would differ from the
    reference search, and a trained model gives them hardly any probability.

    Attributes:
        states: states of all rows, with the generated tokens.
    """

    def __init__(
        self, max_rows: int, max_target_positions: int, *, bos_id: int, eos_id: int
    ) -> None:
        self.states = RowStates(max_rows, max_target_positions, bos_id=bos_id, eos_id=eos_id)
        self._eos_id = eos_id
        # Limits of greedy rows only; beams have their own.
        self._limits = np.zeros(max_rows, np.int32)
        self._is_greedy = np.ones(max_rows, np.bool_)
        self._groups: dict[int, BeamGroup] = {}
        self._group_of: dict[int, BeamGroup] = {}  # by row
        # By row, only for rows with constraints, so that others pay nothing.
        self._constraints: dict[int, Constraints] = {}
        # The same for greedy rows that only forbid fixed tokens, which matters if one is the best.
        self._forbidding: dict[int, Constraints] = {}
        self._sampling: dict[int, Sampling] = {}
        # Copies that are needed before the next step, by target.
        self._copies: dict[int, RowCopy] = {}

    def top_k_of(self, num_rows: int) -> int:
        """Number of candidates that a step of rows 0 to `num_rows`-1 must return for each."""
        if self.is_greedy:
            return 1
        sizes = [2 * size for size, group in self._groups.items() if group.steps(num_rows)]
        # At least two, to distinguish a forced token from a free choice.
        sampled = [max(2, one.top_k) for row, one in self._sampling.items() if row < num_rows]
        touched = [
            c.num_touched(self._generated(row))
            for row, c in self._constraints.items()
            if row < num_rows
        ]
        touched += [len(c.forbidden_ids) for row, c in self._forbidding.items() if row < num_rows]
        wanted = max([1, *sizes, *sampled]) + max(touched, default=0)
        # A power of two, since the runner has to prepare for every new value.
        return 1 << (wanted - 1).bit_length()

    def begin(self, rows: list[int], options: SearchOptions, max_new_tokens: int) -> None:
        """Start a search in `rows`, one for each hypothesis of its beam."""
        for row in rows:
            self.states.begin(row)
        self._is_greedy[rows] = options.beam_size == 1
        if options.has_constraints:
            constraints = Constraints(options, self._eos_id)
            is_greedy = options.beam_size == 1 and options.sampling is None
            by_row = self._forbidding if is_greedy and constraints.is_fixed else self._constraints
            by_row.update(dict.fromkeys(rows, constraints))
        if options.sampling is not None:
            self._sampling[rows[0]] = options.sampling
        if options.beam_size == 1:
            self._limits[rows] = options.most_generated(max_new_tokens)
            return
        group = self._groups.get(options.beam_size)
        if group is None:
            group = BeamGroup(options.beam_size, self.states, self._eos_id)
            self._groups[options.beam_size] = group
        group.begin(Beam(options, max_new_tokens), rows)
        self._group_of.update(dict.fromkeys(rows, group))

    def move(self, source: int, target: int) -> None:
        """Move the row `source` to the free row `target`, its cache included."""
        pending = self._copies.pop(source, None)
        stop = int(self.states.positions[source])
        origin = source if pending is None else pending.source
        # From position 0, since the target has none of it. Positions that a pending copy would not
        # have written to `source` are the same in the source of that copy.
        self._copies[target] = RowCopy(origin, target, 0, stop)
        self.states.move(source, target)
        for array in (self._limits, self._is_greedy):
            array[target] = array[source]
        for by_row in self._by_row:
            if source in by_row:
                by_row[target] = by_row.pop(source)
        if target in self._group_of:
            self._group_of[target].move(source, target)

    def swap(self, one: int, other: int) -> None:
        """Exchange two rows, their caches included."""
        copies = []
        for source, target in ((one, other), (other, one)):
            pending = self._copies.pop(source, None)
            origin = source if pending is None else pending.source
            copies.append(RowCopy(origin, target, 0, int(self.states.positions[source])))
        self._copies.update((copy.target, copy) for copy in copies)
        self.states.swap(one, other)
        for array in (self._limits, self._is_greedy):
            array[[one, other]] = array[[other, one]]
        for group in {self._group_of[row] for row in (one, other) if row in self._group_of}:
            group.swap(one, other)
        for by_row in self._by_row:
            held = {row: by_row.pop(row) for row in (one, other) if row in by_row}
            by_row.update({one + other - row: value for row, value in held.items()})

    def end(self, rows: list[int]) -> list[Hypothesis]:
        """Remove the search in `rows`.

        Returns:
            Hypotheses, best first: the requested number if the search is done, the best incomplete
            one if it is not, none before its first step.
        """
        group = self._group_of.get(rows[0])
        for row in rows:
            for by_row in self._by_row:
                by_row.pop(row, None)
        if group is None:
            length = int(self.states.positions[rows[0]])
            score = total(self.states.log_probabilities[rows[0], :length])
            return [self.states.hypothesis(rows[0], length, score)] if length else []
        for row in rows:
            self._copies.pop(row, None)
        hypotheses = group.end(rows[0])
        if not len(group):
            self._groups = {size: group for size, group in self._groups.items() if len(group)}
        return hypotheses

    def take_copies(self, new_rows: Collection[int] = ()) -> list[RowCopy]:
        """The cache copies to carry out before the next step, all at once.

        Nothing is copied to `new_rows`, into which sources are about to be encoded.
        """
        if not self._copies:
            return []
        copies = [copy for copy in self._copies.values() if copy.target not in new_rows]
        self._copies.clear()
        return copies

    def advance_all(self, outputs: Sequence[StepOutput]) -> None:
        """Append the tokens of several steps to greedy rows, none of which is done with them."""
        chosen = np.stack([output.top_ids[:, 0] for output in outputs])
        logits = np.stack([output.top_logits[:, 0] for output in outputs])
        log_sum_exp = np.stack([output.log_sum_exp for output in outputs])
        self.states.append_run(chosen, np.subtract(logits, log_sum_exp, dtype=np.float64))

    def advance(self, output: StepOutput) -> list[int]:
        """Append a token to every row that stepped: the first ones, with all rows of their beams.

        Args:
            output: candidates [num_rows, at least `top_k`] for rows 0 .. num_rows-1.

        Returns:
            A row of each search that is done: by EOS, by length, or because it can't improve.
        """
        chosen = output.top_ids[:, 0]
        log_probabilities = np.subtract(
            output.top_logits[:, 0], output.log_sum_exp, dtype=np.float64
        )
        done = []
        num_rows = len(chosen)
        constraints = {row: one for row, one in self._constraints.items() if row < num_rows}
        constraints |= self._forbidding_best(output)
        if self._groups or constraints or self._sampling:
            chosen = chosen.copy()
            candidates = Candidates.of(output)
            self._choose_non_greedy(candidates, constraints, chosen, log_probabilities)
            for group in self._groups.values():
                beams_done, copies = group.advance(candidates, chosen, log_probabilities)
                done += beams_done
                self._copies.update((copy.target, copy) for copy in copies)
        states = self.states
        states.append(chosen, log_probabilities)
        finished = states.positions[:num_rows] >= self._limits[:num_rows]
        finished |= chosen == self._eos_id
        if self._groups:
            finished &= self._is_greedy[:num_rows]
        rows: list[int] = finished.nonzero()[0].tolist()
        return rows + done

    @property
    def is_greedy(self) -> bool:
        """Whether every row takes the model's best token."""
        return self.is_mostly_greedy and not self._forbidding

    @property
    def is_mostly_greedy(self) -> bool:
        """Whether every row takes the model's best token unless that is forbidden."""
        return not (self._groups or self._constraints or self._sampling)

    def num_left(self, num_rows: int) -> int:
        """Number of steps until one of the first `num_rows` greedy rows reaches its length."""
        return int((self._limits[:num_rows] - self.states.positions[:num_rows]).min())

    def ends(self, output: StepOutput) -> bool:
        """Whether any row ends with its best token or may not take it; all are mostly greedy."""
        best = output.top_ids[:, 0].tolist()  # of few numbers, faster than NumPy
        return self._eos_id in best or bool(self._forbidding_best(output))

    def continues_after(self, rows: list[int], num_steps: int) -> bool:
        """Whether any of the greedy `rows` does not reach its length within `num_steps` more."""
        return bool((self.states.positions[rows] + num_steps < self._limits[rows]).any())

    def advance_some(self, output: StepOutput, rows: Indices) -> list[int]:
        """Append a token to `rows`, which are greedy; ignores the output of other rows.

        Returns:
            The rows that are done.
        """
        chosen = output.top_ids[rows, 0]
        log_probabilities = np.subtract(
            output.top_logits[rows, 0], output.log_sum_exp[rows], dtype=np.float64
        )
        self.states.append_some(rows, chosen, log_probabilities)
        finished = (self.states.positions[rows] >= self._limits[rows]) | (chosen == self._eos_id)
        done: list[int] = rows[finished].tolist()
        return done

    def _forbidding_best(self, output: StepOutput) -> dict[int, Constraints]:
        """Constraints of the rows that may not take their best token, by row."""
        if not self._forbidding:
            return {}
        best = output.top_ids[:, 0].tolist()
        return {
            row: constraints
            for row, constraints in self._forbidding.items()
            if row < len(best) and best[row] in constraints.forbidden_ids
        }

    def _choose_non_greedy(
        self,
        candidates: Candidates,
        constraints_of: dict[int, Constraints],
        chosen: Int64,
        log_probabilities: Float64,
    ) -> None:
        """Choose for rows with constraints or sampling."""
        if constraints_of:
            candidates.own()
        over = []
        for row, constraints in constraints_of.items():
            generated = self._generated(row)
            constraints.apply(candidates, row, generated)
            if constraints.are_over(len(generated) + 1):
                over.append(row)
            best = candidates.scores[row, 0]
            # End if the whole vocabulary is forbidden.
            chosen[row] = candidates.token_ids[row, 0] if best > -np.inf else self._eos_id
            log_probabilities[row] = candidates.log_probabilities[row, 0]
        for row in over:  # from now on, it steps without constraints, at no cost
            del self._constraints[row]
        for row, sampling in self._sampling.items():
            if row >= len(chosen):
                continue
            scores = candidates.scores[row]
            if scores[0] > -np.inf and scores[1] > -np.inf:  # not forced
                index = draw(scores, sampling, int(self.states.positions[row]))
                chosen[row] = candidates.token_ids[row, index]
                log_probabilities[row] = candidates.log_probabilities[row, index]

    @property
    def _by_row(self) -> tuple[dict[int, Any], ...]:
        return self._constraints, self._forbidding, self._sampling, self._group_of

    def _generated(self, row: int) -> Int64:
        return self.states.generated[row, : self.states.positions[row]]
