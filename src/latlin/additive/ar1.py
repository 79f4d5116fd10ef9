"""Autoregression of first order: x_{i+1} = ρx_i + noise, with the same variance everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from latlin.additive.by import vary_field
from latlin.additive.expression import evaluate
from latlin.additive.places import Line
from latlin.additive.random_walk import grid, steps_beyond
from latlin.additive.term import (
    Part,
    PartPrior,
    PredictorRows,
    Slope,
    Surroundings,
    Term,
    Values,
    scaled_slope,
    standard_deviation,
)
from latlin.hyper.space import Hyperparameter
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.stored import storable
from latlin.priors.base import Correlation


@storable
@dataclass(frozen=True)
class AR1(Term):
    """A stationary autoregression over the values of a column.

    Parameters
    ----------
    column : str
        Times on a regular grid; times without rows belong to the series.
    by : str, optional
        A column of labels (one series per label) or of numbers (which multiply the series).

    Examples
    --------
    >>> part = AR1("t").prepare({"t": [0, 1, 2]}, Surroundings())
    >>> [hyper.name for hyper in part.hyperparameters]
    ['sd(ar1(t))', 'rho(ar1(t))']
    """

    column: str
    by: str | None = None

    @property
    def label(self) -> str:
        return f"ar1({self.column})"

    def prepare(self, frame: Any, around: Surroundings) -> Part:
        return vary_field(self.by, frame, around, self._field)

    def _field(self, frame: Any, around: Surroundings) -> Part:
        nodes = grid(evaluate(self.column, frame), self.label, 2)
        gaps = np.diff(nodes)
        if np.ptp(gaps) > 1e-6 * gaps.mean():
            raise ValueError(f"{self.label} needs times on a regular grid; gp({self.column}) takes any")
        return AR1Part(
            self.label,
            Line(self.column, nodes),
            standard_deviation(f"sd({self.label})", around.unit),
            Hyperparameter(f"rho({self.label})", 0.5, Correlation(1.0), (-1.0, 1.0), (-0.9999, 0.9999)),
        )


@storable
@dataclass(frozen=True)
class AR1Part(Part):
    """N(0, sd²/(1 − ρ²) · tridiagonal(−ρ, 1 + ρ², −ρ)⁻¹), the corners being one."""

    label: str
    place: Line
    sd: Hyperparameter
    rho: Hyperparameter

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.label}[{node}]" for node in self.place.labels)

    @property
    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        return (self.sd, self.rho)

    def rows(self, frame: Any, values: Values) -> PredictorRows:
        x = self.place.values(frame)
        design, beyond = self.place.weights(x), steps_beyond(self.place, x, self.label)
        if beyond is None:
            return PredictorRows(design)
        sd, rho = values[self.sd.name], values[self.rho.name]
        # k steps away: mean ρᵏ x_end and variance sd²(1 − ρ²ᵏ)
        steps = beyond[0] + beyond[1]
        decay = np.sign(rho) ** np.round(steps) * np.abs(rho) ** steps
        earlier, later = (_going_on(part, rho) for part in beyond)
        fresh = sparse.csr_array(sparse.hstack([earlier, later])) * (sd * np.sqrt(1.0 - rho**2))
        return PredictorRows(sparse.csr_array(sparse.diags_array(decay) @ design), fresh)

    def prior(self, values: Values) -> PartPrior:
        sd, rho, n = values[self.sd.name], values[self.rho.name], len(self.place.nodes)
        precision = _tridiagonal(n, 1.0, 1.0 + rho**2, -rho) / (sd**2 * (1.0 - rho**2))
        constant = -0.5 * n * LOG_2PI - n * np.log(sd) - 0.5 * (n - 1) * np.log1p(-(rho**2))
        return PartPrior(sparse.csc_array(precision), float(constant))

    def slopes(self, values: Values) -> dict[str, Slope]:
        sd, rho, n = values[self.sd.name], values[self.rho.name], len(self.place.nodes)
        prior, rest = self.prior(values), 1.0 - rho**2
        # ∂/∂ρ of (1 + ρ²)/(1 − ρ²), 1/(1 − ρ²) and −ρ/(1 − ρ²)
        turn = _tridiagonal(n, 2.0 * rho, 4.0 * rho, -(1.0 + rho**2)) / (rest**2 * sd**2)
        return {
            self.sd.name: scaled_slope(prior, n, sd),
            self.rho.name: Slope(sparse.csc_array(turn), (n - 1) * rho / rest),
        }


def _tridiagonal(n: int, corner: float, middle: float, beside: float) -> sparse.csc_array:
    diagonal = np.full(n, middle)
    diagonal[[0, -1]] = corner
    side = np.full(n - 1, beside)
    return sparse.csc_array(sparse.diags_array([side, diagonal, side], offsets=[-1, 0, 1]))


def _going_on(steps: Array, rho: float) -> sparse.csr_array:
    """Rows over innovations: after k steps Σ_{j≤k} ρ^{k−j} z_j; nothing where steps ≤ 0."""
    k = np.round(steps)
    j = np.arange(1, int(k.max(initial=0.0)) + 1)
    age = k[:, None] - j
    return sparse.csr_array(np.where(age >= 0, rho ** np.maximum(age, 0.0), 0.0))
