"""Student's t sites, Challis (2013), A.5.3 (sign of the derivative and kurtosis corrected)."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln, stdtr

from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, QuadraticBound, TiltedMoments
from latlin.potentials.checks import finite, positive
from latlin.potentials.power_tail import PowerTail
from latlin.potentials.ranges import Positive


class StudentT(Potential):
    """φ(x) ∝ (1 + r²/df)^{−(df+1)/2}, r = (x − loc)/scale, normalised in x and in loc.

    Not log-concave: engines find a stationary point, which may be one of several.

    Parameters
    ----------
    df : float or array_like of shape (sites,)
        Degrees of freedom, positive.
    loc : float or array_like of shape (sites,), default 0
        The observation, or the centre of a prior.
    scale : float or array_like of shape (sites,), default 1
        The family's scale; the standard deviation is scale·√(df/(df−2)) for df > 2.

    Examples
    --------
    >>> outlier = StudentT(df=4.0, loc=10.0)
    >>> float(outlier.expected_log(0.0, 1.0).d_mean.round(3))
    0.485
    """

    parameters = ("df", "loc", "scale")
    arrays = ("df", "loc", "scale")
    free = MappingProxyType({"df": Positive(start=4.0, low=0.5, high=200.0), "scale": Positive()})
    location_scale = True
    super_gaussian = True

    df: Array
    loc: Array
    scale: Array

    def __init__(self, df: ArrayLike, loc: ArrayLike = 0.0, scale: ArrayLike = 1.0) -> None:
        self._store(df=positive("df", df), loc=finite("loc", loc), scale=positive("scale", scale))

    def _tail(self) -> PowerTail:
        # Γ((ν+1)/2) / (Γ(ν/2) √(πν)) = 1 / (B(ν/2, ½) √ν)
        width = self.scale * np.sqrt(self.df)
        return PowerTail(self.loc, width, 0.5 * (self.df + 1), -betaln(0.5 * self.df, 0.5) - np.log(width))

    def log_density(self, x: ArrayLike) -> Array:
        return self._tail().log_density(np.asarray(x, dtype=float))

    def derivatives(self, x: ArrayLike) -> Derivatives:
        return self._tail().derivatives(np.asarray(x, dtype=float))

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        return ((self.loc, self.scale * np.sqrt(np.minimum(self.df, 1))),)

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        return self._tail().expected_log(m, v)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        return self._tail().tilted_moments(m, v, power)

    def _quadratic_bound(self, xi: Array) -> QuadraticBound:
        return self._tail().quadratic_bound(xi)

    def _noise_moments(self) -> tuple[Array, Array]:
        more = np.where(self.df > 2, self.df, 3.0)
        variance = np.where(self.df > 2, self.scale**2 * more / (more - 2), np.inf)
        return np.where(self.df > 1, 0.0, np.nan), variance

    def _noise_cdf(self, r: Array) -> Array:
        return np.asarray(stdtr(self.df, r / self.scale))

    def _noise_sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return np.asarray(self.scale * rng.standard_t(self.df, size=shape))
