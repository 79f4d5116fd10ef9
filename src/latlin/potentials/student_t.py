"""Student's t sites, Challis (2013), A.5.3 (sign of the derivative and kurtosis corrected)."""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln, stdtr

from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, QuadraticBound, TiltedMoments
from latlin.potentials.checks import finite, positive, refuse_overflow
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


class PowerTail(NamedTuple):
    """What Student's t and the Cauchy share: ψ(x) = c − β log(1 + r²) with r = (x − centre)/width.

    Each field is a scalar or one number per site. The expectations are compiled; `latlin.potentials.kernels.student`
    says how they are taken.
    """

    centre: Array
    width: Array
    exponent: Array
    log_normaliser: Array

    def log_density(self, x: Array) -> Array:
        r = (x - self.centre) / self.width
        return np.asarray(self.log_normaliser - self.exponent * np.log1p(r * r))

    def derivatives(self, x: Array) -> Derivatives:
        r = (x - self.centre) / self.width
        q = 1 / (1 + r * r)
        b = 2 * self.exponent / self.width
        # ψ′ = −2βrq/ω, ψ″ = −2β(1−r²)q²/ω², ψ‴ = 4βr(3−r²)q³/ω³
        return Derivatives(
            -b * r * q, -b * (2 * q - 1) * q / self.width, 2 * b * r * q * (4 * q - 1) * q / self.width**2
        )

    def expected_log(self, m: Array, v: Array) -> ExpectedLog:
        from latlin.potentials.kernels.student import expected_log1p_square

        centre, width = np.broadcast_to(self.centre, m.shape), np.broadcast_to(self.width, m.shape)
        value, d_mean, d_var = expected_log1p_square((m - centre) / width, np.sqrt(v) / width)
        b = self.exponent
        return ExpectedLog(self.log_normaliser - b * value, -b * d_mean / width, -b * d_var / width**2)

    def tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        from latlin.potentials.kernels.student import tilted_by_power

        shift = (m - self.centre) / self.width
        log_z, pull, variance = tilted_by_power(shift, np.sqrt(v) / self.width, power * self.exponent)
        refuse_overflow("the squared distance from loc", m, v, log_z, pull, variance)
        return TiltedMoments(power * self.log_normaliser + log_z, m - self.width * pull, self.width**2 * variance)

    def quadratic_bound(self, xi: Array) -> QuadraticBound:
        # log(1 + r²) is concave in r²: its tangent there has slope q = 1/(1 + ξ²/ω²)
        ratio = xi / self.width
        a = 2 * self.exponent / self.width**2 / (1 + ratio * ratio)
        top = self.log_normaliser - self.exponent * np.log1p(ratio * ratio)
        return QuadraticBound(a, a * self.centre, top + 0.5 * a * (xi - self.centre) * (xi + self.centre))
