"""What Student's t and the Cauchy share: ψ(x) = c − β log(1 + r²) with r = (x − centre)/width."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latlin.potentials.base import Array, Derivatives, ExpectedLog, QuadraticBound, TiltedMoments
from latlin.potentials.checks import refuse_overflow


class PowerTail(NamedTuple):
    """Sites with tails |x|^{−2β}, each field a scalar or one number per site.

    The expectations are compiled; `latlin.potentials.kernels.student` says how they are taken.
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
