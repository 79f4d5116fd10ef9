"""Gradients of the bound, and what each way to estimate them costs.

`compare_estimators` measures the bias, the variance and the time of every estimator against the exact gradient of the
same mixture at the same point, in the free coordinates (log α, m, log-Cholesky of C) that the algorithms climb in.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from latlin.mixture.climbs import ESTIMATES, EuclideanClimb, Options
from latlin.mixture.fixed import FreeVector, Gradient, RootBelief, require_known_covariance
from latlin.mixture.model import Mixture
from latlin.mixture.monte_carlo import (
    CovarianceGradient,
    Draws,
    NaturalGradient,
    draw,
    entropy_gradient,
    exact_gradient,
    importance_bound,
    importance_gradient,
    in_root,
    label_cost_gradient,
    natural_gradient,
    path_gradient,
    relaxed_labels,
    relaxed_labels_pullback,
    score_gradient,
)
from latlin.mixture.schedules import Constant
from latlin.mixture.sweep import CompleteRows
from latlin.numerics.linalg import Array
from latlin.numerics.rng import RandomState, generator

__all__ = [
    "CovarianceGradient",
    "Draws",
    "EstimatorTable",
    "FreeVector",
    "Gradient",
    "NaturalGradient",
    "RootBelief",
    "compare_estimators",
    "draw",
    "entropy_gradient",
    "exact_gradient",
    "importance_bound",
    "importance_gradient",
    "in_root",
    "label_cost_gradient",
    "natural_gradient",
    "path_gradient",
    "relaxed_labels",
    "relaxed_labels_pullback",
    "score_gradient",
]


class EstimatorRow(NamedTuple):
    """One estimator against the exact gradient g."""

    name: str
    bias: float  # ‖mean − g‖/‖g‖
    bias_noise: float  # what that ratio would be from noise alone, were the bias zero
    variance: float  # trace of the covariance of one estimate, over ‖g‖²
    seconds: float  # of one estimate
    cost: float  # variance × seconds: what a given accuracy costs


class EstimatorTable(tuple[EstimatorRow, ...]):
    """Rows of `compare_estimators`; prints as a Markdown table."""

    def __str__(self) -> str:
        head = "| estimator | bias | bias from noise | variance | µs | variance × s |\n|---|---|---|---|---|---|"
        lines = (
            f"| {row.name} | {row.bias:.2g} | {row.bias_noise:.2g} | {row.variance:.2g} "
            f"| {1e6 * row.seconds:.0f} | {row.cost:.2g} |"
            for row in self
        )
        return "\n".join([head, *lines])

    __repr__ = __str__


def compare_estimators(
    mixture: Mixture,
    data: CompleteRows,
    point: RootBelief,
    *,
    repeats: int = 400,
    batch_sizes: tuple[int, ...] = (10, 100),
    n_draws: tuple[int, ...] = (1, 10),
    temperature: float = 0.5,
    random_state: RandomState = None,
) -> EstimatorTable:
    """Bias, variance and cost of every gradient estimator at one point.

    Parameters
    ----------
    mixture : Mixture
        With covariance "fixed" and Dirichlet weights (`estimator.mixture_`).
    data : Rows
    point : RootBelief
        Where; `RootBelief.of(belief)`.
    repeats : int
        Independent estimates of each kind.
    batch_sizes, n_draws : tuple of int
        Mini-batch sizes, and Monte Carlo draws per estimate.
    temperature : float
        Of the Gumbel-softmax relaxation.

    Notes
    -----
    The importance-weighted gradient is that of another, tighter bound: its "bias" is the difference of the two.
    """
    bench = _Bench.of(mixture, data, point, repeats, temperature, generator(random_state))
    measure = bench.measure
    rows = [measure(f"mini-batch, S = {s}", "sgd", batch_size=s) for s in batch_sizes if s <= len(data)]
    rows += [measure(f"score, plain, L = {l}", "score", n_draws=l) for l in n_draws]
    for variate in ("baseline", "regression"):
        rows += [
            measure(f"score, {variate}, L = {l}", "score", n_draws=l, control_variate=variate) for l in n_draws if l > 1
        ]
    rows += [measure(f"pathwise, L = {l}", "pathwise", n_draws=l) for l in n_draws]
    rows += [measure(f"pathwise, Gumbel labels, τ = {temperature:g}", "pathwise", labels="gumbel")]
    rows += [measure(f"importance-weighted, L = {l}", "iwae", n_draws=l) for l in n_draws]
    return EstimatorTable(rows)


class _Bench(NamedTuple):
    """A point at which estimators are asked, and the exact gradient there."""

    mixture: Mixture
    data: CompleteRows
    point: RootBelief
    repeats: int
    temperature: float
    rng: np.random.Generator
    coordinates: FreeVector
    target: Any
    exact: Array

    @classmethod
    def of(
        cls,
        mixture: Mixture,
        data: CompleteRows,
        point: RootBelief,
        repeats: int,
        temperature: float,
        rng: np.random.Generator,
    ) -> _Bench:
        coordinates = FreeVector.of(require_known_covariance(mixture), len(point.alpha))
        target = mixture.evaluate(data, point.belief()).moments
        exact = coordinates.pull_back(point, in_root(exact_gradient(mixture, point, target), point))
        return cls(mixture, data, point, repeats, temperature, rng, coordinates, target, exact)

    def measure(self, name: str, algorithm: str, **changes: Any) -> EstimatorRow:
        """One row, by an algorithm whose options are changed."""
        defaults: dict[str, Any] = {
            "step": Constant(),
            "batch_size": len(self.data),
            "n_draws": 1,
            "control_variate": None,
            "labels": "exact",
            "temperature": self.temperature,
            "updates": 1,
        }
        options = Options(**(defaults | changes))
        climb = EuclideanClimb(self.mixture, self.data, options, self.rng, ESTIMATES[algorithm], noisy=True)

        def estimate() -> Array:
            return self.coordinates.pull_back(self.point, ESTIMATES[algorithm](climb, self.point, self.target))

        return _row(name, self.exact, estimate, self.repeats)


def _row(name: str, exact: Array, estimate: Callable[[], Array], repeats: int) -> EstimatorRow:
    estimate()
    started = time.perf_counter()
    estimates = np.stack([estimate() for _ in range(repeats)])
    seconds = (time.perf_counter() - started) / repeats
    size = np.linalg.norm(exact)
    variance = float(estimates.var(axis=0, ddof=1).sum() / size**2)
    bias = float(np.linalg.norm(estimates.mean(axis=0) - exact) / size)
    return EstimatorRow(name, bias, float(np.sqrt(variance / repeats)), variance, seconds, variance * seconds)
