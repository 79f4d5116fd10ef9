"""What binomial and negative binomial counts and logistic survival times share: powers of σ and of 1 − σ.

ψ(x) = c + a log σ(t) + b log σ(−t) with t = rate·x + shift. The expected log is that of logistic regression; with a + b
= n it needs ⟨log σ⟩ once, on the side where it is small: ψ = c + n log σ(t) − b t = c + n log σ(−t) + a t.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit

from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.special import log_sigmoid
from latlin.potentials.base import Derivatives, ExpectedLog, Potential, QuadraticBound, TiltedMoments

TINY = 1e-300
#: sites up to which a compiled loop is not worth a compiler, such as that of a family's description
FEW = 4


class Sigmoids(NamedTuple):
    """Sites with the exponents `up` of σ(t) and `down` of σ(−t), each field a scalar or one number per site."""

    constant: Array
    up: Array
    down: Array
    shift: Array
    rate: Array

    def place(self, x: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.clip(self.rate * x + self.shift, -1e305, 1e305)

    def log_density(self, x: Array) -> Array:
        """ψ alone; with its derivatives from the same exponentials, see `expansion`."""
        t = self.place(x)
        # on either side the large part is a line: log σ(−|t|) = log σ(|t|) − |t|
        line = np.where(t < 0, self.up, self.down) * np.abs(t)
        with np.errstate(over="ignore"):
            return np.asarray(self.constant + (self.up + self.down) * log_sigmoid(np.abs(t)) - line)

    def derivatives(self, x: Array) -> Derivatives:
        return Derivatives(*self.expansion(x)[1:])

    def expansion(self, x: Array) -> tuple[Array, Array, Array, Array]:
        """ψ and its three derivatives, from one exponential per site."""
        shape = np.broadcast_shapes(x.shape, *(np.shape(part) for part in self))
        if np.prod(shape) <= FEW:
            t, n = self.place(x), self.up + self.down
            p, q = expit(t), expit(-t)
            parts = self.log_density(x), self.up * q - self.down * p, -n * p * q, n * p * q * (p - q)
            value, first, second, third = np.array(np.broadcast_arrays(*parts))
        else:
            from latlin.potentials.kernels.sites import sigmoid_powers  # loads the compiler: when first needed

            # copies: to compiled loops what may not be written to is of a type of its own
            rows = [np.array(np.broadcast_to(part, shape), order="C").ravel() for part in (self.place(x), *self[:3])]
            value, first, second, third = sigmoid_powers(*rows).reshape(4, *shape)
        if np.all(self.rate == 1.0):
            return value, first, second, third
        return value, self.rate * first, self.rate**2 * second, self.rate**3 * third

    def expected_log(self, m: Array, v: Array) -> ExpectedLog:
        from latlin.potentials.kernels.sites import log_sigmoid_expectations  # loads the compiler: when first needed

        t, n = self.place(m), self.up + self.down
        sign, line = np.where(t < 0, -1.0, 1.0), np.where(t < 0, self.up, self.down)
        value, slope, bend = log_sigmoid_expectations(np.abs(t), np.minimum(self.rate**2 * v, 1e305))
        return ExpectedLog(
            self.constant + n * value - line * np.abs(t), self.rate * sign * (n * slope - line), self.rate**2 * n * bend
        )

    def tilted_moments(self, block: Potential, m: Array, v: Array, power: Array) -> TiltedMoments:
        """About the mode by compiled equidistant nodes; by the panels of `block` where that takes too many."""
        from latlin.potentials.kernels.mode_tilt import SIGMOID, sigmoid_modes, tilt_about_mode  # as above

        if not m.size:
            return TiltedMoments(m, m, m)
        up, down, shift, rate = (np.array(np.broadcast_to(part, m.shape)) for part in self[1:])
        up, down = power * up, power * down
        mode = np.where(v > 0, sigmoid_modes(m, v, up, down, shift, rate), m)
        spread = np.maximum(v, TINY)
        t = self.place(mode)
        p, q, n = expit(t), expit(-t), up + down
        width = 1.0 / np.sqrt(1.0 / spread + rate**2 * n * p * q)
        away = (mode - m) / np.sqrt(spread)
        residue = rate * (up * q - down * p) - (mode - m) / spread
        residue = np.where(np.abs(residue) * width < 0.1, residue, 0.0)
        sites = np.stack([n, rate, p, q], axis=-1)
        log_sum, move, variance = tilt_about_mode(SIGMOID, spread, width, residue, sites)
        with np.errstate(over="ignore"):
            log_z = power * self.log_density(mode) + log_sum - 0.5 * (away * away + LOG_2PI + np.log(spread))
        point = v == 0
        out = np.array([np.where(point, power * self.log_density(m), log_z), mode + move, variance])
        out[1, point], out[2, point] = m[point], 0.0
        wide = np.flatnonzero(np.isnan(log_sum) & ~point)
        if wide.size:
            out[:, wide] = Potential._tilted_moments(block.select(wide), m[wide], v[wide], power[wide])
        return TiltedMoments(*out)

    def quadratic_bound(self, xi: Array) -> QuadraticBound:
        """Of Jaakkola and Jordan, about the x where t = 0.

        log σ(t) ≥ ½t + log σ(τ) − ½τ − ½λ(t² − τ²) with λ = tanh(½τ)/(2τ), equal at t = ±τ, τ = |rate|ξ.
        """
        half, n = 0.5 * np.abs(self.rate) * xi, self.up + self.down
        curvature = 0.25 * np.where(half > 1e-4, np.tanh(half) / np.maximum(half, 1e-4), 1 - half**2 / 3)
        a, slope, centre = (
            n * curvature * self.rate**2,
            0.5 * self.rate * (self.up - self.down),
            -self.shift / self.rate,
        )
        top = self.constant + n * (log_sigmoid(2 * half) - half) - slope * centre
        return QuadraticBound(a, slope + a * centre, top + 0.5 * a * (xi - centre) * (xi + centre))
