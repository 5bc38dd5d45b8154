"""The shortlists of a runner's rows, and the columns of the vocabulary's product that they need.

The columns of the union of all lists are one buffer, an input of the graph. A column is added with
the first row that lists its token, and stays until its place is needed, so that a new row adds few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from model.bundle.bundle import Bundle
from model.bundle.sessions import SessionSettings, open_session
from model.bundle.shortlist import Shortlist, load_shortlist

Array = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]

# Widths of the buffer of columns, so that it is seldom allocated again.
_COLUMNS = 512
# Sums over rows of a multiple of this many numbers are the same bits if zeros follow.
_LISTED = 128
_PADDING = 0  # the column with a bias of -inf


@dataclass(frozen=True)
class ListGraphs:
    """A bundle's shortlist, and the sessions that use it.

    Attributes:
        shortlist: the shortlist.
        step: the decoder step that chooses from lists.
        columns: returns columns of the vocabulary's product.
        vocab_size: number of tokens.
    """

    shortlist: Shortlist
    step: ort.InferenceSession
    columns: ort.InferenceSession
    vocab_size: int

    @classmethod
    def open(cls, bundle: Bundle, settings: SessionSettings) -> ListGraphs | None:
        """Open them; None without a shortlist, or if the settings don't use it.

        Raises:
            BundleError: a file can't be used.
        """
        shortlist = load_shortlist(bundle) if settings.uses_shortlist else None
        if shortlist is None:
            return None
        step, columns = (
            open_session(bundle, bundle.path / str(bundle.manifest["graphs"][name]), settings)
            for name in ("shortlist_step", "list_columns")
        )
        return cls(shortlist, step, columns, bundle.config.vocab_size)

    def columns_of(self, token_ids: Ids) -> dict[str, Array]:
        """The columns of some tokens, by the names of the step's inputs."""
        names = [value.name for value in self.columns.get_outputs()]
        found = self.columns.run(names, {"token_ids": token_ids})
        return dict(zip(names, found, strict=True))


class RowLists:
    """The lists of all rows, and the inputs of the step that follow from them.

    Args:
        graphs: a bundle's shortlist and graphs.
        max_rows: number of rows.

    Attributes:
        is_listed: bool [max_rows]: whether each row has a list; others choose from all tokens.
        generation: changes when an array of `shared` or `listed_columns` is replaced.
        shared: inputs of the graph for all rows: columns, their scales, biases and tokens.
        listed_columns: int32 [max_rows, listed], an input of the graph.
    """

    def __init__(self, graphs: ListGraphs, max_rows: int) -> None:
        self._graphs = graphs
        self.is_listed = np.zeros(max_rows, np.bool_)
        # The arguments of the last `trim` and its answer; none if lists have changed since.
        self._trimmed: tuple[int, int] | None = None
        self._any_and_all = False, False
        self.generation = 0
        self.listed_columns = np.zeros((max_rows, _LISTED), np.int32)
        self._lengths = np.zeros(max_rows, np.int64)
        self._column_of = np.zeros(graphs.vocab_size, np.int32)
        self._uses = np.ones(1, np.int32)  # rows that list each column; the padding is always used
        padding = graphs.columns_of(np.zeros(1, np.int64))
        padding["column_bias"][:] = -np.inf
        self.shared: dict[str, Array] = {**padding, "column_ids": np.zeros(1, np.int64)}
        self._resize(_COLUMNS)

    def begin(
        self, rows: Sequence[int], source_ids: Sequence[int] | None, added_ids: Sequence[int]
    ) -> None:
        """Give rows the list of a source; without a source, all tokens."""
        self.clear(rows)
        if source_ids is None:
            return
        token_ids = self._graphs.shortlist.target_ids(source_ids, added_ids)
        columns = self._acquire(token_ids, len(rows))
        self.reserve(len(columns))
        for row in rows:
            self._write(row, columns)

    def clear(self, rows: Sequence[int]) -> None:
        """Take the lists of rows away: they choose from all tokens."""
        self._trimmed = None
        for row in rows:
            if self.is_listed[row]:
                self._uses[self._columns(row)] -= 1
                self.listed_columns[row] = _PADDING
                self.is_listed[row] = False

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Give each target the list of its source, as if all at once."""
        lists = [self._columns(row).copy() if self.is_listed[row] else None for row in sources]
        for columns in lists:
            if columns is not None:
                self._uses[columns] += 1
        self.clear(targets)
        for row, columns in zip(targets, lists, strict=True):
            if columns is not None:
                self._write(row, columns)

    def trim(self, num_rows: int, num_paused: int = 0) -> tuple[bool, bool]:
        """Take the lists of rows that nobody uses away, and free columns if few are used.

        Args:
            num_rows: number of rows that step.
            num_paused: number of rows behind them that keep their lists.

        Returns:
            Whether any, and whether each, of the first `num_rows` rows has a list.
        """
        if (num_rows, num_paused) == self._trimmed:
            return self._any_and_all
        num_used = num_rows + num_paused
        ended = num_used + np.flatnonzero(self.is_listed[num_used:])
        if num_used and len(ended):
            self.clear(ended.tolist())
            num_columns = int(np.count_nonzero(self._uses))
            if 4 * num_columns < len(self._uses) and len(self._uses) > _COLUMNS:
                self._compact(num_columns)
        is_listed = self.is_listed[:num_rows]
        self._trimmed = num_rows, num_paused
        self._any_and_all = bool(is_listed.any()), bool(is_listed.all())
        return self._any_and_all

    def reserve(self, count: int) -> None:
        """Make lists so wide that `count` tokens fit in."""
        if count <= (width := self.listed_columns.shape[1]):
            return
        wider = -count % _LISTED + count
        self.listed_columns = _widened(self.listed_columns, wider - width)
        self.generation += 1

    def _columns(self, row: int) -> npt.NDArray[np.int32]:
        return self.listed_columns[row, : self._lengths[row]]

    def _write(self, row: int, columns: npt.NDArray[np.int32]) -> None:
        self.listed_columns[row, : len(columns)] = columns
        self.listed_columns[row, len(columns) :] = _PADDING
        self._lengths[row] = len(columns)
        self.is_listed[row] = True
        self._trimmed = None

    def _acquire(self, token_ids: Ids, num_rows: int) -> npt.NDArray[np.int32]:
        """Get the columns of tokens for a number of rows, and add missing columns."""
        columns = self._column_of[token_ids]
        missing = columns == _PADDING
        self._uses[columns[~missing]] += num_rows
        if missing.any():
            columns[missing] = added = self._add(token_ids[missing])
            self._uses[added] += num_rows
        return columns

    def _add(self, token_ids: Ids) -> npt.NDArray[np.int32]:
        """Put tokens into columns that no row uses."""
        free = np.flatnonzero(self._uses == 0)
        if len(free) < len(token_ids):
            size = len(self._uses) + len(token_ids) - len(free)
            self._resize(size + -size % _COLUMNS)
            free = np.flatnonzero(self._uses == 0)
        columns = free[: len(token_ids)].astype(np.int32)
        replaced = self.shared["column_ids"][columns]
        mine = self._column_of[replaced] == columns  # otherwise the column was empty
        self._column_of[replaced[mine]] = _PADDING
        for name, array in self._graphs.columns_of(token_ids).items():
            self.shared[name][..., columns] = array
        self.shared["column_ids"][columns] = token_ids
        self._column_of[token_ids] = columns
        return columns

    def _resize(self, size: int) -> None:
        """Widen the buffer; new columns are empty."""
        added = size - len(self._uses)
        self.shared = {name: _widened(array, added) for name, array in self.shared.items()}
        self._uses = _widened(self._uses, added)
        self.generation += 1

    def _compact(self, num_used: int) -> None:
        """Move the used columns to the beginning of a smaller buffer."""
        used = np.flatnonzero(self._uses)
        place_of = np.zeros(len(self._uses), np.int32)
        place_of[used] = np.arange(num_used)
        self.shared = {name: array.take(used, axis=-1) for name, array in self.shared.items()}
        self._uses = self._uses[used]
        self._column_of[:] = _PADDING
        self._column_of[self.shared["column_ids"][1:]] = np.arange(1, num_used)
        for row in np.flatnonzero(self.is_listed).tolist():
            self._columns(row)[:] = place_of[self._columns(row)]
        self._resize(num_used + -num_used % _COLUMNS)


def _widened(array: Array, added: int) -> Array:
    """The array with zeros after its last axis; `np.pad` takes several times as long."""
    return np.concatenate((array, np.zeros((*array.shape[:-1], added), array.dtype)), axis=-1)
