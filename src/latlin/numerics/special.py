"""Special functions that stay finite and accurate in the tails.

Everything is in log space or uses the scaled complementary error function, erfcx(x) = exp(x²) erfc(x), so
that no ratio of two underflowing numbers is ever formed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from latlin.numerics.arrays import Array

LOG_SQRT_2PI = 0.5 * float(np.log(2.0 * np.pi))
#: numbers from which a compiled loop is worth its start
LONG = 2**16
SQRT_2 = float(np.sqrt(2.0))
SQRT_2_OVER_PI = float(np.sqrt(2.0 / np.pi))


def log_sigmoid(x: ArrayLike) -> Array:
    """log σ(x) = min(x, 0) − log(1 + e^{−|x|}).

    >>> log_sigmoid([-800.0, 0.0, 800.0]).round(4).tolist()
    [-800.0, -0.6931, 0.0]
    """
    x = np.asarray(x, dtype=float)
    if x.size >= LONG and np.all(np.isfinite(x)):
        from latlin.numerics.exp_kernels import log_sigmoid_values  # loads the compiler: when first needed

        return log_sigmoid_values(np.ascontiguousarray(x).ravel()).reshape(x.shape)
    return np.asarray(np.minimum(x, 0.0) - np.log1p(np.exp(-np.abs(x))))


def log_normal(z: ArrayLike) -> Array:
    """log N(z | 0, 1)."""
    z = np.asarray(z, dtype=float)
    return np.asarray(-0.5 * z * z - LOG_SQRT_2PI)


def log_ndtr(x: ArrayLike) -> Array:
    """log Φ(x) with full relative accuracy in both tails.

    >>> float(log_ndtr(-50.0).round(6))
    -1254.831361
    """
    x = np.asarray(x, dtype=float)
    # Φ(x) = ½ erfcx(−x/√2) e^{−x²/2} on the left, 1 − Φ(−x) on the right
    left = np.minimum(x, 0.0)
    with np.errstate(under="ignore", over="ignore"):
        return np.asarray(
            np.where(
                x < 0,
                np.log(0.5 * special.erfcx(-left / SQRT_2)) - 0.5 * left * left,
                np.log1p(-special.ndtr(-np.maximum(x, 0.0))),
            )
        )


def normal_ratio(x: ArrayLike) -> Array:
    """N(x)/Φ(x), the derivative of log Φ; grows like −x on the left and falls to 0 on the right.

    >>> float(normal_ratio(-50.0).round(6))
    50.019984
    """
    x = np.asarray(x, dtype=float)
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(SQRT_2_OVER_PI / special.erfcx(-x / SQRT_2))


def log1mexp(x: ArrayLike) -> Array:
    """log(1 − e^{−x}) for x > 0.

    >>> log1mexp([1e-20, 50.0]).round(3).tolist()
    [-46.052, -0.0]
    """
    x = np.asarray(x, dtype=float)
    small = x < np.log(2.0)
    with np.errstate(divide="ignore"):
        return np.asarray(
            np.where(
                small,
                np.log(-np.expm1(-np.where(small, x, 0.5))),
                np.log1p(-np.exp(-np.where(small, 1.0, x))),
            )
        )
