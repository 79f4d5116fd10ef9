"""What potentials answer, each an array over sites."""

from __future__ import annotations

from typing import NamedTuple

from latlin.numerics.arrays import Array


class ExpectedLog(NamedTuple):
    """⟨ψ(x)⟩ under N(x | mean, var) and its derivatives, each an array over sites."""

    value: Array
    d_mean: Array
    d_var: Array


class TiltedMoments(NamedTuple):
    """log Z, mean and variance of N(x | mean, var) φ(x)^power / Z."""

    log_z: Array
    mean: Array
    variance: Array


class Derivatives(NamedTuple):
    """ψ′(x), ψ″(x), ψ‴(x)."""

    first: Array
    second: Array
    third: Array


class QuadraticBound(NamedTuple):
    """Coefficients of ψ(x) ≥ −½ a x² + b x + c, tight at x = ±ξ (up to the site's own shift)."""

    a: Array
    b: Array
    c: Array
