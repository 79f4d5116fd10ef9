"""Rows of many sites in single precision, for a fit that ends where its bound may gain little yet.

Products of single precision take half the time and half the memory. They cost the bound next to nothing: it holds for
whatever covariance, so that a P which is off by rounding is another one beside the best, and its variances and
projections are right to six digits. With N·M² multiplications in a Gram matrix, sums over `PIECE` rows are single ones
and their total is not. A prior is one on the diagonal of P: where single sums would round that off, they are not taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from latlin.distributed.blocks import side_by_side, slices
from latlin.inference.forms.projections import Projections
from latlin.numerics.arrays import Array
from latlin.numerics.linalg import SINGLE, add_gram, times_upper

#: parts of the rows on which threads work side by side, rows of each at least, and rows of one single sum
PARTS, LEAST, PIECE = 16, 2048, 1024

T = TypeVar("T")


@dataclass(frozen=True)
class RoughRows:
    """Rows in single precision, with the products of `Projections`.

    Parameters
    ----------
    exact : Projections
        The rows in double precision, for sums that need them.
    rows : ndarray of float32, shape (n, M)
    """

    exact: Projections
    rows: NDArray[np.float32]

    @classmethod
    def of(cls, exact: Projections) -> RoughRows:
        """A copy of dense rows."""
        found = cls(exact, np.empty(exact.shape, np.float32))

        def copy(span: slice) -> None:
            found.rows[span] = exact.block(span)

        found._each(copy)
        return found

    def _each(self, function: Callable[[slice], T]) -> list[T]:
        """A function of parts of the rows, side by side."""
        n = len(self.rows)
        spans = list(slices(n, max(LEAST, -(-n // PARTS))))
        return list(side_by_side(function, spans, len(spans)))

    @property
    def shape(self) -> tuple[int, int]:
        n, width = self.rows.shape
        return n, width

    def times(self, u: Array) -> Array:
        narrow = u.astype(np.float32)
        return np.concatenate(self._each(lambda span: self.rows[span] @ narrow), dtype=float)

    def transposed_times(self, r: Array) -> Array:
        narrow = r.astype(np.float32)
        return np.sum(self._each(lambda span: narrow[span] @ self.rows[span]), axis=0, dtype=float)

    def gram(self, weights: Array) -> Array:
        """Upper triangle of Hᵀ diag(weights) H, to seven digits of the largest entry of a sum over `PIECE` rows."""
        if np.any(weights < 0.0):
            return self.exact.gram(weights)
        root, width = np.sqrt(weights).astype(np.float32), self.shape[1]

        def total(span: slice) -> tuple[Array, float]:
            found, largest = np.zeros((width, width), order="F"), 0.0
            for part in slices(span.stop - span.start, PIECE):
                here = slice(span.start + part.start, span.start + part.stop)
                single = np.zeros((width, width), np.float32, order="F")
                add_gram(self.rows[here] * root[here, None], single)
                largest = max(largest, float(np.diagonal(single).max(initial=0.0)))
                found += single
            return found, largest

        parts = self._each(total)
        if not max(largest for _, largest in parts) <= SINGLE:
            return self.exact.gram(weights)
        return np.asfortranarray(np.sum([found for found, _ in parts], axis=0))

    def variances(self, factor: Array) -> Array:
        """h_nᵀ(CᵀC)⁻¹h_n, to seven digits of the largest term of each, for CᵀC ≥ I."""
        upper = lapack.dtrtri(factor, lower=0)[0].astype(np.float32, order="F")

        def squares(span: slice) -> Array:
            found = np.empty(span.stop - span.start)
            for part in slices(len(found), PIECE):
                h = self.rows[span][part].copy()
                times_upper(h, upper)
                found[part] = np.einsum("nm,nm->n", h, h)
            return found

        return np.concatenate(self._each(squares))

    def block(self, span: slice) -> Array:
        return self.rows[span]
