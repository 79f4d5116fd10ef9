"""Where a triangular factor C may be non-zero: upper triangular, the diagonal always included, stored by columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable

Index = NDArray[np.integer]
#: rows of C that are multiplied together as one dense block, at least
GROUP = 32


class RowGroup(NamedTuple):
    """Consecutive rows of C as a dense block: `block[row, column] = values[position]`."""

    rows: slice
    columns: Any  # slice, or an index array when the block's columns are not consecutive
    width: int
    row: Index
    column: Index
    position: Index


@storable
@dataclass(frozen=True)
class Pattern:
    """The places (i, j), i ≤ j, of a factor's entries, column by column.

    Parameters
    ----------
    columns : ndarray of shape (dim + 1,)
        Column j has the entries columns[j] … columns[j + 1] − 1.
    entries : ndarray of shape (size,)
        Their row numbers, rising; the last of each column is the diagonal.
    """

    columns: Index
    entries: Index

    @property
    def dim(self) -> int:
        return len(self.columns) - 1

    @property
    def size(self) -> int:
        return len(self.entries)

    @cached_property
    def diagonal(self) -> Index:
        """Positions of the diagonal entries."""
        return self.columns[1:] - 1

    @cached_property
    def column_of(self) -> Index:
        """The column of every entry."""
        return np.repeat(np.arange(self.dim), np.diff(self.columns))

    @cached_property
    def groups(self) -> tuple[RowGroup, ...]:
        """The entries gathered into dense blocks of rows, for products with dense matrices."""
        return tuple(self._groups())

    def _groups(self) -> Iterator[RowGroup]:
        reach = int(np.max(self.column_of - self.entries, initial=0))
        height = max(GROUP, reach) if self._is_banded(reach) else GROUP
        order = np.argsort(self.entries, kind="stable")
        rows = self.entries[order]
        for begin in range(0, self.dim, height):
            end = min(begin + height, self.dim)
            position = order[np.searchsorted(rows, begin) : np.searchsorted(rows, end)]
            used, column = np.unique(self.column_of[position], return_inverse=True)
            whole = used[-1] - used[0] + 1 == len(used)
            columns = slice(int(used[0]), int(used[-1]) + 1) if whole else used
            yield RowGroup(slice(begin, end), columns, len(used), self.entries[position] - begin, column, position)

    def _is_banded(self, reach: int) -> bool:
        return self.size == (reach + 1) * self.dim - reach * (reach + 1) // 2

    def matrix(self, values: Array) -> sparse.csc_array:
        """C with these entries."""
        return sparse.csc_array((values, self.entries, self.columns), shape=(self.dim, self.dim))

    def values(self, matrix: Any) -> Array:
        """The entries of a matrix at the places of the pattern."""
        whole: Any = sparse.csr_array(matrix) if sparse.issparse(matrix) else np.asarray(matrix, float)
        picked = whole[self.entries, self.column_of]
        return np.ravel(picked.toarray() if sparse.issparse(picked) else picked)


def banded(dim: int, bandwidth: int) -> Pattern:
    """`bandwidth` super-diagonals; 0 is diagonal, dim − 1 the full triangle.

    >>> banded(4, 1).matrix(np.ones(7)).toarray()
    array([[1., 1., 0., 0.],
           [0., 1., 1., 0.],
           [0., 0., 1., 1.],
           [0., 0., 0., 1.]])
    """
    last = np.arange(dim)
    first = np.maximum(last - bandwidth, 0)
    lengths = last - first + 1
    columns = np.concatenate([[0], np.cumsum(lengths)])
    entries = np.arange(columns[-1]) - np.repeat(columns[:-1] - first, lengths)
    return Pattern(columns, entries)


def sparse_pattern(places: Any, dim: int) -> Pattern:
    """The upper triangle of a matrix's non-zeros (either triangle may hold them), with the diagonal."""
    matrix = sparse.coo_array(places)
    if matrix.shape != (dim, dim):
        raise ValueError(f"pattern must have shape {(dim, dim)}, got {matrix.shape}")
    row, column = matrix.coords
    kept = matrix.data != 0
    low, high = np.minimum(row, column)[kept], np.maximum(row, column)[kept]
    low, high = np.concatenate([low, np.arange(dim)]), np.concatenate([high, np.arange(dim)])
    ones = sparse.csc_array((np.ones(len(low)), (low, high)), shape=(dim, dim))
    ones.sum_duplicates()
    ones.sort_indices()
    return Pattern(ones.indptr.astype(np.int64), ones.indices.astype(np.int64))
