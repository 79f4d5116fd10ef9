"""Logistic sites: φ(x) = σ(y x), the likelihood of logistic regression.

The expected log and the tilted moments are compiled (`numerics.site_kernels`, `numerics.sigmoid_tilt`); the quadratic
bound is that of Jaakkola and Jordan, Challis (2013), §3.8 and A.5.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from latlin.numerics.arrays import Array
from latlin.numerics.options import float_array
from latlin.numerics.special import FUSED, exp_minus, log_one_plus, log_sigmoid
from latlin.numerics.threads import INNER, njit
from latlin.potentials.base import Derivatives, ExpectedLog, Potential, QuadraticBound, TiltedMoments
from latlin.potentials.checks import labels
from latlin.potentials.predictive import ClassPredictive, Predictive

# --- The compiled loop for the moments of N(x|m, s²) σ(x)^p, which expectation propagation asks of logistic sites.
#
# The integrand is analytic in the strip |Im x| < π and log-concave: the trapezoid rule about its top converges
# exponentially in the node distance over the strip and over the width of the integrand, both of which a site knows.


#: half the range of the nodes, in standard deviations of the Gaussian
REACH = 7.5
#: largest distance of two nodes, in x and in widths of the integrand
STEP_IN_X, STEP_IN_WIDTHS = 0.45, 0.75
#: a site that would need more nodes is left to others
MOST_NODES = 2048
#: products of this many factors keep their digits, and exponentials of this size are finite
FEW_NODES, FAR = 256, 600.0


def nodes_needed(s: Array, power: Array) -> NDArray[np.int64]:
    """Nodes that a site takes.

    >>> nodes_needed(np.array([0.3, 3.0]), np.ones(2)).tolist()
    [22, 101]
    """
    # −ψ″ ≤ ¼: the integrand is at least s/√(1 + ps²/4) wide
    steps = np.maximum(s / STEP_IN_X, np.sqrt(1.0 + 0.25 * power * s * s) / STEP_IN_WIDTHS)
    return np.ceil(np.minimum(2.0 * REACH * steps, 1e9)).astype(np.int64) + 1


@njit(**INNER, error_model="numpy")
def _top(m: float, s: float, power: float) -> float:
    """The z that maximises −½z² + p log σ(m + sz), by Newton steps kept between what is known to be on either side."""
    low, high, z = 0.0, power * s, 0.0
    for trial in range(60):
        x = m + s * z
        e = exp_minus(math.fabs(x))
        small, large = e / (1.0 + e), 1.0 / (1.0 + e)
        slope = power * s * (small if x > 0.0 else large) - z
        if slope > 0.0:
            low = z
        else:
            high = z
        step = slope / (1.0 + power * s * s * small * large)
        inside = low < z + step < high and trial % 4 < 3
        z = z + step if inside else 0.5 * (low + high)
        if (inside and math.fabs(step) < 1e-3) or high - low < 1e-3:
            break
    return z


@njit(**INNER, error_model="numpy", fastmath=FUSED)
def _log_weights(m: float, s: float, power: float, start: float, step: float, out: Array) -> None:
    """p log σ(x) − ½z² at equidistant z."""
    for k in range(out.size):
        z = start + step * k
        x = m + s * z
        out[k] = power * ((x if x < 0.0 else 0.0) - log_one_plus(exp_minus(math.fabs(x)))) - 0.5 * z * z


@njit(**INNER, error_model="numpy", fastmath={"contract", "nsz", "arcp", "reassoc"})
def _sums(log_w: Array, peak: float, first: float, step: float) -> tuple[float, float, float]:
    """Σ w, Σ wt and Σ wt² at t = first, first + step, …"""
    total, linear, square = 0.0, 0.0, 0.0
    for k in range(log_w.size):
        t = first + step * k
        w = exp_minus(peak - log_w[k] if log_w[k] < peak else 0.0)
        total += w
        linear += w * t
        square += w * t * t
    return total, linear, square


@njit(**INNER, error_model="numpy", fastmath={"contract", "nsz"})
def _halves(x: float, z: float, s: float, step: float, count: int) -> tuple[float, float, float]:
    """Σ w, Σ wt and Σ wt² of w = σ(x + st) e^{−½t² − zt} at t = step, 2·step, …, the exponentials by products alone."""
    decay, shrink = math.exp(-s * step), math.exp(-step * step)
    growth, weight, odds = math.exp(-0.5 * step * step - z * step), 1.0, math.exp(-x)
    total, linear, square = 0.0, 0.0, 0.0
    for k in range(1, count + 1):
        weight *= growth
        growth *= shrink
        odds *= decay
        w, t = weight / (1.0 + odds), step * k
        total += w
        linear += w * t
        square += w * t * t
    return total, linear, square


@njit(**INNER, error_model="numpy")
def _tilt_once(m: float, s: float, top: float, n: int) -> tuple[float, float, float]:
    """log Z, mean and variance for the power one, from the top outwards."""
    count = n // 2
    step, x = REACH / count, m + s * top
    here = 1.0 / (1.0 + math.exp(-x))
    up, down = _halves(x, top, s, step, count), _halves(x, -top, -s, step, count)
    total, linear, square = here + up[0] + down[0], up[1] - down[1], up[2] + down[2]
    centre = linear / total
    log_z = math.log(total * step / math.sqrt(2.0 * math.pi)) - 0.5 * top * top
    return log_z, m + s * (top + centre), s * s * (square / total - centre * centre)


@njit(cache=True, error_model="numpy", nogil=True)
def sigmoid_tilt(m: Array, s: Array, power: Array, count: NDArray[np.int64]) -> Array:
    """log Z, mean and variance of N(x|m, s²) σ(x)^p / Z, of shape (3, sites); `count` is from `nodes_needed`."""
    most = 1
    for i in range(count.size):
        most = max(most, count[i])
    out, work = np.empty((3, m.size)), np.empty(most)
    for i in range(m.size):
        n = count[i]
        step = 2.0 * REACH / (n - 1)
        top = _top(m[i], s[i], power[i])
        if power[i] == 1.0 and n <= FEW_NODES and math.fabs(m[i]) + s[i] * (math.fabs(top) + REACH) < FAR:
            out[0, i], out[1, i], out[2, i] = _tilt_once(m[i], s[i], top, n)
            continue
        log_w = work[:n]
        _log_weights(m[i], s[i], power[i], top - REACH, step, log_w)
        peak = log_w[0]
        for k in range(n):
            peak = max(peak, log_w[k])
        total, linear, square = _sums(log_w, peak, -REACH, step)
        centre = linear / total
        out[0, i] = peak + math.log(total * step / math.sqrt(2.0 * math.pi))
        out[1, i] = m[i] + s[i] * (top + centre)
        out[2, i] = s[i] * s[i] * (square / total - centre * centre)
    return out


class Logit(Potential):
    """φ(x) = σ(y x) = 1/(1 + e^{−y x}).

    Parameters
    ----------
    y : array_like of shape (sites,) or scalar
        Labels in {−1, +1}, in {0, 1} or booleans; kept as −1 and +1. Predictives speak of classes 0 and 1.

    Examples
    --------
    >>> sites = Logit([1, 0, 1])
    >>> sites.expected_log([0.0, 1.0, 2.0], 0.5).value.round(4).tolist()
    [-0.7523, -1.3612, -0.1542]
    >>> sites.predictive(0.7, 2.0).probabilities.round(4).tolist()
    [0.3752, 0.6248]
    """

    parameters = ("y",)
    arrays = ("y",)
    observation = ("y", 1.0)
    log_concave = True
    super_gaussian = True
    strip = np.pi

    y: Array

    def __init__(self, y: ArrayLike) -> None:
        self._store(y=labels("y", y))

    def log_density(self, x: ArrayLike) -> Array:
        return log_sigmoid(self.y * float_array("x", x))

    def derivatives(self, x: ArrayLike) -> Derivatives:
        t = self.y * float_array("x", x)
        if t.ndim == 1:
            return Derivatives(*self._with_derivatives(t)[1:])
        p, q = expit(t), expit(-t)
        # ψ′ = yσ(−yx), ψ″ = −σ(x)σ(−x), ψ‴ = −yσσ(1 − 2σ)
        return Derivatives(self.y * q, -p * q, self.y * p * q * (p - q))

    def _expansion(self, x: Array) -> tuple[Array, Array, Array]:
        return self._with_derivatives(self.y * x)[:3]

    def _with_derivatives(self, t: Array) -> tuple[Array, Array, Array, Array]:
        """ψ, ψ′, ψ″ and ψ‴ at x = yt."""
        from latlin.potentials.kernels.sites import log_sigmoid_derivatives  # loads the compiler: when first needed

        value, first, second, third = log_sigmoid_derivatives(t)
        return value, self.y * first, second, self.y * third

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        from latlin.potentials.kernels.sites import log_sigmoid_expectations  # loads the compiler: when first needed

        value, d_mean, d_var = log_sigmoid_expectations(self.y * m, v)
        return ExpectedLog(value, self.y * d_mean, d_var)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        from latlin.potentials.logit import MOST_NODES, nodes_needed, sigmoid_tilt  # as above

        s = np.sqrt(v)
        count = nodes_needed(s, power)
        if not np.any(count > MOST_NODES):
            log_z, mean, variance = sigmoid_tilt(self.y * m, s, power, count)
            return TiltedMoments(log_z, self.y * mean, variance)
        few = np.flatnonzero(count <= MOST_NODES)
        out = np.empty((3, m.size))
        log_z, mean, variance = sigmoid_tilt((self.y * m)[few], s[few], power[few], count[few])
        out[:, few] = log_z, (self.y * np.ones_like(m))[few] * mean, variance
        rest = np.flatnonzero(count > MOST_NODES)
        out[:, rest] = Potential._tilted_moments(self.select(rest), m[rest], v[rest], power[rest])
        return TiltedMoments(*out)

    def _quadratic_bound(self, xi: Array) -> QuadraticBound:
        # log σ(t) ≥ log σ(ξ) + ½(t − ξ) − ½a(t² − ξ²), a = tanh(ξ/2)/(2ξ)
        half = 0.5 * xi
        a = 0.25 * np.where(half > 1e-4, np.tanh(half) / np.maximum(half, 1e-4), 1 - half**2 / 3)
        return QuadraticBound(a, 0.5 * self.y, log_sigmoid(xi) - half + 0.5 * a * xi * xi)

    def _sample(self, x: Array, rng: np.random.Generator) -> Array:
        return np.asarray(rng.random(x.shape) < expit(x))

    def _predictive(self, m: Array, v: Array, shape: tuple[int, ...]) -> Predictive:
        return ClassPredictive(self, m, v, shape, n_classes=2)
