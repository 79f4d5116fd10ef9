"""The belief about an integral: a mixture of Student-t distributions, one for each set of hyperparameters.

One number has to be its width, the standard deviation; its intervals come from the mixture itself, because a
small share of belief in a rough integrand doubles the standard deviation long before it moves a quantile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from latlin.numerics.arrays import Array


class Moments(NamedTuple):
    """Shares, locations, squared scales and common degrees of freedom (inf: normal ones) of the parts."""

    weights: Array
    means: Array
    variances: Array
    dof: float

    @classmethod
    def single(cls, mean: float, variance: float, dof: float) -> Moments:
        """Of one part."""
        return cls(np.ones(1), np.array([mean]), np.array([variance]), dof)

    @property
    def mean(self) -> float:
        """Σ w m."""
        return float(self.weights @ self.means)

    @property
    def variance(self) -> float:
        """Σ w (s² + (m − m̄)²): that of the mixture but for the factor dof / (dof − 2) of a Student-t."""
        return float(self.weights @ (self.variances + (self.means - self.mean) ** 2))

    def times(self, scale: float) -> Moments:
        """Those of the integral of scale·f."""
        return self._replace(means=self.means * scale, variances=self.variances * scale**2)

    def quantile(self, p: float) -> float:
        """The number that the integral is below with probability p."""
        scales = np.maximum(np.sqrt(self.variances), np.finfo(float).tiny)
        each = self.means + scales * float(ndtri(p) if np.isinf(self.dof) else stdtrit(self.dof, p))
        low, high = float(each.min()), float(each.max())
        if high - low <= 1e-12 * (abs(low) + abs(high)):
            return low

        def missed(x: float) -> float:
            t = (x - self.means) / scales
            return float(self.weights @ (ndtr(t) if np.isinf(self.dof) else stdtr(self.dof, t))) - p

        # every part is below p at the least of the parts' quantiles and above it at the greatest
        return float(brentq(missed, low, high, xtol=1e-9 * (high - low)))


def pooled(weights: Array, parts: Sequence[Moments]) -> Moments:
    """The mixture of several beliefs with these shares."""
    shares = np.concatenate([w * part.weights for w, part in zip(weights, parts, strict=True)])
    means, variances = (np.concatenate([getattr(part, name) for part in parts]) for name in ("means", "variances"))
    return Moments(shares, means, variances, parts[0].dof)
