"""The rows h_n of a matrix H as structured covariances need them, and where the factors of these may be non-zero."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import blas

from latlin.numerics.arrays import Array
from latlin.numerics.stored import are_offsets, are_places, rise_within, storable
from latlin.numerics.threads import one_blas_thread

# --- Where a triangular factor C may be non-zero: upper triangular, the diagonal always included, stored by columns.


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

    def check_stored(self) -> None:
        flat = self.columns.ndim == self.entries.ndim == 1 and len(self.columns) > 0
        if (
            not flat
            or not are_places(self.columns, self.size + 1)
            or not are_offsets(self.columns, self.dim, self.size)
        ):
            raise ValueError(f"columns must be where the columns of {self.size} entries begin")
        upper = rise_within(self.column_of, self.entries, self.dim) and np.all(np.diff(self.columns) > 0)
        if not upper or not np.array_equal(self.entries[self.diagonal], np.arange(self.dim)):
            raise ValueError("entries must be rising rows of columns that end with the diagonal")

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


def banded_pattern(dim: int, bandwidth: int) -> Pattern:
    """`bandwidth` super-diagonals; 0 is diagonal, dim − 1 the full triangle.

    >>> banded_pattern(4, 1).matrix(np.ones(7)).toarray()
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


# --- The rows h_n of a matrix H as structured covariances need them: dense, sparse, an operator, or a stack of these.
#
# A covariance S = FᵀF whose factor F is linear in its parameters asks for three things: the *image* F h_n of every row
# (whatever form of it is cheap to keep), the *inner* products of two images row by row, and the *pull* of weighted
# images back to the parameters, Σ_n weight_n (F h_n) h_nᵀ on the places that F has. Diagonal factors, a few long rows
# (loadings) and triangular ones with a sparsity pattern do this here, each kind of row in its own way.


#: (weights, image) pairs
Terms = Sequence[tuple[Array, Any]]
#: numbers squared at once, so that they stay in the cache
PIECE = 2**18
#: squares of no more numbers than these (16 MB) are kept: a fit asks for them at every step
KEPT = 2**21


class ProjectionRows(Protocol):
    """N rows of length D."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def times(self, u: Array) -> Array:
        """H u."""
        ...

    def transposed(self, r: Array) -> Array:
        """Hᵀ r."""
        ...

    def times_columns(self, block: Array) -> Array:
        """H Θ for a narrow matrix Θ."""
        ...

    def transposed_columns(self, block: Array) -> Array:
        """Hᵀ W for a narrow matrix W."""
        ...

    def energy(self, weights: Array) -> Array:
        """(H∘H)ᵀ weights, the diagonal of Hᵀ diag(weights) H."""
        ...

    def scaled_image(self, scale: Array) -> Any:
        """Image of the rows under F = diag(scale)."""
        ...

    def scaled_inner(self, a: Any, b: Any) -> Array: ...

    def scaled_pull(self, terms: Terms) -> Array: ...

    def loadings_image(self, loadings: Array) -> Any:
        """Image of the rows under F = Θᵀ for a narrow matrix Θ."""
        ...

    def loadings_inner(self, a: Any, b: Any) -> Array: ...

    def loadings_pull(self, terms: Terms) -> Array: ...

    def squares_outside(self, basis: Array, inside: Array) -> Array:
        """‖h_n‖² − ‖Eᵀh_n‖² for an orthonormal basis E, `inside` being HE."""
        ...

    def factor_image(self, pattern: Pattern, values: Array) -> Any:
        """Image of the rows under a triangular F with this pattern."""
        ...

    def factor_inner(self, pattern: Pattern, a: Any, b: Any) -> Array: ...

    def factor_pull(self, pattern: Pattern, terms: Terms) -> Array: ...


def product(a: Array, b: Array) -> Array:
    """a b, for C-ordered matrices, on SciPy's BLAS and without copies."""
    return blas.dgemm(1.0, b.T, a.T).T


def transposed_product(a: Array, b: Array) -> Array:
    """aᵀ b, for C-ordered matrices, on SciPy's BLAS and without copies."""
    return blas.dgemm(1.0, b.T, a.T, trans_b=1).T


def row_dots(a: Array, b: Array) -> Array:
    """a_n · b_n."""
    return np.einsum("nk,nk->n", a, b)


class LoadingsByProducts:
    """Images under Θᵀ kept as the N×K matrix HΘ."""

    def loadings_image(self: ProjectionRows, loadings: Array) -> Array:
        return self.times_columns(loadings)

    def loadings_inner(self, a: Array, b: Array) -> Array:
        return row_dots(a, b)

    def loadings_pull(self: ProjectionRows, terms: Terms) -> Array:
        (weights, image), *others = terms
        weighted = weights[:, None] * image
        for weights, image in others:
            weighted += weights[:, None] * image
        return self.transposed_columns(weighted)


@dataclass(frozen=True)
class DenseRows(LoadingsByProducts):
    """A C-ordered matrix; every product is BLAS."""

    matrix: Array

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape

    def times(self, u: Array) -> Array:
        return blas.dgemv(1.0, self.matrix.T, u, trans=1)

    def transposed(self, r: Array) -> Array:
        return blas.dgemv(1.0, self.matrix.T, r)

    def times_columns(self, block: Array) -> Array:
        return product(self.matrix, block)

    def transposed_columns(self, block: Array) -> Array:
        return transposed_product(self.matrix, block)

    def energy(self, weights: Array) -> Array:
        total = np.zeros(self.shape[1])
        for span, squares in self._squares():
            if len(squares):  # BLAS refuses vectors of no length
                total += blas.dgemv(1.0, squares.T, weights[span])
        return total

    @cached_property
    def _few_squares(self) -> Array:
        return self.matrix * self.matrix

    def _squares(self) -> Iterator[tuple[slice, Array]]:
        """H∘H, kept if small, else some rows at a time."""
        if self.matrix.size <= KEPT:
            yield slice(0, len(self.matrix)), self._few_squares
            return
        count = max(1, PIECE // max(self.shape[1], 1))
        for i in range(0, len(self.matrix), count):
            part = self.matrix[i : i + count]
            yield slice(i, i + count), part * part

    def scaled_image(self, scale: Array) -> Array:
        return scale

    def scaled_inner(self, a: Array, b: Array) -> Array:
        v = a * b
        return np.concatenate([blas.dgemv(1.0, squares.T, v, trans=1) for _, squares in self._squares()])

    def scaled_pull(self, terms: Terms) -> Array:
        return np.sum([image * self.energy(weights) for weights, image in terms], axis=0)

    def squares_outside(self, basis: Array, inside: Array) -> Array:
        ones = np.ones(self.shape[1])
        return np.maximum(self.scaled_inner(ones, ones) - row_dots(inside, inside), 0.0)

    def factor_image(self, pattern: Pattern, values: Array) -> Array:
        image = np.empty(self.shape)
        for group in pattern.groups:
            image[:, group.rows] = product(self._columns(group), _block(group, values).T)
        return image

    def factor_inner(self, pattern: Pattern, a: Array, b: Array) -> Array:
        return row_dots(a, b)

    def factor_pull(self, pattern: Pattern, terms: Terms) -> Array:
        out = np.empty(pattern.size)
        for group in pattern.groups:
            weighted = np.sum([weights[:, None] * image[:, group.rows] for weights, image in terms], axis=0)
            block = transposed_product(weighted, self._columns(group))
            out[group.position] = block[group.row, group.column]
        return out

    def _columns(self, group: RowGroup) -> Array:
        return np.ascontiguousarray(self.matrix[:, group.columns])


def _block(group: RowGroup, values: Array) -> Array:
    block = np.zeros((group.rows.stop - group.rows.start, group.width))
    block[group.row, group.column] = values[group.position]
    return block


class SparseRows:
    """A CSR matrix; compiled products whose cost is the number of non-zeros (times the width)."""

    def __init__(self, matrix: sparse.csr_array) -> None:
        from latlin.densities.structured import kernels  # loads the compiler: when first needed

        self.matrix = matrix
        self.shape: tuple[int, int] = matrix.shape
        self._kernels = kernels
        self._arrays = (matrix.indptr, matrix.indices, matrix.data)

    def times(self, u: Array) -> Array:
        return self._kernels.times(*self._arrays, u)

    def transposed(self, r: Array) -> Array:
        return self._kernels.transposed_times(*self._arrays, r, self.shape[1])

    def times_columns(self, block: Array) -> Array:
        return self._kernels.times_columns(*self._arrays, np.ascontiguousarray(block))

    def transposed_columns(self, block: Array) -> Array:
        return self._kernels.transposed_times_columns(*self._arrays, np.ascontiguousarray(block), self.shape[1])

    def energy(self, weights: Array) -> Array:
        return self._kernels.transposed_squares_times(*self._arrays, weights, self.shape[1])

    def scaled_image(self, scale: Array) -> Array:
        return scale

    def scaled_inner(self, a: Array, b: Array) -> Array:
        return self._kernels.squares_times(*self._arrays, a * b)

    def scaled_pull(self, terms: Terms) -> Array:
        if len(terms) != 2:
            return np.sum([image * self.energy(weights) for weights, image in terms], axis=0)
        (r, a), (s, b) = terms
        pulled = self._kernels.transposed_squares_pair(*self._arrays, r, s, self.shape[1])
        return pulled[:, 0] * a + pulled[:, 1] * b

    def loadings_image(self, loadings: Array) -> Array:
        """Θ itself: what is N×K is computed a row at a time where it is needed, and never kept."""
        return np.ascontiguousarray(loadings)

    def loadings_inner(self, a: Array, b: Array) -> Array:
        if a is b:
            return self._kernels.loadings_squares(*self._arrays, a)
        return self._kernels.loadings_inner(*self._arrays, a, b)

    def loadings_pull(self, terms: Terms) -> Array:
        if len(terms) != 2:
            return np.sum([self._kernels.loadings_pull(*self._arrays, *term) for term in terms], axis=0)
        (r, a), (s, b) = terms
        return self._kernels.loadings_pull_pair(*self._arrays, r, a, s, b)

    def squares_outside(self, basis: Array, inside: Array) -> Array:
        ones = np.ones(self.shape[1])
        return np.maximum(self.scaled_inner(ones, ones) - row_dots(inside, inside), 0.0)

    def factor_image(self, pattern: Pattern, values: Array) -> Array:
        return values

    def factor_inner(self, pattern: Pattern, a: Array, b: Array) -> Array:
        return self._kernels.factor_inner(*self._arrays, pattern.columns, pattern.entries, a, b, pattern.dim)

    def factor_pull(self, pattern: Pattern, terms: Terms) -> Array:
        weights, values = (np.array([term[i] for term in terms]) for i in range(2))
        return self._kernels.factor_pull(*self._arrays, pattern.columns, pattern.entries, weights, values, pattern.dim)


def use_one_pool(rows: object) -> AbstractContextManager[Any]:
    """The same where products with the rows are compiled loops; BLAS keeps its threads where it makes the products."""
    return one_blas_thread() if isinstance(rows, SparseRows) else nullcontext()
