"""Penalised splines: many B-splines whose coefficients walk (Eilers and Marx 1996; Lang and Brezger 2004).

The penalty on second differences leaves a straight line free, which has a coefficient of its own. For two columns the
coefficients of products of B-splines walk in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from latlin.additive.by import vary_field
from latlin.additive.expression import evaluate
from latlin.additive.intrinsic import IntrinsicPart, scale_structure
from latlin.additive.places import Splines, Tensor
from latlin.additive.term import COEFFICIENT_SCALE, Part, Surroundings, Term, standard_deviation
from latlin.numerics.arrays import Array
from latlin.numerics.options import check_whole
from latlin.numerics.stored import storable

#: basis functions of a curve at most, and of each column of a surface
MOST_FUNCTIONS, MOST_PER_SIDE = 100_000, 1_000


@storable
@dataclass(frozen=True)
class Spline(Term):
    """A smooth function of one column, or of two.

    Parameters
    ----------
    column : str or pair of str
        Numeric columns or expressions of columns. A pair is a smooth surface.
    count : int, optional
        Number of B-splines per column: 20, or 8 for each of two; less where there are fewer distinct values.
    cyclic : bool
        The function ends where it begins. `period` gives the ends when the data do not reach them.
    period : pair of float, optional
        Where a cyclic function begins and ends.
    by : str, optional
        A column of labels (one function per label, with one common sd) or of numbers (which multiply the function).

    Examples
    --------
    >>> part = Spline("x", count=8).prepare({"x": np.linspace(0.0, 1.0, 30)}, Surroundings())
    >>> part.names[-1], part.size
    ('s(x):slope', 9)
    """

    column: str | tuple[str, str]
    count: int | None = None
    cyclic: bool = False
    period: tuple[float, float] | None = None
    by: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.count is not None:
            check_whole("count", self.count, 5)
            if self.count > (MOST_FUNCTIONS if isinstance(self.column, str) else MOST_PER_SIDE):
                raise ValueError(
                    f"count must be at most {MOST_FUNCTIONS}, or {MOST_PER_SIDE} per column, got {self.count}"
                )
        ends = self.period
        if ends is not None and not (isinstance(ends, tuple | list) and len(ends) == 2 and ends[0] < ends[1]):
            raise ValueError(f"period must be a pair of increasing numbers, got {ends!r:.80}")

    @property
    def label(self) -> str:
        return f"s({self.column})" if isinstance(self.column, str) else f"s({', '.join(self.column)})"

    def prepare(self, frame: Any, around: Surroundings) -> Part:
        return vary_field(self.by, frame, around, self._curve if isinstance(self.column, str) else self._surface)

    def _curve(self, frame: Any, around: Surroundings) -> IntrinsicPart:
        assert isinstance(self.column, str)
        place = self._place(self.column, frame, 20)
        constant, line = np.ones(place.count), np.arange(place.count) - 0.5 * (place.count - 1)
        null = constant[None, :] if self.cyclic else np.stack([constant, line])
        # on equidistant knots the coefficients 0, 1, 2, … make a straight line: scale it to a standardised x
        x = evaluate(self.column, frame)
        trend = np.asarray(line / _spread(place.weights(x) @ line), float)
        return IntrinsicPart(
            self.label,
            place,
            scale_structure(_penalty(place.count, self.cyclic), null, place.weights(_grid(place))),
            np.zeros((0, place.count)) if self.cyclic else trend[None, :],
            () if self.cyclic else ("slope",),
            COEFFICIENT_SCALE * around.unit,
            standard_deviation(f"sd({self.label})", around.unit),
        )

    def _surface(self, frame: Any, around: Surroundings) -> IntrinsicPart:
        if self.cyclic:
            raise ValueError("a cyclic Spline is of one column")
        a, b = (self._place(column, frame, 8) for column in self.column)
        place = Tensor(a, b)
        one_a, one_b = np.ones(a.count), np.ones(b.count)
        line_a, line_b = (np.arange(p.count) - 0.5 * (p.count - 1) for p in (a, b))
        eye_a, eye_b = sparse.eye_array(a.count), sparse.eye_array(b.count)
        penalty = sparse.kron(_penalty(a.count, False), eye_b) + sparse.kron(eye_a, _penalty(b.count, False))
        free = np.stack([np.kron(line_a, one_b), np.kron(one_a, line_b), np.kron(line_a, line_b)])
        rows = place.rows(frame)
        corner = sparse.kron(a.weights(_grid(a)), b.weights(_grid(b)), format="csr")
        return IntrinsicPart(
            self.label,
            place,
            scale_structure(penalty, np.vstack([np.ones(a.count * b.count), free]), corner),
            np.stack([line / _spread(rows @ line) for line in free]),
            ("slope1", "slope2", "twist"),
            COEFFICIENT_SCALE * around.unit,
            standard_deviation(f"sd({self.label})", around.unit),
        )

    def _place(self, source: str, frame: Any, most: int) -> Splines:
        x = evaluate(source, frame)
        distinct = len(np.unique(x))
        if distinct < 3:
            raise ValueError(f"{self.label} needs at least 3 distinct values of {source}, got {distinct}")
        low, high = (float(x.min()), float(x.max())) if self.period is None else map(float, self.period)
        if low > x.min() or high < x.max() or low >= high:
            raise ValueError(f"period must hold all values of {source}, {x.min():g} to {x.max():g}, got {self.period}")
        count = self.count if self.count is not None else max(5, min(most, distinct))
        return Splines(source, low, high, count, self.cyclic)


def _grid(place: Splines) -> Array:
    """Places at which the typical variance of a curve is taken."""
    return np.linspace(place.low, place.high, 4 * place.count)


def _spread(values: Array) -> float:
    return float(np.std(values)) or 1.0


def _penalty(count: int, cyclic: bool) -> sparse.csr_array:
    """Squares of the second differences of the coefficients."""
    if cyclic:
        eye = np.eye(count)
        differences = sparse.csr_array(np.roll(eye, 1, axis=1) - 2.0 * eye + np.roll(eye, -1, axis=1))
    else:
        ones = np.ones(count - 2)
        differences = sparse.csr_array(
            sparse.diags_array([ones, -2.0 * ones, ones], offsets=[0, 1, 2], shape=(count - 2, count))
        )
    return sparse.csr_array(differences.T @ differences)
