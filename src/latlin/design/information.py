"""What an answer is expected to tell: the mutual information of an observation y and its projection x ~ N(m, s²).

    I(y; x) = ∑_y ∫ N(x | m, s²) p(y | x) log p(y | x) dx − ∑_y p(y) log p(y),   p(y) = ∫ N(x | m, s²) p(y | x) dx,

with an integral over y where it is a real number. For Gaussian noise it is ½ log(1 + s²/ν²).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logit, xlogy

from latlin.numerics import quadrature
from latlin.numerics.arrays import Array
from latlin.potentials.base import Potential
from latlin.potentials.predictive import ClassPredictive, ContinuousPredictive, CountPredictive

#: probability of the outcomes that are left out at either end, and the most that may be missing in all
TAIL, MISSING = 1e-9, 1e-6
#: values of a real answer at which its density is taken
VALUES = 400
#: most counts that are summed over one by one
MOST_COUNTS = 20_000


def expected_information(likelihood: Potential, mean: Array, variance: Array) -> Array:
    """I(y; x) in nat, for answers of the family of `likelihood` (whose own observations play no role)."""
    mean, variance = np.broadcast_arrays(np.asarray(mean, float), np.asarray(variance, float))
    outcomes, log_widths = _outcomes(likelihood, mean, variance)
    inner, outer, mass = np.zeros_like(mean), np.zeros_like(mean), np.zeros_like(mean)
    for y, log_width in zip(outcomes, log_widths, strict=True):
        block = likelihood.observe(y)
        x, _, weights = quadrature.gaussian_nodes(mean, np.sqrt(variance), block.regions())
        # densities of real answers times their widths are probabilities; the widths cancel in the difference
        log_p = block.log_density(x) + log_width
        p = np.exp(log_p)
        inner += np.einsum("ks,ks->s", weights, xlogy(p, p))
        total = np.einsum("ks,ks->s", weights, p)
        outer += xlogy(total, total)
        mass += total
    if np.any(np.abs(mass - 1.0) > MISSING):
        raise _refusal(likelihood)
    return np.maximum(inner - outer, 0.0)


def _refusal(likelihood: Potential) -> ValueError:
    return ValueError(
        "likelihood must be a family whose answers are classes, counts or numbers with a density that can be summed or "
        f"integrated over, got {likelihood!r}"
    )


def equivalent_noise(gain: Array, variance: Array) -> Array:
    """The variance of Gaussian noise under which an answer would tell as much: ½ log(1 + s²/ν²) = I."""
    return variance / np.maximum(np.expm1(2.0 * gain), np.finfo(float).tiny)


def _outcomes(likelihood: Potential, mean: Array, variance: Array) -> tuple[Any, Any]:
    """Values of the answers, each one number per row, and the logs of their widths."""
    predictive = likelihood.predictive(mean, variance)
    if isinstance(predictive, ClassPredictive):
        classes = predictive.probabilities.shape[-1]
        return [np.full(mean.shape, float(k)) for k in range(classes)], np.zeros((classes, 1))
    if isinstance(predictive, CountPredictive):
        last = int(predictive.quantile(np.full(mean.shape, 1.0 - TAIL)).max(initial=0.0))
        if last > MOST_COUNTS:
            raise ValueError(f"likelihood has likely counts of up to {last}; at most {MOST_COUNTS} can be summed over")
        return [np.full(mean.shape, float(k)) for k in range(last + 1)], np.zeros((last + 1, 1))
    if not isinstance(predictive, ContinuousPredictive):
        raise _refusal(likelihood)
    support = predictive._support
    ends = [predictive.quantile(np.full(mean.shape, q)) for q in (TAIL, 1.0 - TAIL)]
    inverse = {(-np.inf, np.inf): np.asarray, (0.0, np.inf): np.log, (0.0, 1.0): logit}[support.low, support.high]
    with np.errstate(divide="ignore"):
        low, high = (inverse(end) for end in ends)
    if not np.all(np.isfinite(low) & np.isfinite(high)):
        # some answers have a probability of their own, such as amounts of zero
        raise _refusal(likelihood)
    # the trapezoid rule in the coordinate in which y is any real number
    t = low + np.linspace(0.0, 1.0, VALUES)[:, None] * (high - low)
    log_width = np.log(np.maximum((high - low) / (VALUES - 1), np.finfo(float).tiny))
    return support.place(t), support.log_slope(t) + log_width
