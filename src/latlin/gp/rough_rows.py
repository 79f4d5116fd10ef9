"""Rows of many sites in single precision, for a fit that ends where its bound may gain little yet.

Products of single precision take half the time and half the memory. They cost the bound next to nothing: it holds for
whatever covariance, so that a P which is off by rounding is another one beside the best, and its variances and
projections are right to six digits. With N·M² multiplications in a Gram matrix, sums over `PIECE` rows are single ones
and their total is not. A prior is one on the diagonal of P: where single sums would round that off, they are not taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from latlin.distributed.blocks import side_by_side, slices
from latlin.numerics.arrays import Array, reuse_memory
from latlin.numerics.linalg import SINGLE, add_gram, times_upper

#: parts of the rows on which threads work side by side, rows of each at least, and rows of one single sum
PARTS, LEAST, PIECE = 8, 2048, 1024

T = TypeVar("T")


def map_parts(function: Callable[[slice], T], n: int) -> list[T]:
    """A function of parts of n rows, side by side; within a part memory is used again."""
    spans = list(slices(n, max(LEAST, -(-n // PARTS))))

    def alone(span: slice) -> T:
        with reuse_memory():
            return function(span)

    return list(side_by_side(alone, spans, len(spans)))


class ExactRows(Protocol):
    """Rows in double precision: a part of `Projections`."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def gram(self, weights: Array) -> Array:
        """Upper triangle of Hᵀ diag(weights) H."""
        ...

    def block(self, span: slice) -> Array:
        """Some of the rows, dense and C-ordered."""
        ...


@dataclass(frozen=True)
class RoughRows:
    """Rows in single precision, with the products of `Projections`.

    Parameters
    ----------
    exact : ExactRows
        The rows in double precision, for sums that need them.
    rows : ndarray of float32, shape (n, M)
    """

    exact: ExactRows
    rows: NDArray[np.float32]

    @classmethod
    def empty(cls, exact: ExactRows) -> RoughRows:
        """Memory for a copy."""
        return cls(exact, np.empty(exact.shape, np.float32))

    @classmethod
    def of(cls, exact: ExactRows) -> RoughRows:
        """A copy of dense rows."""
        found = cls.empty(exact)

        def copy(span: slice) -> None:
            found.rows[span] = exact.block(span)

        map_parts(copy, len(found.rows))
        return found

    @property
    def shape(self) -> tuple[int, int]:
        n, width = self.rows.shape
        return n, width

    def times(self, u: Array) -> Array:
        narrow = u.astype(np.float32)
        return np.concatenate(map_parts(lambda span: self.rows[span] @ narrow, len(self.rows)), dtype=float)

    def transposed_times(self, r: Array) -> Array:
        narrow = r.astype(np.float32)
        return np.sum(map_parts(lambda span: narrow[span] @ self.rows[span], len(r)), axis=0, dtype=float)

    def gram(self, weights: Array) -> Array:
        """Upper triangle of Hᵀ diag(weights) H, to seven digits of the largest entry of a sum over `PIECE` rows."""
        if np.any(weights < 0.0):
            return self.exact.gram(weights)
        root, width = np.sqrt(weights).astype(np.float32), self.shape[1]

        def total(span: slice) -> tuple[Array, float]:
            found, largest = np.zeros((width, width), order="F"), 0.0
            scaled = np.empty((min(PIECE, span.stop - span.start), width), np.float32)
            single = np.empty((width, width), np.float32, order="F")
            for piece in slices(span.stop - span.start, PIECE):
                here = slice(span.start + piece.start, span.start + piece.stop)
                part = scaled[: piece.stop - piece.start]
                np.multiply(self.rows[here], root[here, None], out=part)
                single[:] = 0.0
                add_gram(part, single)
                largest = max(largest, float(np.diagonal(single).max(initial=0.0)))
                found += single
            return found, largest

        parts = map_parts(total, len(weights))
        if not max(largest for _, largest in parts) <= SINGLE:
            return self.exact.gram(weights)
        return np.asfortranarray(np.sum([found for found, _ in parts], axis=0))

    def variances(self, factor: Array) -> Array:
        """h_nᵀ(CᵀC)⁻¹h_n, to seven digits of the largest term of each, for CᵀC ≥ I."""
        upper = lapack.dtrtri(factor, lower=0)[0].astype(np.float32, order="F")

        def squares(span: slice) -> Array:
            found, rows = np.empty(span.stop - span.start), self.rows[span]
            buffer = np.empty((min(PIECE, len(found)), self.shape[1]), np.float32)
            for piece in slices(len(found), PIECE):
                h = buffer[: piece.stop - piece.start]
                np.copyto(h, rows[piece])
                times_upper(h, upper)
                found[piece] = np.einsum("nm,nm->n", h, h)
            return found

        return np.concatenate(map_parts(squares, len(self.rows)))

    def block(self, span: slice) -> Array:
        """Some of the rows, in single precision."""
        found: Any = self.rows[span]
        return np.asarray(found)
