"""What counts, positive observations and survival times share: ψ(x) = c + b x − Σ_j w_j e^{κ_j x}, all w_j ≥ 0.

⟨e^{κx}⟩ = e^{κm + κ²v/2} under N(x|m, v), so that expectations are closed. ψ is concave, and its product with a
Gaussian is integrated about its mode, where what is large (up to 1e14 nat) has cancelled by hand. `Walled` sites add
something harmless to such a ψ.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import wrightomega

from latlin.numerics import quadrature
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.potentials.about_mode import exp_minus_linear, tilted_moments
from latlin.potentials.base import SITES_PER_PIECE, Derivatives, ExpectedLog, Potential, TiltedMoments
from latlin.potentials.checks import UnboundedExpectation
from latlin.potentials.predictive import POSITIVE, ContinuousPredictive

#: largest log of a finite number
LOG_MAX = float(np.log(np.finfo(float).max))
#: largest log mean of what is drawn
LOG_MOST = 320.0
TINY = 1e-300


class ExponentialTerm(NamedTuple):
    """w e^{κx}: the log of the weight (−∞ for a weight of zero) and the rate."""

    log_weight: Array
    rate: Array

    def at(self, x: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(self.log_weight + self.rate * x))


class Exponentials(NamedTuple):
    """Sites ψ(x) = constant + slope·x − Σ_j w_j e^{κ_j x}, each field a scalar or one number per site."""

    constant: Array
    slope: Array
    terms: tuple[ExponentialTerm, ...]
    peak: Array | None = None  # of one term whose ψ has a top: its value there, known without cancellation
    top: Array | None = None  # where that is, if known

    def log_density(self, x: Array) -> Array:
        if self.peak is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                plain = self.constant + self.slope * x - self.terms[0].at(x)
            return self._below_peak(x, np.zeros(()), plain)
        # the exponentials outgrow a line: where they overflow ψ is −∞
        with np.errstate(over="ignore", invalid="ignore"):
            fall = np.sum([term.at(x) for term in self.terms], axis=0)
            return np.where(np.isinf(fall), -np.inf, self.constant + self.slope * x - fall)

    def derivatives(self, x: Array) -> Derivatives:
        first, second, third = 0.0 * x + self.slope, np.zeros_like(x), np.zeros_like(x)
        with np.errstate(over="ignore"):
            for term in self.terms:
                value = term.rate * term.at(x)
                first = first - value
                second = second - term.rate * value
                third = third - term.rate**2 * value
        return Derivatives(first, second, third)

    def _below_peak(self, m: Array, v: Array, plain: Array) -> Array:
        """⟨ψ⟩ counted from the top of ψ, where what is large (up to 1e14 nat) has cancelled by hand.

        With κw e^{κx₀} = b, d = κ(m − x₀) and r = κ²v/2: ⟨ψ⟩ = ψ(x₀) − (b/κ)(e^{d + r} − 1 − d). Where ψ has no top,
        it is `plain`, the sum of its terms.
        """
        (term,) = self.terms
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            top = self.top
            if top is None:
                top = (np.log(self.slope / term.rate) - term.log_weight) / term.rate
            r, count = 0.5 * term.rate**2 * v, self.slope / term.rate
            fall = count * (exp_minus_linear(term.rate * (m - top) + r) + r)
            return np.where(count > 0.0, np.asarray(self.peak) - fall, plain)

    def expected_log(self, m: Array, v: Array) -> ExpectedLog:
        value, d_mean, d_var = self.constant + self.slope * m, 0.0 * m + self.slope, np.zeros_like(m)
        for term in self.terms:
            rate = expected_rate(m, v, term)
            value = value - rate
            d_mean = d_mean - term.rate * rate
            d_var = d_var - 0.5 * term.rate**2 * rate
        if self.peak is not None:
            value = self._below_peak(m, v, value)
        return ExpectedLog(value, d_mean, d_var)

    def tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        """About the mode by compiled equidistant nodes; by panels where the exponentials are a wall far away."""
        from latlin.potentials.kernels.mode_tilt import EXPONENTIALS, tilt_about_mode  # loads the compiler

        if not m.size:
            return TiltedMoments(m, m, m)
        mode = self._mode(m, v, power)
        spread = np.maximum(v, TINY)
        loads = [np.broadcast_to(power * term.at(mode), m.shape) for term in self.terms]
        rates = [np.broadcast_to(term.rate, m.shape) for term in self.terms]
        pairs = [part for pair in zip(loads, rates, strict=True) for part in pair]
        sites = np.stack([*pairs, *[np.zeros_like(m)] * (4 - len(pairs))], axis=-1)
        with np.errstate(over="ignore", invalid="ignore"):
            bend = np.sum([load * rate * rate for load, rate in zip(loads, rates, strict=True)], axis=0)
            width = 1.0 / np.sqrt(1.0 / spread + bend)
            away = (mode - m) / np.sqrt(spread)
            residue = power * self.derivatives(mode).first - (mode - m) / spread
        # a slope that is lost in rounding moves the top by less than a width
        residue = np.where(np.abs(residue) * width < 0.1, residue, 0.0)
        log_sum, shift, variance = tilt_about_mode(EXPONENTIALS, spread, width, residue, sites)
        log_sum = log_sum - 0.5 * (LOG_2PI + np.log(spread))
        wide = np.flatnonzero(np.isnan(log_sum) & np.isfinite(bend))
        for some in np.array_split(wide, -(-wide.size // SITES_PER_PIECE)) if wide.size else ():
            log_sum[some], shift[some], variance[some] = _by_panels(v[some], sites[some])
        # a wall so steep that nothing is left of it but the place where it stands
        steep = np.isinf(bend)
        log_sum, shift, variance = (
            np.where(steep, level, part) for level, part in ((-np.inf, log_sum), (0.0, shift), (0.0, variance))
        )
        point = v == 0
        with np.errstate(over="ignore"):
            log_z = power * self.log_density(mode) + np.where(point, 0.0, log_sum - 0.5 * away * away)
        return TiltedMoments(log_z, mode + np.where(point, 0.0, shift), np.where(point, 0.0, variance))

    def rest(self, x: Array, d: Array) -> Array:
        """ψ(x + d) − ψ(x) − ψ′(x) d without cancellation."""
        total = np.zeros(np.broadcast_shapes(x.shape, d.shape))
        for term in self.terms:
            load = term.at(x)
            with np.errstate(over="ignore", invalid="ignore"):
                total = total - np.where(load > 0, load * exp_minus_linear(term.rate * d), 0.0)
        return total

    def _mode(self, m: Array, v: Array, power: Array) -> Array:
        """Where N(x|m, v) φ(x)^power is largest."""
        ends = [balance(m, v, power * self.slope, power, term) for term in self.terms]
        if len(ends) == 1:
            return ends[0]
        # each term alone pushes too little on its own side: the mode lies between
        low, high = np.minimum(*ends), np.maximum(*ends)
        x = 0.5 * (low + high)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            last = np.full_like(x, np.inf)
            for _ in range(100):
                first, second, _ = self.derivatives(x)
                slope = power * v * first - (x - m)
                low, high = np.where(slope > 0, x, low), np.where(slope > 0, high, x)
                step = x + slope / (1.0 - power * v * second)
                # a step that is not half the last one does not converge fast: bisection
                inside = (step > low) & (step < high) & (np.abs(step - x) < 0.5 * last)
                new = np.where(inside, step, 0.5 * (low + high))
                last = np.where(inside, np.abs(new - x), np.inf)
                if np.all(np.abs(new - x) <= 1e-14 * np.abs(x)):
                    break
                x = new
        return np.asarray(x)


class Walled(NamedTuple):
    """Sites ψ = wall + rest: exponentials that may be very steep, and a rest with moderate derivatives."""

    wall: Exponentials
    rest: Potential

    def log_density(self, x: Array) -> Array:
        return self.wall.log_density(x) + self.rest.log_density(x)

    def derivatives(self, x: Array) -> Derivatives:
        parts = zip(self.wall.derivatives(x), self.rest.derivatives(x), strict=True)
        return Derivatives(*(wall + rest for wall, rest in parts))

    def expected_log(self, m: Array, v: Array) -> ExpectedLog:
        parts = zip(self.wall.expected_log(m, v), self.rest._expected_log(m, v), strict=True)
        return ExpectedLog(*(wall + rest for wall, rest in parts))

    def remainder(self, x: Array, d: Array) -> Array:
        """ψ(x + d) − ψ(x) − ψ′(x) d, the wall's part without cancellation."""
        return self.wall.rest(x, d) + self.rest._remainder(x, d)

    def tilted_moments(self, block: Potential, m: Array, v: Array, power: Array) -> TiltedMoments:
        """By panels about the mode; `block` is the potential of these sites."""
        return tilted_moments(block, m, v, power, self.wall._mode(m, v, power))


def balance(m: Array, v: Array, push: Array, power: Array, term: ExponentialTerm) -> Array:
    """The x with x = m + v (push − power·w κ e^{κx}), for w ≥ 0.

    With a = m + v·push, ω = v·power·w κ² e^{κx} is Wright's function of κa + log(v·power·w κ²).
    """
    a = m + v * push
    with np.errstate(divide="ignore", invalid="ignore"):
        log_load = np.log(v * power) + term.log_weight + 2.0 * np.log(np.abs(term.rate))
        some = np.broadcast_to(np.isfinite(log_load), a.shape)
        log_load = np.where(some, log_load, 0.0)
        omega = wrightomega(term.rate * a + log_load)
        u = np.where(omega > 1.0, np.log(np.maximum(omega, 1.0)) - log_load, term.rate * a - omega)
    return np.where(some, u / term.rate, a)


def expected_rate(m: Array, v: Array, term: ExponentialTerm) -> Array:
    """⟨w e^{κx}⟩ under N(x|m, v), or an error where it is too large for a number."""
    exponent = term.log_weight + term.rate * m + 0.5 * term.rate**2 * v
    if np.any(exponent > LOG_MAX):
        worst = int(np.argmax(exponent))
        raise UnboundedExpectation(
            f"the expected rate ⟨exp({np.broadcast_to(term.rate, m.shape)[worst]:g}·x)⟩ overflows at mean "
            f"{m[worst]:g}, var {v[worst]:g}; start nearer to the data or use a narrower prior"
        )
    return np.asarray(np.exp(exponent))


def log_link_predictive(
    block: Potential, m: Array, v: Array, shape: tuple[int, ...], dispersion: Array, power: Array | float
) -> ContinuousPredictive:
    """New positive observations with mean μ = e^x and variance dispersion·μ^power given x."""
    zero = np.zeros(())
    mean = expected_rate(m, v, ExponentialTerm(zero, np.ones(())))
    # var y = dispersion⟨μ^power⟩ + ⟨μ⟩²(e^v − 1)
    with np.errstate(over="ignore"):
        inside = dispersion * np.exp(power * m + 0.5 * np.asarray(power) ** 2 * v)
        return ContinuousPredictive(block, m, v, shape, mean, inside + mean * mean * np.expm1(v), POSITIVE)


def _by_panels(v: Array, sites: Array) -> tuple[Array, Array, Array]:
    """log ∫ N(d|0, v) exp(−Σ load (e^{κd} − 1 − κd)) dd with mean and variance of d, by panels."""
    load, rate, other_load, other_rate = sites.T

    def log_f(d: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            fall = np.where(load > 0, load * exp_minus_linear(rate * d), 0.0)
            return -fall - np.where(other_load > 0, other_load * exp_minus_linear(other_rate * d), 0.0)

    regions = []
    for size, speed in ((load, rate), (other_load, other_rate)):
        if np.any(size > 0):
            # the integrand bends at d = 0 and where e^{κd} makes up for a small load
            width = 1.0 / np.where(speed == 0, 1.0, speed)
            knee = width * np.maximum(0.0, -np.log(np.maximum(size, TINY)))
            regions += [(np.zeros(()), np.abs(width)), (knee, np.abs(width))]
    s = np.sqrt(v)
    log_sum, shift, spread = quadrature.moments(
        *quadrature.tilted_nodes(log_f, np.zeros_like(v), s, regions or [(0.0, s)], True)
    )
    return log_sum, s * shift, v * spread


def exponential_form(potential: Potential) -> Exponentials | None:
    """ψ = c + bx − Σwe^{κx} of a family that has this form (Poisson, gamma); None of others."""
    form = potential._form() if hasattr(potential, "_form") else None
    return form if isinstance(form, Exponentials) else None
