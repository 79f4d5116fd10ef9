"""Coefficients with wide normal priors: the intercept, slopes and differences between labels."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from scipy import sparse

from latlin.additive.coding import TableCoding, coding_of
from latlin.additive.term import COEFFICIENT_SCALE, Part, PartPrior, PredictorRows, Surroundings, Term, Values
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.stored import storable
from latlin.priors import Flat

#: standard deviation of the intercept at the average row, in units of the response
INTERCEPT_SCALE = 10.0


@storable
class Fixed(Term):
    """Coefficients of columns.

    Parameters
    ----------
    *pieces : str
        Columns of numbers, columns of labels (coded against their first label), or pieces of a formula such as
        "log(x)", "x:z", "C(year)" (these need formulaic).
    intercept : bool
        Add an intercept.

    Notes
    -----
    The default prior of a slope is N(0, (5 u/s)²), where u is the standard deviation of the response (one for families
    with a link) and s that of the column, or ½ for a column of zeros and ones. The default prior of the intercept is
    wider, N(centre, (10 u)²), and is about the row with average columns. `priors={"x": 2.0}` gives a standard
    deviation, `priors={"x": (1.0, 2.0)}` a mean and a standard deviation, `priors={"x": Flat()}` neither; a prior for
    "Intercept" is about the row whose columns are zero.

    Examples
    --------
    >>> part = Fixed("x", "sex").prepare({"x": [1.0, 2.0, 4.0], "sex": ["f", "m", "m"]}, Surroundings())
    >>> part.names
    ('Intercept', 'x', 'sex[T.m]')
    """

    def __init__(self, *pieces: str, intercept: bool = True) -> None:
        if not all(isinstance(piece, str) for piece in pieces):
            raise ValueError(f"Fixed takes names of columns or pieces of a formula, got {pieces!r}")
        self.pieces = pieces
        self.intercept = intercept

    def __repr__(self) -> str:
        return f"Fixed({', '.join([*map(repr, self.pieces), *(() if self.intercept else ('intercept=False',))])})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fixed) and (self.pieces, self.intercept) == (other.pieces, other.intercept)

    def __hash__(self) -> int:
        return hash((self.pieces, self.intercept))

    @property
    def label(self) -> str:
        return "fixed"

    def prepare(self, frame: Any, around: Surroundings) -> Part:
        coding = coding_of(self.pieces, frame, self.intercept)
        given = around.priors or {}
        X = coding.columns(frame)
        has_intercept = "Intercept" in coding.names
        centre, spread = _standard(X, coding.names, has_intercept and "Intercept" not in given)
        mean, scale = np.zeros(len(coding.names)), np.full(len(coding.names), COEFFICIENT_SCALE * around.unit)
        for k, name in enumerate(coding.names):
            if name == "Intercept":
                mean[k], scale[k] = around.centre, INTERCEPT_SCALE * around.unit
            if name in given:
                m, s = _given(name, given)
                # priors are about the user's coefficients, these are about those of standardised columns
                mean[k], scale[k] = m * spread[k], s * spread[k]
        return FixedPart(self.label, coding, centre, spread, mean, scale)


@storable
@dataclass(frozen=True)
class FixedPart(Part):
    """Coefficients of standardised columns with independent normal priors; those of infinite scale are flat.

    Attributes
    ----------
    coding : Coding
    centre, spread : arrays of shape (p,)
        A column x enters as (x − centre)/spread.
    prior_mean, scale : arrays of shape (p,)
    """

    label: str
    coding: TableCoding
    centre: Array
    spread: Array
    prior_mean: Array
    scale: Array

    @property
    def names(self) -> tuple[str, ...]:
        return self.coding.names

    @property
    def mean(self) -> Array:
        return self.prior_mean

    @property
    def flat(self) -> int:
        return int(np.sum(~np.isfinite(self.scale)))

    def rows(self, frame: Any, values: Values) -> PredictorRows:
        return PredictorRows(self.standardised(self.coding.columns(frame)))

    def standardised(self, X: sparse.csr_array) -> sparse.csr_array:
        """Columns of the user as columns of the model."""
        if not np.shape(self.centre) == np.shape(self.spread) == (X.shape[1],):
            raise ValueError(f"{self.label} has {X.shape[1]} columns, and moments of {np.shape(self.centre)} ones")
        moved = np.flatnonzero(self.centre)
        counts = np.bincount(X.indices, minlength=X.shape[1])
        if np.all(counts[moved] == X.shape[0]):
            data = (X.data - self.centre[X.indices]) / self.spread[X.indices]
            return sparse.csr_array((data, X.indices, X.indptr), shape=X.shape)
        table = sparse.csc_array(X @ sparse.diags_array(1.0 / self.spread))
        if len(moved):
            # only full columns are centred, so that nothing sparse becomes dense
            shifted = table[:, moved].toarray() - (self.centre / self.spread)[moved]
            keep = np.setdiff1d(np.arange(X.shape[1]), moved)
            order = np.argsort(np.concatenate([keep, moved]))
            table = sparse.csc_array(sparse.hstack([table[:, keep], sparse.csc_array(shifted)], format="csc")[:, order])
        return sparse.csr_array(table)

    def prior(self, values: Values) -> PartPrior:
        return self._same_for_all

    @cached_property
    def _same_for_all(self) -> PartPrior:
        """There are no hyperparameters."""
        finite = np.isfinite(self.scale)
        precision = np.where(finite, self.scale, np.inf) ** -2.0
        constant = -0.5 * LOG_2PI * finite.sum() - np.sum(np.log(self.scale[finite]))
        return PartPrior(sparse.csc_array(sparse.diags_array(precision)), float(constant))

    def report(self) -> sparse.csr_array:
        """The user's coefficients: b = b̃/spread, and the intercept at zero columns, c − Σ centre·b."""
        table = sparse.lil_array(sparse.diags_array(1.0 / self.spread))
        if "Intercept" in self.names:
            k = self.names.index("Intercept")
            for j in np.flatnonzero(self.centre):
                table[k, j] = -self.centre[j] / self.spread[j]
        return sparse.csr_array(table)


def _standard(X: sparse.csr_array, names: tuple[str, ...], centred: bool) -> tuple[Array, Array]:
    """What to take off and to divide by, per column; sparse columns keep their zero."""
    table, n = sparse.csc_array(X), max(X.shape[0], 1)
    columns = [table.data[a:b] for a, b in itertools.pairwise(table.indptr)]
    mean, square = np.array([x.sum() / n for x in columns]), np.array([x @ x / n for x in columns])
    if X.shape[0] and np.any(np.isnan(square)):
        raise ValueError("a column of the linear part has missing values; drop or fill these rows")
    sd = np.array([_deviation(x, n, m) for x, m in zip(columns, mean, strict=True)])
    centre, spread = np.zeros(len(names)), np.where(sd > 0.0, sd, np.maximum(np.sqrt(square), 1e-300))
    for k, name in enumerate(names):
        binary = np.all(columns[k] == 1.0)
        if name == "Intercept" or square[k] == 0.0:
            spread[k] = 1.0
        elif binary:
            spread[k] = 0.5
        if centred and name != "Intercept" and len(columns[k]) > 0.5 * X.shape[0] and sd[k] > 0.0:
            centre[k] = mean[k]
    return centre, spread


def _deviation(values: Array, n: int, mean: float) -> float:
    """Standard deviation of a column of n entries, those that are not zero being given."""
    return float(np.sqrt(((values - mean) ** 2).sum() / n + (n - len(values)) / n * mean**2))


def _given(name: str, priors: Mapping[str, Any]) -> tuple[float, float]:
    """Mean and standard deviation that the user gave for a coefficient."""
    match priors[name]:
        case Flat():
            return 0.0, np.inf
        case bool():
            pass
        case Real() as scale if float(scale) > 0.0:
            return 0.0, float(scale)
        case (Real() as mean, Real() as scale) if float(scale) > 0.0:
            return float(mean), float(scale)
    raise ValueError(
        f"priors[{name!r}] must be a standard deviation, a pair (mean, standard deviation) or Flat(), "
        f"got {priors[name]!r:.80}"
    )
