"""The evidence of a linear model with Gaussian noise, for every prior scale and noise scale at once.

With Z = W^{½} X / spread, a = W^{½} 1 and c = W^{½}(y − offset − b₀), the observations have covariance

    M + τ² aaᵀ,   M = s² ZZᵀ + σ² I

and one singular value decomposition of Z turns M into numbers: each evaluation costs O(min(N, D)), and the intercept's
wide prior is a rank-one update. Challis (2013), §2.2.1 and (2.2.10).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import svd

from latlin.densities.precision import DiagonalWhitening
from latlin.distributed.blocks import Block, add
from latlin.inference.blocks import BlockModel, Reading, pieces
from latlin.inference.exact import Exact, conclude
from latlin.inference.forms.choice import sum_form
from latlin.inference.forms.prior import gaussian_part
from latlin.inference.forms.projections import whitened_projections
from latlin.inference.forms.sums import Sums
from latlin.inference.posterior import Posterior
from latlin.linear._problem import BlockRows, HeldRows, LinearProblem, Targets
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.linalg import dot, symmetrise


@dataclass(frozen=True)
class Spectrum:
    """What the evidence needs of the data, in the basis of the left singular vectors.

    Parameters
    ----------
    energy : ndarray of shape (r,)
        Squared singular values of Z.
    ones, response : ndarray of shape (r,)
        a and c in that basis.
    rest : ndarray of shape (2, 2)
        Inner products of a and c outside it.
    count, weight : float
        Number of observations, and the sum of their weights.
    wide : float
        τ², zero without an intercept.
    constant : float
        What the log evidence has beside that of Gaussian observations: −Σ weight log y for log-normal ones.
    """

    energy: Array
    ones: Array
    response: Array
    rest: Array
    count: int
    weight: float
    wide: float
    constant: float = 0.0

    def log_evidence(self, log_scale: float, log_noise: float) -> tuple[float, Array]:
        """log Z and its derivatives in log s and log σ."""
        s2, v = np.exp(2.0 * log_scale), np.exp(2.0 * log_noise)
        m = s2 * self.energy + v
        # of a and c: inner products under M⁻¹, and minus their derivatives in log s and log σ
        inner = self._inner(1.0 / m) + self.rest / v
        by_scale = 2.0 * s2 * self._inner(self.energy / m**2)
        by_noise = 2.0 * v * (self._inner(1.0 / m**2) + self.rest / v**2)
        outside = self.count - len(m)
        log_det = np.log(m).sum() + outside * np.log(v)
        d_det = np.array([2.0 * s2 * np.sum(self.energy / m), 2.0 * v * np.sum(1.0 / m) + 2.0 * outside])
        grown = 1.0 + self.wide * inner[0, 0]
        pull = self.wide * inner[0, 1] / grown
        # log det(M + τ²aaᵀ) = log det M + log(1 + τ²aᵀM⁻¹a); the quadratic form loses τ²(aᵀM⁻¹c)²/(1 + τ²aᵀM⁻¹a)
        square = inner[1, 1] - pull * inner[0, 1]
        slopes = np.stack([by_scale, by_noise])
        d_square = -(slopes[:, 1, 1] - 2.0 * pull * slopes[:, 0, 1] + pull**2 * slopes[:, 0, 0])
        d_grown = -self.wide * slopes[:, 0, 0] / grown
        # weights are exponents: ∏ N(y | x, σ²)^{w} has σ^{−Σw}, not σ^{−n}
        extra = self.weight - self.count
        value = -0.5 * (self.weight * np.log(2.0 * np.pi) + log_det + np.log(grown) + square) - extra * log_noise
        gradient = -0.5 * (d_det + d_grown + d_square) - np.array([0.0, extra])
        return float(value) + self.constant, gradient

    def _inner(self, weight: Array) -> Array:
        a, c = self.ones, self.response
        across = np.sum(weight * a * c)
        return np.array([[np.sum(weight * a * a), across], [across, np.sum(weight * c * c)]])


def spectrum(problem: LinearProblem, relative: Any = 1.0) -> Spectrum:
    """Decompose the rows of a problem once; prior scales are s times the `relative` ones."""
    if isinstance(problem.observed, BlockRows):
        return _spectrum_of_sums(problem, problem.observed, sum_squares(problem), relative)
    return _spectrum_of_rows(problem, problem.observed, relative)


def _spectrum_of_rows(problem: LinearProblem, observed: HeldRows, relative: Any) -> Spectrum:
    design, targets = problem.design, observed.targets
    rows = observed.rows[:, : design.n_features]
    dense = rows.toarray() if sparse.issparse(rows) else rows
    weight = np.ones(len(dense)) if targets.weight is None else targets.weight
    root = np.sqrt(weight)
    centre, width = problem.intercept if design.intercept else (0.0, 0.0)
    u, singular, _ = svd(root[:, None] * dense * (relative / design.spread), full_matrices=False)
    pair = np.stack([root, root * (_located(problem, targets) - centre)])
    inside = pair @ u
    outside = pair - inside @ u.T
    total, rest = float(weight.sum()), outside @ outside.T
    constant = -float(weight @ np.log(targets.response)) if problem.family.link == "log" else 0.0
    return Spectrum(singular**2, inside[0], inside[1], rest, len(dense), total, width**2, constant)


def _located(problem: LinearProblem, targets: Targets) -> Array:
    """Where the Gaussian noise puts the linear predictors: y, or its logarithm, less the offset."""
    y, offset = targets.response, targets.offset
    centre = np.log(y) if problem.family.link == "log" else y
    return centre if offset is None else centre - offset


class SquareSums(NamedTuple):
    """HᵀWH (both triangles), HᵀWt, tᵀWt with t = y − offset − Hμ, and the number of rows.

    They say all that the posterior and the evidence need, for every prior scale and noise scale (Challis (2013),
    §2.2.1). Sums of squares have half the digits of the rows: noise below 1e-7 of the response is not seen.
    """

    gram: Array
    response: Array
    square: float
    n_rows: int


def sum_squares(problem: LinearProblem) -> SquareSums:
    """The sums of a problem with Gaussian noise over blocks of rows: one pass."""
    model = problem.model(dict.fromkeys(("prior_scale", "scale"), 1.0))
    assert isinstance(model, BlockModel)
    gram, response, square = model.total(_square_sums, gaussian_part(model.own).mean)
    return SquareSums(symmetrise(gram), response, float(square), problem.observed.n_rows)


def _square_sums(block: Block, reading: Reading, mean: Array) -> tuple[Any, ...]:
    dim = len(mean)
    plain = DiagonalWhitening(np.ones(dim))
    total: tuple[Any, ...] = (np.zeros((dim, dim), order="F"), np.zeros(dim), 0.0)
    for observed in pieces(block, reading):
        sites, projections = observed.sites, whitened_projections(observed.rows, plain)
        t = np.asarray(observed.potential.loc) - sites.offset - observed.times(mean)  # type: ignore[attr-defined]
        part = (
            projections.gram(sites.weight),
            projections.transposed_times(sites.weight * t),
            dot(sites.weight * t, t),
        )
        total = add(total, part)
    return total


def _spectrum_of_sums(problem: LinearProblem, observed: BlockRows, data: SquareSums, relative: Any) -> Spectrum:
    """In the eigenvectors of ZᵀZ, Z = W^½X/spread."""
    design, weight = problem.design, observed.table.features.weight
    d, scale = design.n_features, relative / design.spread
    values, vectors = np.linalg.eigh(data.gram[:d, :d] * np.outer(scale * np.ones(d), scale))
    # what rounding has left of zero is not kept
    kept = np.flatnonzero(values > 10.0 * d * np.finfo(float).eps * values[-1])[-data.n_rows :]
    ones = data.gram[:d, d] if design.intercept else np.zeros(d)
    inside = np.stack([ones * scale, data.response[:d] * scale]) @ vectors[:, kept] / np.sqrt(values[kept])
    across = data.response[d] if design.intercept else 0.0
    total = np.array([[weight if design.intercept else 0.0, across], [across, data.square]])
    rest = total - inside @ inside.T
    rest[np.diag_indices(2)] = np.maximum(np.diagonal(rest), np.finfo(float).eps * np.diagonal(total))
    wide = problem.intercept[1] ** 2 if design.intercept else 0.0
    return Spectrum(values[kept], inside[0], inside[1], rest, data.n_rows, weight, wide)


def closed_form(problem: LinearProblem) -> tuple[Callable[[Any], Spectrum], Callable[[Mapping[str, Any]], Posterior]]:
    """The spectrum for relative prior scales and the posterior at hyperparameters; blocks are read once."""
    observed = problem.observed
    if isinstance(observed, HeldRows):
        return partial(spectrum, problem), lambda values: Exact().run(problem.model(values))
    data = sum_squares(problem)
    return partial(_spectrum_of_sums, problem, observed, data), partial(_conclude, problem, observed, data)


def _conclude(problem: LinearProblem, observed: BlockRows, data: SquareSums, values: Mapping[str, Any]) -> Posterior:
    """The posterior from the sums: Σψ, its slope L HᵀWt/σ² and its curvature L HᵀWH L/σ² at the prior mean."""
    started, model = time.perf_counter(), problem.model(values)
    form = sum_form(model)
    assert form is not None  # blocks have one
    variance, whitening = float(values["scale"]) ** 2, form.own.whitening
    # Σ weight log N(y | Hμ + offset, σ²)
    value = -0.5 * (observed.table.features.weight * (LOG_2PI + np.log(variance)) + data.square / variance)
    curvature = whitening.apply(whitening.apply(data.gram).T) / variance
    sums = Sums(float(value), whitening.apply(data.response) / variance, curvature)
    return conclude(model, form, sums, started)
