"""Ordered classes: the line is cut into K intervals and y says which one x plus noise fell into."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from latlin.numerics.options import check_choice, float_array
from latlin.numerics.quadrature import central_slope
from latlin.numerics.special import log1mexp, log_sigmoid
from latlin.potentials import strip
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, TiltedMoments
from latlin.potentials.checks import counts, finite
from latlin.potentials.kernels.truncated import normal_interval
from latlin.potentials.predictive import ClassPredictive, Predictive
from latlin.potentials.ranges import Increasing


class Ordinal(Potential):
    """φ(x) = F(c_{y+1} − x) − F(c_y − x) with cuts −∞ = c_0 < c_1 < … < c_K = ∞.

    Parameters
    ----------
    y : array_like of shape (sites,) or scalar
        Classes 0 … K−1.
    cuts : array_like of shape (K − 1,)
        Strictly increasing, the same for all sites.
    link : {"probit", "logit"}
        F is the distribution function of the standard normal or of the logistic distribution.

    Examples
    --------
    >>> sites = Ordinal([0, 2, 1], cuts=[-1.0, 1.0])
    >>> sites.log_density([0.0, 0.0, 0.0]).round(4).tolist()
    [-1.841, -1.841, -0.3817]
    >>> sites.predictive(0.0, 1.0).probabilities.round(4).tolist()
    [0.2398, 0.5205, 0.2398]
    """

    parameters = ("y", "cuts", "link")
    arrays = ("y", "lower", "upper")
    observation = ("y", 0.0)
    log_concave = True
    free = MappingProxyType({"cuts": Increasing()})

    y: Array
    cuts: Array
    link: str
    lower: Array
    upper: Array

    def __init__(self, y: ArrayLike, cuts: ArrayLike, link: str = "probit") -> None:
        check_choice("link", link, LINKS)
        cuts = np.atleast_1d(finite("cuts", cuts))
        if np.any(np.diff(cuts) <= 0):
            raise ValueError(f"cuts must be strictly increasing, got {cuts}")
        y = counts("y", y, below=cuts.size + 1)
        ends = np.concatenate([[-np.inf], cuts, [np.inf]])
        index = y.astype(int)
        self._store(y=y, cuts=cuts, link=link, lower=ends[index], upper=ends[index + 1])

    def log_density(self, x: ArrayLike) -> Array:
        return LINKS[self.link].log_mass(*self._ends(x))

    def derivatives(self, x: ArrayLike) -> Derivatives:
        first, second, third = LINKS[self.link].derivatives(*self._ends(x))
        return Derivatives(-first, second, -third)

    def _expansion(self, x: Array) -> tuple[Array, Array, Array]:
        if self.link != "probit":
            return super()._expansion(x)
        mass = normal_interval(*self._ends(x))
        return mass.log_mass, -mass.first, mass.second

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        one = np.ones(())
        low, high = np.maximum(self.lower, self.cuts[0]), np.minimum(self.upper, self.cuts[-1])
        return ((low, one), (high, one))

    @property
    def strip(self) -> float:
        return LINKS[self.link].strip

    def widened(self, factor: float) -> Self:
        """The same sites with every bounded interval `factor` times as wide, its lower end held."""
        bounded = np.isfinite(self.lower) & np.isfinite(self.upper)
        lower, width = np.where(bounded, self.lower, 0.0), np.where(bounded, self.upper - self.lower, 0.0)
        block = copy.copy(self)
        object.__setattr__(block, "upper", np.where(bounded, lower + factor * width, self.upper))
        return block

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        if self.link == "probit":
            return strip.expected_log_mass(self, m, v, self.lower, self.upper, LINKS["probit"].strip)
        return _expected_logit(self.lower, self.upper, m, v)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        if self.link == "logit" or np.any(power != 1):
            link = LINKS[self.link]
            return strip.tilted_moments(self, m, v, power, strip=link.strip, curvature=link.curvature)
        # x + noise ~ N(m, 1 + v): log Z = F((ends − m)/√(1+v)), mean = m + v ∂log Z/∂m, var = v + v² ∂²log Z/∂m²
        root = np.sqrt(1 + v)
        log_z, first, _, _, rest = normal_interval(
            (self.lower - m) / root, (self.upper - m) / root, self._width() / root
        )
        return TiltedMoments(log_z, m - (v / root) * first, v * ((1 + v * rest) / (1 + v)))

    def _expected_parameter_derivative(self, name: str, m: Array, v: Array) -> Array:
        against, upper = self._expected_log(m, v).d_mean, self._expected_opening(m, v)
        unknown = np.flatnonzero(np.isnan(upper))
        if unknown.size:
            rest, (m, v) = self.select(unknown), (m[unknown], v[unknown])
            upper[unknown] = rest._opening(lambda block: block._expected_log(m, v).value, against[unknown])
        return self._by_cuts(against, upper)

    def functional_derivative(self, name: str, value: Callable[[Self], Array], pull: Callable[[], Array]) -> Array:
        """The edges move together against x, ∂/∂lower + ∂/∂upper = −A[ψ′], and the width moves the upper one."""
        self._refuse_fixed(name)
        against = pull()
        return self._by_cuts(against, self._opening(value, against))

    def _expected_opening(self, m: Array, v: Array) -> Array:
        """⟨∂ψ/∂upper⟩ of every site; NaN where another rule is needed."""
        if self.link == "logit":
            from latlin.potentials.kernels.sites import (
                log_sigmoid_expectations,
            )  # loads the compiler: when first needed

            finite_end = np.broadcast_to(np.isfinite(self.upper), m.shape)
            slope = log_sigmoid_expectations(np.where(finite_end, self.upper, 0.0) - m, v)[1]
            # ∂ log(1 − e^{−width}) / ∂upper = 1/(e^{width} − 1)
            with np.errstate(over="ignore"):
                return np.where(finite_end, slope + 1.0 / np.expm1(self._width()), 0.0)
        from latlin.potentials.kernels import normal_sites  # loads the compiler: when first needed

        found = normal_sites.expected_log_mass(m, v, self.lower, self.upper)[3]
        return np.where(self._width() < strip.SHORT, np.nan, found)

    def _opening(self, value: Callable[[Self], Array], against: Array) -> Array:
        """∂A/∂upper of every site by differences in the logarithm of its width, for A[ψ′] = `against`."""
        inner = np.broadcast_to(np.isfinite(self.lower) & np.isfinite(self.upper), against.shape)
        width = np.where(inner, self.upper - self.lower, 1.0)
        opened = central_slope(lambda t: value(self.widened(float(np.exp(t))))) / width
        return np.where(inner, opened, np.where(np.isfinite(self.upper), -against, 0.0))

    def _by_cuts(self, against: Array, upper: Array) -> Array:
        """Derivatives in the cuts: class k lies between cuts k − 1 and k."""
        index = np.arange(self.cuts.size)[:, None]
        return np.where(self.y == index, upper, 0.0) + np.where(self.y == index + 1, -against - upper, 0.0)

    def _sample(self, x: Array, rng: np.random.Generator) -> Array:
        noise = rng.standard_normal(x.shape) if self.link == "probit" else rng.logistic(size=x.shape)
        return np.searchsorted(self.cuts, x + noise).astype(float)

    def _predictive(self, m: Array, v: Array, shape: tuple[int, ...]) -> Predictive:
        return ClassPredictive(self, m, v, shape, n_classes=self.cuts.size + 1)

    def _width(self) -> Array:
        """Length of the intervals, which is lost in the difference of two ends far away."""
        return np.asarray(self.upper - self.lower)

    def _ends(self, x: ArrayLike) -> tuple[Array, Array, Array]:
        x = float_array("x", x)
        return self.lower - x, self.upper - x, self._width()


class Link(Protocol):
    """log(F(b) − F(a)) and its three derivatives when a and b move together."""

    #: distance of the singularities from the real line, and the largest second derivative
    strip: float
    curvature: float

    def log_mass(self, a: Array, b: Array, width: Array) -> Array: ...

    def derivatives(self, a: Array, b: Array, width: Array) -> tuple[Array, Array, Array]: ...


class _ProbitLink:
    strip, curvature = 2.0, 1.0

    def log_mass(self, a: Array, b: Array, width: Array) -> Array:
        from latlin.potentials.kernels import normal_sites  # loads the compiler: when first needed

        found = normal_sites.log_mass(a, b, width)
        # short intervals, and those that lie at infinity
        hard = np.isnan(found) | np.broadcast_to(width < strip.SHORT, a.shape)
        if np.any(hard):
            short = np.broadcast_to(width, a.shape)[hard]
            found[hard] = normal_interval(a[hard], b[hard], short).log_mass
        return found

    def derivatives(self, a: Array, b: Array, width: Array) -> tuple[Array, Array, Array]:
        mass = normal_interval(a, b, width)
        return tuple(part.reshape(a.shape) for part in mass[1:4])  # type: ignore[return-value]


class _LogitLink:
    """σ(b) − σ(a) = σ(b) σ(−a) (1 − e^{a−b})."""

    strip, curvature = np.pi, 0.5

    def log_mass(self, a: Array, b: Array, width: Array) -> Array:
        return np.asarray(log_sigmoid(b) + log_sigmoid(-a) + log1mexp(width))

    def derivatives(self, a: Array, b: Array, width: Array) -> tuple[Array, Array, Array]:
        p, q, s, t = expit(b), expit(-b), expit(-a), expit(a)
        return q - t, -p * q - s * t, p * q * (p - q) - s * t * (s - t)


LINKS: dict[str, Link] = {"probit": _ProbitLink(), "logit": _LogitLink()}


def cut_words(link: str, classes: Any, cuts: Any) -> str:
    """The cut points between ordered classes in a line.

    Examples
    --------
    >>> cut_words("logit", ["low", "high"], [0.25])
    'P(y ≤ class) = σ(cut − x·coefficients), logit link, cut points low | high at 0.25'
    """
    pairs = zip(classes[:-1], classes[1:], cuts, strict=True)
    shown = ", ".join(f"{low} | {high} at {cut:.4g}" for low, high, cut in pairs)
    function = {"probit": "Φ", "logit": "σ"}[link]
    return f"P(y ≤ class) = {function}(cut − x·coefficients), {link} link, cut points {shown}"


def _expected_logit(lower: Array, upper: Array, m: Array, v: Array) -> ExpectedLog:
    """⟨log σ(upper − x)⟩ + ⟨log σ(x − lower)⟩ + log(1 − e^{lower − upper})."""
    from latlin.potentials.kernels.sites import log_sigmoid_expectations  # loads the compiler: when first needed

    value = np.broadcast_to(log1mexp(upper - lower), m.shape).copy()
    d_mean, d_var = np.zeros_like(m), np.zeros_like(m)
    for end, sign in ((upper, -1.0), (lower, 1.0)):
        finite_end = np.broadcast_to(np.isfinite(end), m.shape)
        shift = sign * (m - np.where(np.isfinite(end), end, 0.0))
        part, slope, curvature = log_sigmoid_expectations(shift, v)
        value += np.where(finite_end, part, 0.0)
        d_mean += np.where(finite_end, sign * slope, 0.0)
        d_var += np.where(finite_end, curvature, 0.0)
    return ExpectedLog(value, d_mean, d_var)
