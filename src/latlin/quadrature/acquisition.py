"""Where to evaluate next: scores of candidate points, and a greedy choice of several.

"uncertainty" is (7.18) of Gutteridge (2021), argmax Var[f(x)] p(x)²; "integral-variance" is (7.17), the
point after which the integral's variance is smallest; "ucb" is λ f̄(x) + Var f(x) of §7.3.4, both terms weighted
with the density as in (7.18). Choosing a point changes the covariance at once, so the points of a batch avoid each
other; what is not known yet is taken to be as predicted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.stats import qmc

from latlin.numerics.arrays import Array
from latlin.quadrature.belief import Belief
from latlin.quadrature.standard import Standard

GLOBAL, LOCAL = 512, 32  # candidates over the measure; and around each of the best of them
CENTRES = 8


class Candidates(NamedTuple):
    """What a score may look at; one number a candidate."""

    density: Array  # p(x), relative to its largest
    mean: Array  # of f
    amplitude: Array  # ∂f/∂process
    variance: Array  # of the process
    link: Array  # covariance of the process with the integral
    noise: float  # variance of an evaluation given the process


Score = Callable[[Candidates], Array]


def uncertainty(c: Candidates) -> Array:
    """Var[f(x)] p(x)²."""
    return (c.amplitude * c.density) ** 2 * c.variance


def integral_variance(c: Candidates) -> Array:
    """By how much an evaluation lowers the variance of the integral: Cov(g, Z)² / Var(y)."""
    return c.link**2 / (c.variance + c.noise)


def ucb(weight: float) -> Score:
    """λ f̄(x) p(x) + Var[f(x)] p(x)², each relative to its largest: the same whatever the units of f, and as
    curious late in the design, when the variances are small, as early."""

    def score(c: Candidates) -> Array:
        value, variance = c.mean * c.density, uncertainty(c)
        return weight * _relative(value) + _relative(variance)

    return score


def _relative(a: Array) -> Array:
    largest = float(np.abs(a).max())
    return a / largest if largest > 0.0 else a


def resolve_score(acquisition: str, ucb_weight: float) -> Score:
    """The score of this name."""
    scores = {"uncertainty": uncertainty, "integral-variance": integral_variance, "ucb": ucb(ucb_weight)}
    if acquisition not in scores:
        raise ValueError(f"acquisition must be one of {sorted(scores)}, got {acquisition!r}")
    return scores[acquisition]


def spread(measure: Standard, n: int, rng: np.random.Generator) -> Array:
    """n low-discrepancy points of the measure."""
    size = 1 << max(n - 1, 0).bit_length()
    return measure.place(_inside(qmc.Sobol(measure.dim + 1, seed=rng).random(size)[:n]))


def choose(belief: Belief, score: Score, measure: Standard, count: int, rng: np.random.Generator) -> Array:
    """`count` points to evaluate next, of shape (count, d)."""
    wide = spread(measure.broaden(2.0), GLOBAL, rng)
    best = np.argsort(score(_describe(belief, measure, wide)))[-CENTRES:]
    steps = 0.3 * belief.process.lengths * rng.standard_normal((CENTRES, LOCAL, measure.dim))
    near = measure.clip((wide[best][:, None] + steps).reshape(-1, measure.dim))
    return _greedy(belief, score, measure, np.vstack([wide, near]), count)


def _inside(u: Array) -> Array:
    return np.clip(u, 1e-9, 1.0 - 1e-9)


def _describe(belief: Belief, measure: Standard, z: Array) -> Candidates:
    log_density = measure.logpdf(z)
    process = belief.process
    return Candidates(
        np.exp(log_density - log_density.max()),
        belief.mean(z),
        belief.amplitude(z),
        process.variances(z),
        belief.link(z),
        process.variance * process.nugget,
    )


def _greedy(belief: Belief, score: Score, measure: Standard, z: Array, count: int) -> Array:
    process = belief.process
    candidates = _describe(belief, measure, z)
    known, unknown = process.explained(z)
    chosen: list[int] = []
    past = np.empty((count, len(z)))  # columns of the covariance that earlier choices explain
    for step in range(count):
        values = score(candidates)
        values[chosen] = -np.inf
        best = int(np.argmax(values))
        chosen.append(best)
        # C(·,x*) now: v(k − GᵀG* + BᵀB*) less what the earlier choices explain
        prior = process.kernel.gram(z, z[best : best + 1], process.lengths)[:, 0]
        column = process.variance * (prior - known[:, best] @ known + unknown[:, best] @ unknown)
        column -= past[:step, best] @ past[:step]
        root = np.sqrt(max(column[best], 0.0) + candidates.noise)
        past[step] = column / root if root > 0.0 else 0.0
        candidates = candidates._replace(
            variance=np.maximum(candidates.variance - past[step] ** 2, 0.0),
            link=candidates.link - past[step] * (candidates.link[best] / root if root > 0.0 else 0.0),
        )
    return z[chosen]
