"""Beam search for many requests at once (Graves, 2012; Wu et al., 2016).

The search, including ties, is the same as in the PyTorch reference, `model/evaluation/search.py`.
Here, all beams of one size advance together, as arrays, and return the necessary copies between
cache rows.

A step takes the best 2k continuations of a beam of k hypotheses. Those that end and are among the
best k are finished; the first k that don't end continue. A hypothesis that continues stays in its
parent's row of the batch if it is the parent's best child; its siblings take the rows of parents
without children. So only changes are copied, and no row is both read and written.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from service.decoding.candidates import Candidates
from service.decoding.row_states import Float64, Indices, RowStates
from service.domain.plan import Int64, RowCopy
from service.domain.requests import Hypothesis, SearchOptions

Bools = npt.NDArray[np.bool_]

_NO_HYPOTHESIS = -np.inf  # the total of a hypothesis that does not exist


@dataclass(eq=False)
class Beam:
    """The search of one request.

    Attributes:
        options: options of the search.
        max_new_tokens: most tokens of a hypothesis, EOS included.
        finished: the best `beam_size` hypotheses that have ended, best first.
        ends_at_limit: whether the running hypotheses have reached the limit, where EOS is forced.
    """

    options: SearchOptions
    max_new_tokens: int
    finished: list[Hypothesis] = field(default_factory=list)
    ends_at_limit: bool = False

    def finish(self, hypothesis: Hypothesis) -> None:
        """Add a hypothesis that ended. Among equals the first stays first."""
        self.finished.append(hypothesis)
        self.finished.sort(key=lambda finished: -finished.score)
        del self.finished[self.options.beam_size :]

    def cannot_improve(self, best_total: float, length: int) -> bool:
        """Whether no running hypothesis can improve the result; the best has `length` tokens."""
        options = self.options
        if len(self.finished) < options.beam_size:
            return False
        if options.early_stopping == "first":
            return True
        if options.early_stopping == "never" and options.length_penalty > 0:
            length = self.max_new_tokens
        return self.finished[-1].score >= options.score(best_total, length)


@dataclass
class _Pool:
    """The best 2k continuations of each of J beams, best first.

    Attributes:
        parents: [J, 2k] ranks of their parents among the previous hypotheses.
        columns: [J, 2k] indices among the parents' candidates.
        token_ids: [J, 2k] ids of their tokens.
        totals: [J, 2k] scores so far; `_NO_HYPOTHESIS` where there are fewer continuations.
    """

    parents: Indices
    columns: Indices
    token_ids: Int64
    totals: Float64


class BeamGroup:
    """The beams of one size.

    Args:
        beam_size: k, more than 1.
        states: states of all rows of the batch.
        eos_id: id of the token that ends a hypothesis.
    """

    def __init__(self, beam_size: int, states: RowStates, eos_id: int) -> None:
        self._size = beam_size
        self._states = states
        self._eos_id = eos_id
        self._beams: list[Beam] = []
        # [J, k] of J beams. Hypotheses are in the order of their totals, so that equal candidates
        # come in the order of their parents.
        self._rows: Indices = np.zeros((0, beam_size), np.intp)
        self._totals: Float64 = np.zeros((0, beam_size))
        self._limits: Indices = np.zeros(0, np.intp)
        self._forced: Bools = np.zeros(0, np.bool_)
        self._earlier: Bools = np.tri(beam_size, k=-1, dtype=bool)

    def __len__(self) -> int:
        return len(self._beams)

    def begin(self, beam: Beam, rows: list[int]) -> None:
        """Start a beam in `rows`, with one empty hypothesis; the other rows step along with it."""
        totals = [0.0] + [_NO_HYPOTHESIS] * (self._size - 1)
        self._beams.append(beam)
        self._rows = np.vstack([self._rows, np.array(rows, np.intp)])
        self._totals = np.vstack([self._totals, totals])
        self._limits = np.append(self._limits, beam.options.most_generated(beam.max_new_tokens))
        self._forced = np.append(self._forced, beam.options.forced_eos)

    def move(self, source: int, target: int) -> None:
        """Record that a hypothesis has moved from the row `source` to the row `target`."""
        self._rows[self._rows == source] = target

    def swap(self, one: int, other: int) -> None:
        """Record that two rows of the batch have changed places."""
        is_one, is_other = self._rows == one, self._rows == other
        self._rows[is_one], self._rows[is_other] = other, one

    def steps(self, num_rows: int) -> bool:
        """Whether any beam is in the batch's first rows; all rows of a beam step together."""
        return bool((self._rows[:, 0] < num_rows).any())

    def end(self, row: int) -> list[Hypothesis]:
        """Remove the beam that `row` belongs to.

        Returns:
            The requested number of its hypotheses, best first; the best running one if none is
            finished.
        """
        index = int((self._rows == row).any(axis=1).argmax())
        beam = self._beams.pop(index)
        best_row, best_total = int(self._rows[index, 0]), float(self._totals[index, 0])
        if beam.ends_at_limit:
            for rank in np.flatnonzero(self._totals[index] > _NO_HYPOTHESIS):
                self._force_eos(
                    beam, int(self._rows[index, rank]), float(self._totals[index, rank])
                )
        self._rows = np.delete(self._rows, index, axis=0)
        self._totals = np.delete(self._totals, index, axis=0)
        self._limits = np.delete(self._limits, index)
        self._forced = np.delete(self._forced, index)
        if beam.finished:
            return beam.finished[: beam.options.num_hypotheses]
        length = int(self._states.positions[best_row])
        return [self._hypothesis(beam, best_row, length, best_total)] if length else []

    def advance(
        self, candidates: Candidates, chosen: Int64, log_probabilities: Float64
    ) -> tuple[list[int], list[RowCopy]]:
        """Advance every beam that stepped, with rows among the first n, by one step.

        Args:
            candidates: candidates of the first n rows, at least 2k of each.
            chosen: [n] filled with the token that each row of a beam appends.
            log_probabilities: [n] filled with the log-probability of that token.

        Returns:
            One row of each finished beam, and the copies that the rows of the others need before
            their next step.
        """
        stepped = self._rows[:, 0] < len(chosen)
        if not stepped.all():
            return self._advance_some(stepped, candidates, chosen, log_probabilities)
        pool = self._pool(candidates)
        lengths = self._states.positions[self._rows[:, 0]].astype(np.intp) + 1
        exists = pool.totals > _NO_HYPOTHESIS
        at_limit = lengths >= self._limits
        ends = (pool.token_ids == self._eos_id) | (at_limit & ~self._forced)[:, None]
        for index, rank in zip(*(exists & ends)[:, : self._size].nonzero(), strict=True):
            self._finish(int(index), int(rank), pool, candidates)
        for index in np.flatnonzero(~exists.any(axis=1)):
            self._give_up(int(index))
        continues = exists & ~ends
        # The first k that continue, in front of all others.
        kept = np.argsort(~continues, axis=1, kind="stable")[:, : self._size]
        runs = np.take_along_axis(continues, kept, axis=1)
        totals = np.where(runs, np.take_along_axis(pool.totals, kept, axis=1), _NO_HYPOTHESIS)
        done = self._done(totals[:, 0], lengths, at_limit)
        parents = np.take_along_axis(pool.parents, kept, axis=1)
        columns = np.take_along_axis(pool.columns, kept, axis=1)
        token_ids = np.take_along_axis(pool.token_ids, kept, axis=1)
        # Rows without a hypothesis step along with the best one.
        token_ids = np.where(runs, token_ids, token_ids[:, :1])
        parent_rows = np.take_along_axis(self._rows, parents, axis=1)
        rows, moved = self._assign(parents, parent_rows, runs)
        copies = self._follow(parent_rows[moved], rows[moved])
        chosen[rows] = token_ids
        log_probabilities[rows] = candidates.log_probabilities[parent_rows, columns]
        self._rows, self._totals = rows, totals
        return [int(rows[index, 0]) for index in done], copies

    def _advance_some(
        self, stepped: Bools, candidates: Candidates, chosen: Int64, log_probabilities: Float64
    ) -> tuple[list[int], list[RowCopy]]:
        """Advance the beams of the mask `stepped` [J]."""
        part = BeamGroup(self._size, self._states, self._eos_id)
        part._beams = [beam for beam, steps in zip(self._beams, stepped, strict=True) if steps]
        if not part._beams:
            return [], []
        part._rows, part._totals = self._rows[stepped], self._totals[stepped]
        part._limits, part._forced = self._limits[stepped], self._forced[stepped]
        advanced = part.advance(candidates, chosen, log_probabilities)
        self._rows[stepped], self._totals[stepped] = part._rows, part._totals
        return advanced

    def _pool(self, candidates: Candidates) -> _Pool:
        width = 2 * self._size
        scores = candidates.scores[self._rows, :width] + self._totals[:, :, None]  # [J, k, 2k]
        flat = scores.reshape(len(scores), -1)
        # Stable: equals stay in the order of hypotheses, and of candidates within one.
        order = np.argsort(-flat, axis=1, kind="stable")[:, :width]
        parents, columns = np.divmod(order, scores.shape[2])
        rows = np.take_along_axis(self._rows, parents, axis=1)
        totals = np.take_along_axis(flat, order, axis=1)
        return _Pool(parents, columns, candidates.token_ids[rows, columns], totals)

    def _finish(self, index: int, rank: int, pool: _Pool, candidates: Candidates) -> None:
        beam = self._beams[index]
        row = self._rows[index, pool.parents[index, rank]]
        length = int(self._states.positions[row])
        # The row's next position is free: this token has not been appended yet.
        states, column = self._states, pool.columns[index, rank]
        states.generated[row, length] = pool.token_ids[index, rank]
        states.log_probabilities[row, length] = candidates.log_probabilities[row, column]
        beam.finish(self._hypothesis(beam, row, length + 1, float(pool.totals[index, rank])))

    def _give_up(self, index: int) -> None:
        """Finish the running hypotheses without EOS, because every token is forbidden."""
        for row, total in zip(self._rows[index], self._totals[index], strict=True):
            if total > _NO_HYPOTHESIS:
                length = int(self._states.positions[row])
                self._beams[index].finish(self._hypothesis(self._beams[index], row, length, total))

    def _force_eos(self, beam: Beam, row: int, total: float) -> None:
        """Finish a running hypothesis with an EOS that costs nothing but adds to its length."""
        length = int(self._states.positions[row])
        score = beam.options.score(total, length + 1)
        beam.finish(self._states.hypothesis(row, length, score))

    def _hypothesis(self, beam: Beam, row: int, length: int, total: float) -> Hypothesis:
        return self._states.hypothesis(row, length, beam.options.score(total, max(length, 1)))

    def _done(self, best_totals: Float64, lengths: Indices, at_limit: Bools) -> list[int]:
        done = []
        for index, beam in enumerate(self._beams):
            best = float(best_totals[index])
            if best == _NO_HYPOTHESIS or beam.cannot_improve(best, int(lengths[index])):
                done.append(index)
            elif at_limit[index]:  # only if EOS is forced; otherwise no hypothesis runs on
                beam.ends_at_limit = True
                done.append(index)
        return done

    def _assign(self, parents: Indices, parent_rows: Indices, runs: Bools) -> tuple[Indices, Bools]:
        """The row of each hypothesis [J, k], and whether it differs from its parent's row."""
        same = parents[:, :, None] == parents[:, None, :]
        has_better_sibling = (same & runs[:, None, :] & self._earlier).any(axis=2)
        stays = runs & ~has_better_sibling
        in_use = np.zeros_like(stays)
        in_use[stays.nonzero()[0], parents[stays]] = True
        # Each beam has exactly as many free rows as hypotheses that must move.
        rows = parent_rows.copy()
        rows[~stays] = self._rows[~in_use]
        return rows, runs & ~stays

    def _follow(self, sources: Indices, targets: Indices) -> list[RowCopy]:
        """Copy the rows `sources` to the rows `targets`, up to the token that is appended next.

        The caches of two rows of a beam are equal, bit for bit, where their tokens are equal, so
        that positions before their last common ancestor need not be copied.

        Returns:
            The same copies, for the cache.
        """
        if not len(sources):
            return []
        generated = self._states.generated
        lengths = self._states.positions[sources]
        columns = np.arange(lengths.max() + 1)
        differs = generated[sources, : len(columns)] != generated[targets, : len(columns)]
        starts = (differs | (columns >= lengths[:, None])).argmax(axis=1)
        for array in (generated, self._states.log_probabilities):
            array[targets, : len(columns) - 1] = array[sources, : len(columns) - 1]
        # The cache holds BOS too, so that a token is one position further there.
        spans = zip(
            sources.tolist(), targets.tolist(), starts.tolist(), lengths.tolist(), strict=True
        )
        return [
            RowCopy(source, target, start + 1, length + 1, cross=False)
            for source, target, start, length in spans
            if start < length
        ]
