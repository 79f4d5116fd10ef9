"""Proportions strictly between zero and one: beta regression with a logistic mean."""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, digamma, expit, gammaln

from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.options import float_array
from latlin.numerics.special import FUSED, exp_minus, log_one_plus, log_positive, log_sigmoid, stirling_rest
from latlin.numerics.threads import INNER, njit
from latlin.potentials.base import Derivatives, ExpectedLog, Potential
from latlin.potentials.checks import fractions, positive
from latlin.potentials.kernels.gamma_sites import SHRINK
from latlin.potentials.kernels.sites import CHUNK, HERMITE, TRAPEZOID, rule_table, sort_by_rule
from latlin.potentials.mean_link import (
    BETA,
    expected_log,
    expected_size_slope,
    gamma_slopes,
    mean_moments,
    through_mean,
)
from latlin.potentials.predictive import UNIT, ContinuousPredictive, Predictive
from latlin.potentials.ranges import Positive

# --- Beta sites of moderate precision, as loops over sites that the compiler vectorises: no branch, no table.
#
# With a = sμ, b = s(1 − μ), μ = σ(x), o the log odds of y and l = log(1 − y),
#
#     ψ(x) = log Γ(s) − log y(1 − y) + sl + ao − log Γ(1 + a) − log Γ(1 + b) + log ab.
#
# log Γ(z) for z ≥ 1 is Stirling's series at z + 8 less log z(z + 1) … (z + 7), a polynomial of degree four in z(z + 7).
# For a large s these are differences of large numbers, and `gamma_sites` has another way.


_LOG_2PI = math.log(2.0 * math.pi)


@njit(**INNER, error_model="numpy", fastmath=FUSED, inline="always")
def _stirling(w: float, r: float) -> tuple[float, float, float, float]:
    """What log Γ(w) has besides (w − ½) log w − w + ½ log 2π; its slopes besides log w, 1/w, −1/w²; r = 1/w ≤ 1/9."""
    q = r * r
    value = 1 / 12.0 - q * (1 / 360.0 - q * (1 / 1260.0 - q * (1 / 1680.0 - q * (1 / 1188.0 - q * 691 / 360360.0))))
    lines = 1 / 12.0 - q * (1 / 120.0 - q * (1 / 252.0 - q * (1 / 240.0 - q * (1 / 132.0 - q * 691 / 32760.0))))
    bends = 1 / 6.0 - q * (1 / 30.0 - q * (1 / 42.0 - q * (1 / 30.0 - q * (5 / 66.0 - q * 691 / 2730.0))))
    falls = 0.5 - q * (1 / 6.0 - q * (1 / 6.0 - q * (3 / 10.0 - q * (5 / 6.0 - q * 691 / 210.0))))
    return r * value, -0.5 * r - q * lines, q * (0.5 + r * bends), -q * (r + q * falls)


@njit(**INNER, error_model="numpy", fastmath=FUSED, inline="always")
def _beta_site(x: float, s: float, odds: float) -> tuple[float, float, float, float, float, float, float]:
    """ψ but for its constants, ψ′, ψ″, ψ‴, and ∂ψ/∂s but for its constants with its two slopes in x."""
    e = exp_minus(math.fabs(x))
    large = 1.0 / (1.0 + e)
    small = e * large
    p, q = (large, small) if x > 0.0 else (small, large)
    a, b = 1.0 + s * p, 1.0 + s * q
    wa, wb = a + 8.0, b + 8.0
    inverse = 1.0 / (wa * wb)
    ra, rb = wb * inverse, wa * inverse
    log_a, log_b = log_positive(wa), log_positive(wb)
    # z(z + 1) … (z + 7) = t(t + 6)(t + 10)(t + 12), t = z(z + 7), and its derivatives in t
    ta, tb = a * (a + 7.0), b * (b + 7.0)
    pa, pb = (((ta + 28.0) * ta + 252.0) * ta + 720.0) * ta, (((tb + 28.0) * tb + 252.0) * tb + 720.0) * tb
    one_a, one_b = ((4.0 * ta + 84.0) * ta + 504.0) * ta + 720.0, ((4.0 * tb + 84.0) * tb + 504.0) * tb + 720.0
    two_a, two_b = (12.0 * ta + 168.0) * ta + 504.0, (12.0 * tb + 168.0) * tb + 504.0
    both = pa * pb
    inverse = 1.0 / both
    ia, ib = pb * inverse, pa * inverse
    da, db = 2.0 * a + 7.0, 2.0 * b + 7.0
    # log of the product, differentiated in z
    fa1, fb1 = one_a * da * ia, one_b * db * ib
    ga2, gb2 = (two_a * da * da + 2.0 * one_a) * ia, (two_b * db * db + 2.0 * one_b) * ib
    ga3 = ((24.0 * ta + 168.0) * da * da + 6.0 * two_a) * da * ia
    gb3 = ((24.0 * tb + 168.0) * db * db + 6.0 * two_b) * db * ib
    va, va1, va2, va3 = _stirling(wa, ra)
    vb, vb1, vb2, vb3 = _stirling(wb, rb)
    # log Γ of both, and digamma, trigamma and tetragamma of each
    gammas = (wa - 0.5) * log_a + (wb - 0.5) * log_b - wa - wb + _LOG_2PI + va + vb - log_positive(both)
    fa, fb = log_a + va1 - fa1, log_b + vb1 - fb1
    ga, gb = ra + va2 - (ga2 - fa1 * fa1), rb + vb2 - (gb2 - fb1 * fb1)
    ha = -ra * ra + va3 - (ga3 - fa1 * (3.0 * ga2 - 2.0 * fa1 * fa1))
    hb = -rb * rb + vb3 - (gb3 - fb1 * (3.0 * gb2 - 2.0 * fb1 * fb1))
    w, turn = p * q, q - p
    value = s * p * odds - gammas - math.fabs(x) - 2.0 * log_one_plus(e)
    # in μ: da/dμ = s, db/dμ = −s, μ′ = w, μ″ = w(1 − 2μ), μ‴ = w(1 − 6w)
    apart = odds - fa + fb
    one, two, three = s * apart, -s * s * (ga + gb), -s * s * s * (ha - hb)
    first = one * w + turn
    second = (two * w + one * turn - 2.0) * w
    third = (three * w * w + 3.0 * two * w * turn + one * (1.0 - 6.0 * w) - 2.0 * turn) * w
    size = p * (odds - fa) - q * fb
    size_one = apart + s * (q * gb - p * ga)
    size_two = -2.0 * s * (ga + gb) - s * s * (p * ha + q * hb)
    return value, first, second, third, size, size_one * w, (size_two * w + size_one * turn) * w


@njit(cache=True, error_model="numpy", fastmath=FUSED, nogil=True)
def _points(x: Array, size: Array, odds: Array, out: Array) -> None:
    for i in range(x.size):
        f = _beta_site(x[i], size[i], odds[i])
        out[0, i], out[1, i], out[2, i], out[3, i], out[4, i], out[5, i], out[6, i] = f


def beta_points(x: Array, size: Array, odds: Array) -> Array:
    """ψ, ψ′, ψ″ and ψ‴, and ∂ψ/∂size with its two slopes, at points x of shape (sites,): an array of shape (7, sites).

    The first misses log Γ(s) + 2 log s + s log(1 − y) − log y(1 − y), the fifth the derivative of that in s.
    """
    out = np.empty((7, x.size))
    _points(np.ascontiguousarray(x), _spread(size, x), _spread(odds, x), out)
    return out


def _spread(part: Array, x: Array) -> Array:
    return np.array(np.broadcast_to(part, x.shape), dtype=float)


@njit(**INNER, error_model="numpy", fastmath=FUSED)
def _add(
    m: Array,
    s: Array,
    size: Array,
    odds: Array,
    nodes: Array,
    weights: Array,
    value: Array,
    d_mean: Array,
    d_var: Array,
    d_size: Array,
) -> None:
    """Add Σ_k w_k (ψ, ψ′, ½ψ″, ∂ψ/∂size)(m + s z_k) to the sums."""
    for k in range(nodes.size):
        z, w = nodes[k], weights[k]
        for i in range(m.size):
            f = _beta_site(m[i] + s[i] * z, size[i], odds[i])
            value[i] += w * f[0]
            d_mean[i] += w * f[1]
            d_var[i] += 0.5 * w * f[2]
            d_size[i] += w * f[4]


@njit(cache=True, error_model="numpy", nogil=True)
def _loop(
    m: Array,
    s: Array,
    size: Array,
    odds: Array,
    limit: Array,
    start: NDArray[np.int64],
    nodes: Array,
    weights: Array,
    out: Array,
) -> None:
    """A chunk of sites at a time: sort by rule, run each rule on its sites, put the results back."""
    order, work = np.empty(CHUNK, np.int64), np.empty((8, CHUNK))
    mean, sd, shape, share = work[0], work[1], work[2], work[3]
    value, d_mean, d_var, d_size = work[4], work[5], work[6], work[7]
    for a in range(0, m.size, CHUNK):
        n = min(CHUNK, m.size - a)
        first = sort_by_rule(s[a : a + n], limit, order)
        for i in range(n):
            j = a + order[i]
            mean[i], sd[i], shape[i], share[i] = m[j], s[j], size[j], odds[j]
        work[4:] = 0.0
        for r in range(limit.size - 1):
            b, c, k, l = first[r], first[r + 1], start[r], start[r + 1]
            sites = (mean[b:c], sd[b:c], shape[b:c], share[b:c])
            _add(*sites, nodes[k:l], weights[k:l], value[b:c], d_mean[b:c], d_var[b:c], d_size[b:c])
        # the last rule is for sites too wide for all others
        work[4:, first[limit.size - 1] : n] = np.nan
        for i in range(n):
            j = a + order[i]
            out[0, j], out[1, j], out[2, j], out[3, j] = value[i], d_mean[i], d_var[i], d_size[i]


def expected_beta(m: Array, v: Array, size: Array, odds: Array) -> Array:
    """⟨ψ⟩, its derivatives in m and v, and ⟨∂ψ/∂size⟩, less what `beta_points` misses: (4, sites); NaN for large v."""
    rules, direct = rule_table(), len(HERMITE) + len(TRAPEZOID)
    limit = np.append(SHRINK * rules.limit[:direct], np.inf)
    out = np.empty((4, m.size))
    sites = (m, np.sqrt(v), _spread(size, m), _spread(odds, m))
    _loop(*sites, limit, rules.start, rules.nodes, rules.weights, out)
    return out


#: precisions up to which log Γ of the shapes keeps its digits
MODERATE = 1e3


class Beta(Potential):
    """φ(x) = y^{a−1} (1 − y)^{b−1} / B(a, b) with a = μ·precision, b = (1 − μ)·precision and mean μ = σ(x).

    Parameters
    ----------
    y : array_like of shape (sites,) or scalar
        Proportions strictly between 0 and 1.
    precision : float or array_like of shape (sites,)
        Positive; the variance is μ(1 − μ)/(1 + precision).

    Examples
    --------
    >>> Beta([0.2, 0.9], 5.0).log_density([-1.0, 2.0]).round(4).tolist()
    [0.7692, 1.0237]
    """

    parameters = ("y", "precision")
    arrays = ("y", "precision")
    observation = ("y", 0.5)
    free = MappingProxyType({"precision": Positive(start=5.0, low=1e-2, high=1e6)})
    strip = np.pi

    y: Array
    precision: Array

    def __init__(self, y: ArrayLike, precision: ArrayLike) -> None:
        self._store(y=fractions("y", y), precision=positive("precision", precision))

    def _log_odds(self) -> Array:
        return np.log(self.y) - np.log1p(-self.y)

    def log_density(self, x: ArrayLike) -> Array:
        x = float_array("x", x)
        s, a, b = self.precision, self.precision * expit(x), self.precision * expit(-x)
        log_p, log_q, d = log_sigmoid(x), log_sigmoid(-x), x - self._log_odds()
        # KL(μ‖y) from the smaller of y and 1 − y, and log y = log odds + log(1 − y)
        side = np.where(self.y < 0.5, 1.0, -1.0)
        y, d, odds = np.where(self.y < 0.5, self.y, 1.0 - self.y), side * d, side * self._log_odds()
        far = d + odds + np.log1p(-y)
        ratio = np.where(d < 500.0, np.log1p(y * np.expm1(np.minimum(d, 500.0))), far)
        divergence = s * (expit(side * x) * d - ratio)
        rest = stirling_rest(a, np.log(s) + log_p) + stirling_rest(b, np.log(s) + log_q)
        return np.asarray(self._constant() + 0.5 * (log_p + log_q) - divergence - rest)

    def _constant(self) -> Array:
        """What ψ has besides terms in x: ½ log(s/2π) + R(s) − log y(1 − y)."""
        s = self.precision
        return np.asarray(
            0.5 * (np.log(s) - LOG_2PI) + stirling_rest(s, np.log(s)) - np.log(self.y) - np.log1p(-self.y)
        )

    def derivatives(self, x: ArrayLike) -> Derivatives:
        x = float_array("x", x)
        if x.ndim == 1 and self._is_moderate:
            return Derivatives(*self._points(x)[1:4])
        s, one = self.precision, np.ones(())
        left, right = (gamma_slopes(one, s * expit(side * x)) for side in (1, -1))
        slopes = (
            s * (self._log_odds() - left[0] + right[0]),
            -(s**2) * (left[1] + right[1]),
            -(s**3) * (left[2] - right[2]),
        )
        return through_mean(x, slopes, one, one)

    def _expansion(self, x: Array) -> tuple[Array, Array, Array]:
        from latlin.potentials.kernels.gamma_sites import beta_points  # loads the compiler: when first needed

        if x.ndim != 1:
            return super()._expansion(x)
        if self._is_moderate:
            value, first, second = self._points(x)[:3]
            return value + self._once("moderate constant", self._moderate_constant), first, second
        value, first, second = beta_points(x, *self._sites())
        return value + self._constant(), first, second

    @property
    def _is_moderate(self) -> bool:
        """No precision is so large that log Γ of the shapes loses digits."""
        return self._once("moderate", lambda: bool(np.all(self.precision <= MODERATE)))

    def _points(self, x: Array) -> Array:
        """ψ but for its constant, ψ′, ψ″ and ψ‴, and ∂ψ/∂s but for its constant with two slopes in x."""
        from latlin.potentials.beta import beta_points  # loads the compiler: when first needed

        return beta_points(x, self.precision, self._once("odds", self._log_odds))

    def _moderate_constant(self) -> Array:
        """log Γ(s) + 2 log s + s log(1 − y) − log y(1 − y)."""
        s, rest = self.precision, np.log1p(-self.y)
        return np.asarray(gammaln(s) + 2.0 * np.log(s) + (s - 1.0) * rest - np.log(self.y))

    def _sites(self) -> tuple[Array, Array, Array, Array]:
        """The parameters that the compiled loop takes."""
        return self.precision, np.log(self.precision), self.y, self._log_odds()

    def _parameter_derivative(self, name: str, x: Array) -> Array:
        return self._parameter_slopes(name, x)[0]

    def _parameter_slopes(self, name: str, x: Array) -> tuple[Array, Array, Array]:
        """g = ∂ψ/∂s = F(s) + 2/s − μF(1 + a) − (1 − μ)F(1 + b) + μ log y + (1 − μ) log(1 − y) and its slopes in x."""
        if x.ndim == 1 and self._is_moderate:
            value, first, second = self._points(x)[4:]
            return value + self._size_constant(), first, second
        s, p, q = self.precision, expit(x), expit(-x)
        (f, f1, f2), (h, h1, h2) = (gamma_slopes(np.ones(()), s * share) for share in (p, q))
        value = digamma(s) + 2.0 / s + p * (np.log(self.y) - f) + q * (np.log1p(-self.y) - h)
        # in μ: da/dμ = s, db/dμ = −s
        one = self._log_odds() - f + h + s * (q * h1 - p * f1)
        two = -2.0 * s * (f1 + h1) - s**2 * (p * f2 + q * h2)
        w = p * q
        return value, one * w, two * w**2 + one * w * (q - p)

    def _size_constant(self) -> Array:
        """The derivative of `_moderate_constant` in s."""
        return np.asarray(digamma(self.precision) + 2.0 / self.precision + np.log1p(-self.y))

    def _expected_moderate(self, m: Array, v: Array) -> Array | None:
        """⟨ψ⟩ with its slopes in m, v and s; None where a precision or the sd of a site is large."""
        from latlin.potentials.beta import expected_beta  # loads the compiler: when first needed

        if not self._is_moderate:
            return None
        found = expected_beta(m, v, self.precision, self._once("odds", self._log_odds))
        if np.any(np.isnan(found[0])):
            return None
        found[0] += self._once("moderate constant", self._moderate_constant)
        found[3] += self._size_constant()
        return found

    def _expected_parameter_derivative(self, name: str, m: Array, v: Array) -> Array | None:
        if (known := self._expected_moderate(m, v)) is not None:
            return known[3]
        found = expected_size_slope(m, v, BETA, *self._sites())
        # d/ds (½ log s + R(s)) = F(s) − log s + 1/s
        s = self.precision
        return None if found is None else digamma(s) - np.log(s) + 1.0 / s + found

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        return ((np.zeros(()), np.ones(())), (self._log_odds(), 1 / np.sqrt(1 + self.precision)))

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        if (known := self._expected_moderate(m, v)) is not None:
            return ExpectedLog(*known[:3])
        return expected_log(self, m, v, self._constant(), BETA, *self._sites())

    def _predictive(self, m: Array, v: Array, shape: tuple[int, ...]) -> Predictive:
        first, second = self._in_blocks(mean_moments, m, v)
        # var y = ⟨μ(1 − μ)⟩/(1 + s) + var μ
        spread = (first - second) / (1 + self.precision) + np.maximum(second - first * first, 0.0)
        return ContinuousPredictive(self, m, v, shape, first, spread, UNIT)

    def _sample(self, x: Array, rng: np.random.Generator) -> Array:
        a, b = self.precision * expit(x), self.precision * expit(-x)
        draws = rng.beta(np.maximum(a, 1e-300), np.maximum(b, 1e-300))
        return np.clip(draws, np.finfo(float).tiny, 1.0 - np.finfo(float).epsneg)

    def _conditional_cdf(self, x: Array) -> Array:
        a, b = self.precision * expit(x), self.precision * expit(-x)
        return np.asarray(betainc(np.maximum(a, 1e-300), np.maximum(b, 1e-300), self.y))
