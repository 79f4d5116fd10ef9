"""Generalised normal sites: one family from sparse (shape < 1) over Laplace (1) and Gaussian (2) to a box."""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammainc, gammaincc, gammaln, hyp1f1

from latlin.numerics.arrays import Array
from latlin.numerics.options import float_array
from latlin.numerics.threads import INNER, njit, share_out
from latlin.potentials.base import Derivatives, ExpectedLog, Potential, QuadraticBound, TiltedMoments
from latlin.potentials.checks import finite, positive, refuse_overflow
from latlin.potentials.ranges import Positive

# --- Compiled loop for the product of a Gaussian with exp(−β|x|^q).
#
# |x|^q has an algebraic singularity at zero, so the two half lines are taken one by one and x = ± e^u: in u the
# integrand is entire and falls off on both sides. With u = u* + τ + 1 − e^{−τ} about its peak u* the left tail falls
# as steeply as the right one, and the trapezoid rule in τ converges exponentially. The stationary points solve
#
#     G(x) = x(x − μ)/σ² + βq x^q = 1,
#
# once for q ≥ 1 (G is convex) and up to three times for q < 1, where a spike at zero can stand beside the
# Gaussian's own peak. The rule runs over all that is within e^{−42} of the higher peak, in steps of about half the
# width of the narrower one.


#: nanoseconds per site of tilted moments, by measurement
TILTED = 10_000.0
_DROP = 42.0
_TINY = 1e-300


@njit(**INNER, error_model="numpy")
def _excess(x: float, mu: float, sd: float, b: float, q: float) -> float:
    """G(x) − 1."""
    return (x / sd) * ((x - mu) / sd) + b * q * x**q - 1.0


@njit(**INNER, error_model="numpy")
def _slope(x: float, mu: float, sd: float, b: float, q: float) -> float:
    """G′(x)."""
    return (2.0 * x - mu) / sd / sd + b * q * q * x ** (q - 1.0)


@njit(**INNER, error_model="numpy")
def _positive(steep: bool, x: float, mu: float, sd: float, b: float, q: float) -> bool:
    if steep:
        return _slope(x, mu, sd, b, q) > 0.0
    return _excess(x, mu, sd, b, q) > 0.0


@njit(**INNER, error_model="numpy")
def _root(steep: bool, low: float, high: float, mu: float, sd: float, b: float, q: float) -> float:
    """Where G − 1, or G′ if `steep`, changes its sign between low and high, by bisection of log x."""
    rising = _positive(steep, high, mu, sd, b, q)
    for _ in range(100):
        middle = math.sqrt(low) * math.sqrt(high)
        if middle <= low or middle >= high:
            break
        if _positive(steep, middle, mu, sd, b, q) == rising:
            high = middle
        else:
            low = middle
    return high


@njit(**INNER, error_model="numpy")
def _peaks(mu: float, sd: float, b: float, q: float) -> tuple[float, float]:
    """The places of the one or two maxima of the integrand in u = log x, the smaller first."""
    end = max(mu, 0.0) + 2.0 * sd
    if q < 1.0 and b > 0.0 and mu > 0.0:
        # G is concave up to its inflection and convex beyond: two turning points if it falls there
        bend = (0.5 * b * q * q * (1.0 - q) * sd * sd) ** (1.0 / (2.0 - q))
        if bend > _TINY and _slope(bend, mu, sd, b, q) < 0.0:
            high = _root(True, _TINY, bend, mu, sd, b, q)
            low = _root(True, bend, 0.5 * mu, mu, sd, b, q)
            left = _excess(high, mu, sd, b, q) > 0.0
            right = _excess(low, mu, sd, b, q) < 0.0
            if left and right:
                return _root(False, _TINY, high, mu, sd, b, q), _root(False, low, end, mu, sd, b, q)
            end = high if left else end
    x = _root(False, _TINY, end, mu, sd, b, q)
    return x, x


@njit(**INNER, error_model="numpy")
def _log_integrand(x: float, mu: float, sd: float, b: float, q: float) -> float:
    z = (x - mu) / sd
    return -0.5 * z * z - b * x**q + math.log(x)


@njit(**INNER, error_model="numpy")
def _relative(tau: float, drift: float, scale: float, fall: float, q: float) -> float:
    """The log integrand at x e^t, t = τ + 1 − e^{−τ}, less that at x; drift = (x−μ)/σ, scale = x/σ, fall = βx^q."""
    t = tau - math.expm1(-tau)
    step = scale * math.expm1(t)
    return -0.5 * step * (2.0 * drift + step) - fall * math.expm1(q * t) + t


@njit(**INNER, error_model="numpy")
def _edge(start: float, step: float, drift: float, scale: float, fall: float, q: float) -> float:
    """A place beyond `start`, in the direction of `step`, where the integrand has dropped out."""
    while _relative(start + step, drift, scale, fall, q) > -_DROP:
        step *= 2.0
    short = 0.5 * step
    for _ in range(4):
        middle = 0.5 * (short + step)
        if _relative(start + middle, drift, scale, fall, q) > -_DROP:
            short = middle
        else:
            step = middle
    return start + step


@njit(**INNER, error_model="numpy")
def _place(t: float) -> float:
    """τ with τ + 1 − e^{−τ} = t: Newton's method from the left, where it climbs."""
    tau = t - 1.0 if t >= 0.0 else -math.log1p(-t)
    for _ in range(8):
        tau += (t - tau + math.expm1(-tau)) / (1.0 + math.exp(-tau))
    return tau


@njit(**INNER, error_model="numpy")
def _half_line(mu: float, sd: float, b: float, q: float) -> tuple[float, float, float]:
    """log ∫_0^∞ e^{−(x−μ)²/2σ² − βx^q} dx, and the mean of x − μ and the variance of x under that density."""
    left, right = _peaks(mu, sd, b, q)
    f_left, f_right = _log_integrand(left, mu, sd, b, q), _log_integrand(right, mu, sd, b, q)
    x, f = (left, f_left) if f_left >= f_right else (right, f_right)
    if f_left < f - _DROP:
        left = right
    if f_right < f - _DROP:
        right = left
    # −d²/du² of the log integrand is xG′, and du/dτ = 1 + e^{−τ}
    first, last = _place(math.log(left / x)), _place(math.log(right / x))
    w_first = 1.0 / math.sqrt(left * _slope(left, mu, sd, b, q)) / (1.0 + math.exp(-first))
    w_last = 1.0 / math.sqrt(right * _slope(right, mu, sd, b, q)) / (1.0 + math.exp(-last))
    h = min(0.15 / max(2.0, q), 0.42 * min(w_first, w_last))
    drift, scale, fall = (x - mu) / sd, x / sd, b * x**q
    start = _edge(first, -w_first, drift, scale, fall, q)
    stop = _edge(last, w_last, drift, scale, fall, q)
    steps = (stop - start) / h
    if not steps < 1e6:
        return np.nan, np.nan, np.nan
    s0, s1, s2 = 0.0, 0.0, 0.0
    for i in range(int(steps) + 2):
        tau = start + i * h
        e = math.expm1(tau - math.expm1(-tau))
        w = math.exp(_relative(tau, drift, scale, fall, q)) * (1.0 + math.exp(-tau))
        s0 += w
        s1 += w * e
        s2 += w * e * e
    e = s1 / s0
    return f + math.log(h * s0), (x - mu) + x * e, x * x * max(s2 / s0 - e * e, 0.0)


@njit(**INNER, error_model="numpy")
def _narrow(mu: float, sd: float, b: float, q: float) -> tuple[float, float, float]:
    """log Z, mean − μ and variance where σ ≪ |μ|: the factor is a parabola over such a width."""
    if mu == 0.0:
        return 0.0, 0.0, 0.0
    fall, ratio = b * abs(mu) ** q, sd / mu
    # in units of σ: slope −βq|μ|^q σ/μ, curvature −βq(q−1)|μ|^q (σ/μ)²
    slope, t = -fall * q * ratio, 1.0 + fall * q * (q - 1.0) * ratio * ratio
    return -fall - 0.5 * math.log(t) + 0.5 * slope * slope / t, sd * slope / t, sd * sd / t


@njit(cache=True, nogil=True, error_model="numpy")
def _tilted(first: int, last: int, sites: Array, out: Array) -> None:
    for n in range(first, last):
        m, s, b, q = sites[0, n], sites[1, n], sites[2, n], sites[3, n]
        if s <= 1e-9 * abs(m):
            out[0, n], out[1, n], out[2, n] = _narrow(m, s, b, q)
            continue
        f_right, d_right, v_right = _half_line(m, s, b, q)
        f_left, d_left, v_left = _half_line(-m, s, b, q)
        f = max(f_right, f_left)
        w_right, w_left = math.exp(f_right - f), math.exp(f_left - f)
        total = w_right + w_left
        w_right, w_left = w_right / total, w_left / total
        out[0, n] = f + math.log(total) - math.log(s) - 0.5 * math.log(2.0 * math.pi)
        out[1, n] = w_right * d_right - w_left * d_left
        out[2, n] = w_right * v_right + w_left * v_left + w_right * w_left * (d_right + d_left) ** 2


def tilted_by_exponential(mu: Array, sd: Array, beta: Array, q: Array) -> tuple[Array, Array, Array]:
    """log Z, mean − mu and variance of N(x | mu, sd²) exp(−beta |x|^q) / Z, arrays of shape (sites,)."""
    # one array of one type, so that one version is compiled
    sites = np.array(np.broadcast_arrays(mu, sd, beta, q), dtype=float)
    out = np.empty((3, sites.shape[1]))
    share_out(_tilted, sites.shape[1], TILTED, sites, out)
    return out[0], out[1], out[2]


# --- Absolute moments ⟨|x|^q⟩ of a Gaussian for any real q > 0, with their derivatives.
#
# ⟨|x|^q⟩ = σ^q 2^{q/2} Γ((q+1)/2)/√π · ₁F₁(−q/2; ½; −μ²/2σ²), and differentiating shifts the parameters of ₁F₁ by one.
# Far from zero, |μ| ≫ σ, the Taylor series of |x|^q about μ is shorter and keeps its accuracy as σ → 0.


_FAR = 10.0
_TERMS = 18


def absolute_moment(mu: Array, sd: Array, q: Array) -> tuple[Array, Array, Array]:
    """⟨|x|^q⟩ for x ~ N(mu, sd²) and its derivatives with respect to mu and sd², all arrays of one shape.

    At mu = sd = 0 a derivative that does not exist is given as zero. What overflows is not finite.

    Examples
    --------
    >>> [float(f[0]) for f in absolute_moment(np.ones(1), np.ones(1), np.full(1, 2.0))]
    [2.0, 2.0, 1.0]
    """
    out = np.empty((3, mu.size))
    far = np.abs(mu) >= (_FAR + q) * sd
    with np.errstate(over="ignore", invalid="ignore"):
        out[:, far] = _taylor(mu[far], sd[far], q[far])
        out[:, ~far] = _kummer(mu[~far], sd[~far], q[~far])
    return out[0], out[1], out[2]


def _kummer(mu: Array, sd: Array, q: Array) -> tuple[Array, Array, Array]:
    a = mu / sd
    z = -0.5 * a * a
    c = np.exp(0.5 * q * np.log(2.0) + gammaln(0.5 * (q + 1)) + q * np.log(sd)) / np.sqrt(np.pi)
    d_mean = c * q * a / sd * hyp1f1(1 - 0.5 * q, 1.5, z)
    return c * hyp1f1(-0.5 * q, 0.5, z), d_mean, 0.5 * c * q / sd / sd * hyp1f1(1 - 0.5 * q, 0.5, z)


def _taylor(mu: Array, sd: Array, q: Array) -> tuple[Array, Array, Array]:
    zero = mu == 0
    size = np.where(zero, 1.0, np.abs(mu))
    square = (sd / size) ** 2
    first = np.where(zero, 0.0, q * np.sign(mu) * size ** (q - 1)) * _even_terms(q - 1, square)
    second = np.where(zero & (q != 2), 0.0, 0.5 * q * (q - 1) * size ** (q - 2)) * _even_terms(q - 2, square)
    return np.where(zero, 0.0, size**q) * _even_terms(q, square), first, second


def _even_terms(p: Array, square: Array) -> Array:
    """⟨(1 + tz)^p⟩ = Σ_k p(p−1)…(p−2k+1)/(2^k k!) t^{2k}, t² ≪ 1."""
    total = term = np.ones_like(square)
    for k in range(1, _TERMS + int(np.max(p, initial=0.0)) // 2):
        term = term * (p - 2 * k + 2) * (p - 2 * k + 1) / (2 * k) * square
        total = total + term
    return total


class GeneralisedNormal(Potential):
    """φ(x) ∝ exp(−|r|^shape), r = (x − loc)/scale, normalised in x and in loc.

    Log-concave for shape ≥ 1, super-Gaussian for shape ≤ 2, with two continuous derivatives for shape ≥ 2. At
    x = loc a derivative that does not exist is given as zero.

    Parameters
    ----------
    shape : float or array_like of shape (sites,)
        The power, positive: 1 is `Laplace(loc, scale)`, 2 is `Gaussian(loc, scale/√2)`.
    loc : float or array_like of shape (sites,), default 0
        The observation, or the centre of a prior.
    scale : float or array_like of shape (sites,), default 1
        Distance at which the density has fallen by a factor e.

    Examples
    --------
    >>> GeneralisedNormal(shape=1.5).log_concave, GeneralisedNormal(shape=0.5).log_concave
    (True, False)
    """

    parameters = ("shape", "loc", "scale")
    arrays = ("shape", "loc", "scale")
    located = True
    free = MappingProxyType({"shape": Positive(low=0.3, high=4.0), "scale": Positive()})
    location_scale = True

    shape: Array
    loc: Array
    scale: Array

    def __init__(self, shape: ArrayLike, loc: ArrayLike = 0.0, scale: ArrayLike = 1.0) -> None:
        q = positive("shape", shape)
        self._store(
            shape=q,
            loc=finite("loc", loc),
            scale=positive("scale", scale),
            log_concave=bool(np.all(q >= 1)),
            super_gaussian=bool(np.all(q <= 2)),
            smooth=bool(np.all(q >= 2)),
        )

    def _standard(self, x: ArrayLike) -> Array:
        return (float_array("x", x) - self.loc) / self.scale

    def _log_normaliser(self) -> Array:
        # ∫ exp(−|r|^q) dx = 2 s Γ(1 + 1/q)
        return np.asarray(-np.log(2 * self.scale) - gammaln(1 + 1 / self.shape))

    def log_density(self, x: ArrayLike) -> Array:
        return self._log_normaliser() - np.abs(self._standard(x)) ** self.shape

    def derivatives(self, x: ArrayLike) -> Derivatives:
        q, s, r = self.shape, self.scale, self._standard(x)
        zero = r == 0
        size = np.where(zero, 1.0, np.abs(r))
        first = q * np.where(zero, 0.0, size ** (q - 1)) * np.sign(r)
        second = q * (q - 1) * np.where(zero & (q != 2), 0.0, size ** (q - 2))
        third = q * (q - 1) * (q - 2) * np.where(zero, 0.0, size ** (q - 3)) * np.sign(r)
        return Derivatives(-first / s, -second / s**2, -third / s**3)

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        s, q = self.scale, np.broadcast_to(self.shape, m.shape)
        moment, d_mean, d_var = absolute_moment(self._standard(m), np.sqrt(v) / s, q)
        refuse_overflow("|x − loc|^shape", m, v, moment, d_mean, d_var)
        return ExpectedLog(self._log_normaliser() - moment, -d_mean / s, -d_var / s**2)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        from latlin.potentials.generalised_normal import tilted_by_exponential

        s, q = self.scale, np.broadcast_to(self.shape, m.shape)
        log_z, shift, variance = tilted_by_exponential(self._standard(m), np.sqrt(v) / s, power, q)
        refuse_overflow("|x − loc|^shape", m, v, log_z, shift, variance)
        return TiltedMoments(power * self._log_normaliser() + log_z, m + s * shift, s**2 * variance)

    def _quadratic_bound(self, xi: Array) -> QuadraticBound:
        # |r|^q is concave in r²; a = q ξ^{q−2}/s^q, and the bound closes on the kink as ξ → 0
        q, loc = self.shape, self.loc
        xi = np.maximum(xi, 1e-100 * self.scale)
        fall = (xi / self.scale) ** q
        a = q * fall / xi**2
        return QuadraticBound(a, a * loc, self._log_normaliser() - fall + 0.5 * a * (xi - loc) * (xi + loc))

    def _noise_moments(self) -> tuple[Array, Array]:
        # ⟨r²⟩ = Γ(3/q)/Γ(1/q)
        spread = self.scale**2 * np.exp(gammaln(3 / self.shape) - gammaln(1 / self.shape))
        return np.zeros_like(spread), spread

    def _noise_cdf(self, r: Array) -> Array:
        q = self.shape
        size = np.abs(r / self.scale) ** q
        return np.where(r < 0, 0.5 * gammaincc(1 / q, size), 0.5 + 0.5 * gammainc(1 / q, size))

    def _noise_sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        # |r|^q is Gamma(1/q, 1)
        size = rng.standard_gamma(1 / self.shape, size=shape) ** (1 / self.shape)
        return np.asarray(self.scale * size * rng.choice([-1.0, 1.0], size=shape))
