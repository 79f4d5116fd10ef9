"""A season that may change: sums over one period are small.

    x_i + x_{i+1} + … + x_{i+p−1} ~ N(0, sd²)

up to the common scale (Rue and Held 2005, section 3.4.3). Its null space holds all patterns that repeat for ever and
sum to zero; these have coefficients of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from latlin.additive.by import By, by_level
from latlin.additive.expression import evaluate
from latlin.additive.intrinsic import IntrinsicPart, scaled
from latlin.additive.places import Line
from latlin.additive.random_walk import grid
from latlin.additive.term import COEFFICIENT_SCALE, Part, Surroundings, Term, standard_deviation
from latlin.numerics.arrays import Array
from latlin.numerics.options import whole
from latlin.numerics.stored import storable


@storable
@dataclass(frozen=True)
class Seasonal(Term):
    """A seasonal pattern over the values of a column.

    Parameters
    ----------
    column : str
        Times on a regular grid; times without rows belong to the season.
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
        whole("period", self.period, 2)

    @property
    def label(self) -> str:
        return f"seasonal({self.column})"

    def prepare(self, frame: Any, around: Surroundings) -> Part:
        nodes = grid(evaluate(self.column, frame), self.label, 2)
        gaps = np.diff(nodes)
        if np.ptp(gaps) > 1e-6 * gaps.mean():
            raise ValueError(f"{self.label} needs times on a regular grid")
        n, p = len(nodes), self.period
        if n <= p:
            raise ValueError(f"{self.label} needs more than one period of {p} steps, got {n} steps")
        sums = sparse.diags_array([np.ones(n - p + 1)] * p, offsets=range(p), shape=(n - p + 1, n))
        patterns = _patterns(n, p)
        part = IntrinsicPart(
            self.label,
            Line(self.column, nodes),
            scaled(sparse.csr_array(sums.T @ sums), patterns),
            patterns,
            tuple(f"pattern{k}" for k in range(1, p)),
            COEFFICIENT_SCALE * around.unit,
            standard_deviation(f"sd({self.label})", around.unit),
        )
        return by_level(By(self.by), part, frame)


def _patterns(n: int, p: int) -> Array:
    """p − 1 patterns of period p, each with sum zero over a period and mean square one."""
    t = np.arange(n)
    waves = [np.sqrt(2.0) * f(2.0 * np.pi * k * t / p) for k in range(1, (p + 1) // 2) for f in (np.cos, np.sin)]
    return np.stack([*waves, np.cos(np.pi * t)] if p % 2 == 0 else waves)
