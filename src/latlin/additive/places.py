"""How the rows of a table see the nodes of a field: by label, by interpolation on a line, or through B-splines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.interpolate import BSpline

from latlin.additive.expression import evaluate
from latlin.additive.frame import Column, codes_of, column
from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable

#: new places in one gap that are taken together
TOGETHER = 300


class FieldPlace(ABC):
    """Rows over the nodes of a field."""

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """One label per node."""

    @abstractmethod
    def rows(self, frame: Any) -> sparse.csr_array:
        """Weights of the nodes, one row per row of the table."""


@storable
@dataclass(frozen=True)
class LabelPlace(FieldPlace):
    """Nodes are labels, and every row has one of them."""

    source: str
    levels: Column

    def check_stored(self) -> None:
        if not isinstance(self.levels, np.ndarray) or self.levels.ndim != 1:
            raise ValueError(f"the levels of {self.source} must be a vector")

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(map(str, self.levels.tolist()))

    def rows(self, frame: Any) -> sparse.csr_array:
        codes = codes_of(column(frame, self.source), self.levels, f"column {self.source!r}")
        if np.any(codes < 0):
            first = column(frame, self.source)[codes < 0][0]
            raise ValueError(
                f"column {self.source!r} holds {first!r}, which is none of the {len(self.levels)} known places"
            )
        return indicator(codes, len(self.levels))


def check_nodes(source: str, nodes: Array) -> None:
    """Refuse nodes of a file that are not some places on a line, one after the other."""
    if nodes.ndim != 1 or not len(nodes) or not np.all(np.isfinite(nodes)) or np.any(np.diff(nodes) <= 0.0):
        raise ValueError(f"the places of {source} must be finite numbers that rise")


@storable
@dataclass(frozen=True)
class Line(FieldPlace):
    """Nodes on a line; between two of them rows interpolate, beyond the ends they stay at the end.

    With `order` 2 the line through the last two nodes goes on beyond the ends. A `period` closes the line.
    """

    source: str
    nodes: Array
    order: int = 1
    period: float | None = None

    def check_stored(self) -> None:
        check_nodes(self.source, self.nodes)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{x:.6g}" for x in self.nodes)

    def values(self, frame: Any) -> Array:
        """Where the rows are."""
        x = evaluate(self.source, frame)
        if self.period is None:
            return x
        return np.asarray(self.nodes[0] + np.mod(x - self.nodes[0], self.period))

    def rows(self, frame: Any) -> sparse.csr_array:
        return self.weights(self.values(frame))

    def weights(self, x: Array) -> sparse.csr_array:
        """Interpolation weights at places x."""
        nodes = self.nodes if self.period is None else np.append(self.nodes, self.nodes[0] + self.period)
        if len(nodes) == 1:
            return sparse.csr_array(np.ones((len(x), 1)))
        left = np.clip(np.searchsorted(nodes, x, side="right") - 1, 0, len(nodes) - 2)
        share = (x - nodes[left]) / (nodes[left + 1] - nodes[left])
        if self.order == 1:
            share = np.clip(share, 0.0, 1.0)
        size, row = len(self.nodes), np.arange(len(x))
        places = np.concatenate([left, (left + 1) % size])
        table = sparse.csr_array(
            (np.concatenate([1.0 - share, share]), (np.concatenate([row, row]), places)), shape=(len(x), size)
        )
        table.eliminate_zeros()
        return table


@storable
@dataclass(frozen=True)
class Splines(FieldPlace):
    """B-splines of degree three on equidistant knots; beyond the ends the last polynomial's line goes on."""

    source: str
    low: float
    high: float
    count: int
    cyclic: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"B{j}" for j in range(self.count))

    @property
    def _knots(self) -> Array:
        segments = self.count if self.cyclic else self.count - 3
        step = (self.high - self.low) / segments
        knots = np.asarray(self.low + step * np.arange(-3, segments + 4))
        # rounding may leave it below the largest place, which would be out of bounds
        knots[-4] = self.high
        return knots

    def rows(self, frame: Any) -> sparse.csr_array:
        return self.weights(evaluate(self.source, frame))

    def weights(self, x: Array) -> sparse.csr_array:
        """Values of the basis functions at places x."""
        if self.cyclic:
            x = self.low + np.mod(x - self.low, self.high - self.low)
        inside = np.clip(x, self.low, self.high)
        basis = sparse.csr_array(BSpline.design_matrix(inside, self._knots, 3))
        if self.cyclic:
            # the last three functions are the first three again
            table = sparse.csr_array(basis[:, : self.count])
            table += sparse.hstack([basis[:, self.count :], sparse.csr_array((len(x), self.count - 3))], format="csr")
            return sparse.csr_array(table)
        beyond = x - inside
        if np.any(beyond != 0.0):
            basis = sparse.csr_array(basis + sparse.diags_array(beyond) @ self._slopes(inside))
        return basis

    def _slopes(self, x: Array) -> sparse.csr_array:
        """Derivatives of the basis functions at places inside."""
        spline = BSpline(self._knots, np.eye(self.count), 3)
        return sparse.csr_array(spline.derivative()(x))


@storable
@dataclass(frozen=True)
class Tensor(FieldPlace):
    """Products of the weights of two places."""

    first: FieldPlace
    second: FieldPlace

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{a},{b}" for a in self.first.labels for b in self.second.labels)

    def rows(self, frame: Any) -> sparse.csr_array:
        return row_products(self.first.rows(frame), self.second.rows(frame))


def runs_of(gap: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Places one after the other that lie in the same gap between nodes, at most `TOGETHER` at a time.

    Given the nodes, places in the same gap are dependent, others are not; each run is taken as if it were alone.
    """
    ends = np.flatnonzero(np.diff(gap)) + 1
    runs = np.split(np.arange(len(gap)), ends)
    return [run[k : k + TOGETHER] for run in runs for k in range(0, len(run), TOGETHER)]


def square_root(covariance: Array) -> Array:
    """R with RRᵀ = covariance, which may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def indicator(codes: NDArray[np.int64], count: int, values: Array | None = None) -> sparse.csr_array:
    """Rows with a one, or a value, in the column of their code; nothing where the code is negative."""
    seen = codes >= 0
    whole = bool(seen.all())
    places = np.arange(len(codes) + 1) if whole else np.concatenate([[0], np.cumsum(seen)])
    columns = codes if whole else codes[seen]
    data = np.ones(len(columns)) if values is None else np.array(values if whole else values[seen])
    narrow = (columns.astype(np.int32), places.astype(np.int32)) if len(codes) < 2**31 else (columns, places)
    return sparse.csr_array((data, *narrow), shape=(len(codes), count))


def join_columns(blocks: Sequence[sparse.csr_array]) -> sparse.csr_array:
    """Blocks of columns as one matrix; quickly where every row of a block has as many entries as the others."""
    n, starts = blocks[0].shape[0], np.cumsum([0, *(block.shape[1] for block in blocks)])
    widths = [block.nnz // max(n, 1) for block in blocks]
    even = (np.array_equal(b.indptr, np.arange(n + 1) * k) for b, k in zip(blocks, widths, strict=True))
    if not n or not all(even):
        return sparse.csr_array(sparse.hstack(blocks, format="csr"))
    data, columns = np.empty((n, sum(widths))), np.empty((n, sum(widths)), np.int32)
    at = 0
    for block, k, start in zip(blocks, widths, starts[:-1], strict=True):
        data[:, at : at + k] = block.data.reshape(n, k)
        columns[:, at : at + k] = block.indices.reshape(n, k) + start
        at += k
    rows = np.arange(n + 1, dtype=np.int32 if data.size < 2**31 else np.int64) * sum(widths)
    return sparse.csr_array((data.ravel(), columns.ravel(), rows), shape=(n, int(starts[-1])))


def row_products(a: sparse.csr_array, b: sparse.csr_array) -> sparse.csr_array:
    """Row n is the Kronecker product of the rows n of a and b."""
    a, b = sparse.csr_array(a), sparse.csr_array(b)
    per_a, per_b = np.diff(a.indptr), np.diff(b.indptr)
    if b.shape[1] == 1 and np.all(per_b == 1):
        return sparse.csr_array((a.data * np.repeat(b.data, per_a), a.indices, a.indptr), shape=a.shape)
    count = per_a * per_b
    row = np.repeat(np.arange(a.shape[0]), count)
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    i = a.indptr[row] + within // np.maximum(per_b[row], 1)
    j = b.indptr[row] + within % np.maximum(per_b[row], 1)
    columns = a.indices[i].astype(np.int64) * b.shape[1] + b.indices[j]
    return sparse.csr_array((a.data[i] * b.data[j], (row, columns)), shape=(a.shape[0], a.shape[1] * b.shape[1]))
