"""Linear models with Gaussian noise over blocks of rows, in closed form, from one pass.

With t = y − offset − Hμ the sums HᵀWH, HᵀWt and tᵀWt say all that the posterior and the evidence need, for every prior
scale and noise scale (Challis (2013), §2.2.1). Sums of squares have half the digits of the rows: noise below 1e-7
of the response is not seen.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import PrecisionCovariance
from latlin.densities.whitening import DiagonalWhitening
from latlin.distributed.blocks import Block, add
from latlin.inference.block_model import Reading, pieces
from latlin.inference.forms.gaussian_part import gaussian_part
from latlin.inference.forms.site_form import whitened_projections
from latlin.inference.posterior import Posterior
from latlin.linear._block_problem import BlockProblem, Values
from latlin.linear._exact import Spectrum
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.linalg import cholesky, dot, symmetrise


class Sufficient(NamedTuple):
    """HᵀWH (both triangles), HᵀWt, tᵀWt and the number of rows."""

    gram: Array
    response: Array
    square: float
    n_rows: int


def sufficient(problem: BlockProblem, values: Values) -> Sufficient:
    """The sums of a problem with Gaussian noise; the values matter only for their names."""
    mean = gaussian_part(problem.own(values)).mean
    gram, response, square = problem.blocks.total(_sums, problem.reading(values), mean)
    return Sufficient(symmetrise(gram), response, float(square), problem.table.n_rows)


def _sums(block: Block, reading: Reading, mean: Array) -> tuple[Any, ...]:
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


def exact_posterior(problem: BlockProblem, data: Sufficient, values: Values) -> Posterior:
    """The posterior, u whitened by the prior: P = I + L HᵀWH L/σ², mean P⁻¹L HᵀWt/σ²."""
    started, part = time.perf_counter(), gaussian_part(problem.own(values))
    assert part.whitening is not None  # the prior is proper
    variance, weight = float(values["scale"]) ** 2, problem.table.features.weight
    p = part.whitening.apply(part.whitening.apply(data.gram).T) / variance
    p[np.diag_indices(len(p))] += 1.0
    chol = cholesky(p, name="the precision of the posterior")
    pull = part.whitening.apply(data.response) / variance
    u = chol.solve(pull)
    # log Z = −½(Σ weight log 2πσ² + log det P + tᵀWt/σ² − pullᵀP⁻¹pull)
    evidence = -0.5 * (weight * (LOG_2PI + np.log(variance)) + chol.log_det + data.square / variance - dot(pull, u))
    return Posterior(
        model=problem.model(values),
        density=Gaussian(part.mean + part.whitening.apply(u), PrecisionCovariance(part.whitening, chol)),
        log_evidence=float(evidence),
        evidence_kind="exact",
        engine="exact",
        converged=True,
        n_iter=1,
        trace=np.array([float(evidence)]),
        elapsed=time.perf_counter() - started,
        message="every factor is Gaussian: the posterior in closed form, from one pass over the blocks",
    )


def block_spectrum(problem: BlockProblem, data: Sufficient, relative: Any) -> Spectrum:
    """What the evidence needs, in the eigenvectors of ZᵀZ, Z = W^½X/spread; prior scales are s times the `relative`."""
    design, weight = problem.design, problem.table.features.weight
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
