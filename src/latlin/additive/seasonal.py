"""A season that may change: sums over one period are small.

    x_i + x_{i+1} + … + x_{i+p−1} ~ N(0, sd²)

up to the common scale (Rue and Held 2005, section 3.4.3). Its null space holds all patterns that repeat for ever and
sum to zero; these have coefficients of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from latlin.additive.by import vary_field
from latlin.additive.expression import evaluate
from latlin.additive.intrinsic import IntrinsicPart, scale_structure
from latlin.additive.places import Line
from latlin.additive.random_walk import grid, steps_beyond
from latlin.additive.term import COEFFICIENT_SCALE, Part, PredictorRows, Surroundings, Term, Values, standard_deviation
from latlin.numerics.arrays import Array
from latlin.numerics.options import check_whole
from latlin.numerics.stored import storable


@storable
@dataclass(frozen=True)
class Seasonal(Term):
    """A seasonal pattern over the values of a column.

    Parameters
    ----------
    column : str
        Times on a regular grid; times without rows belong to the season, which goes on beyond the ends.
    period : int
        Length of a season in steps of the grid: 12 for months, 7 for days.
    by : str, optional
        A column of labels (one season per label) or of numbers (which multiply the season).

    Examples
    --------
    >>> part = Seasonal("month", 4).prepare({"month": np.arange(12)}, Surroundings())
    >>> part.size, part.constraint.shape
    (15, (3, 15))
    """

    column: str
    period: int
    by: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("period", self.period, 2)

    @property
    def label(self) -> str:
        return f"seasonal({self.column})"

    def prepare(self, frame: Any, around: Surroundings) -> Part:
        return vary_field(self.by, frame, around, self._field)

    def _field(self, frame: Any, around: Surroundings) -> Part:
        nodes = grid(evaluate(self.column, frame), self.label, 2)
        gaps = np.diff(nodes)
        if np.ptp(gaps) > 1e-6 * gaps.mean():
            raise ValueError(f"{self.label} needs times on a regular grid")
        n, p = len(nodes), self.period
        if n <= p:
            raise ValueError(f"{self.label} needs more than one period of {p} steps, got {n} steps")
        sums = sparse.diags_array([np.ones(n - p + 1)] * p, offsets=range(p), shape=(n - p + 1, n))
        patterns = _patterns(n, p)
        return SeasonalPart(
            self.label,
            Line(self.column, nodes),
            scale_structure(sparse.csr_array(sums.T @ sums), patterns),
            patterns,
            tuple(f"pattern{k}" for k in range(1, p)),
            COEFFICIENT_SCALE * around.unit,
            standard_deviation(f"sd({self.label})", around.unit),
            p,
        )


@storable
@dataclass(frozen=True)
class SeasonalPart(IntrinsicPart):
    """A season that goes on beyond its ends: what follows makes the sums over one period small again.

    With ε_k the sum over the period that ends k steps beyond the last node, x_k = x_{k−p} + ε_k − ε_{k−1}; ε_0 is a sum
    of nodes, the others are new. Repeating patterns have sums of zero, so that the same weights carry them on.
    """

    place: Line
    period: int

    def check_stored(self) -> None:
        check_whole("period", self.period, 2)

    def rows(self, frame: Any, values: Values) -> PredictorRows:
        x, line = self.place.values(frame), self.place
        inside, beyond = line.weights(x), steps_beyond(line, x, self.label)
        if beyond is None:
            return PredictorRows(self.with_trends(inside))
        new, design = [], inside
        for steps, order in zip(beyond, (-1, 1), strict=True):
            nodes, innovations = _between(steps, len(line.nodes), self.period)
            outside = sparse.diags_array((steps > 0.0).astype(float))
            # before the first node the season runs backwards
            design = design + outside @ (nodes[:, ::order] - inside)
            new.append(innovations)
        fresh = sparse.csr_array(sparse.hstack(new)) * self.innovation(values)
        return PredictorRows(self.with_trends(sparse.csr_array(design)), fresh)


def _between(steps: Array, n: int, p: int) -> tuple[sparse.csr_array, sparse.csr_array]:
    """The season at places beyond the last of n nodes, interpolated between steps."""
    low, most = np.floor(steps).astype(np.int64), int(np.ceil(steps.max()))
    share = sparse.diags_array(steps - low)
    (nodes, old), (later, new) = (_going_on(low + k, n, most, p) for k in (0, 1))
    return sparse.csr_array(nodes + share @ (later - nodes)), sparse.csr_array(old + share @ (new - old))


def _going_on(k: NDArray[np.int64], n: int, most: int, p: int) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Weights of n nodes and of ε_1, …, ε_most in x_k, k steps beyond the last node."""
    seasons = -(-k // p)
    nodes = np.zeros((len(k), n))
    nodes[np.arange(len(k)), n - 1 + k - p * seasons] = 1.0
    # x_k holds −ε_0 where k − 1 is a number of whole seasons
    nodes[k % p == 1, n - p :] -= 1.0
    age = k[:, None] - np.arange(1, most + 1)
    innovations = ((age >= 0) & (age % p == 0)) * 1.0 - ((age >= 1) & (age % p == 1))
    return sparse.csr_array(nodes), sparse.csr_array(innovations)


def _patterns(n: int, p: int) -> Array:
    """p − 1 patterns of period p, each with sum zero over a period and mean square one."""
    t = np.arange(n)
    waves = [np.sqrt(2.0) * f(2.0 * np.pi * k * t / p) for k in range(1, (p + 1) // 2) for f in (np.cos, np.sin)]
    return np.stack([*waves, np.cos(np.pi * t)] if p % 2 == 0 else waves)
