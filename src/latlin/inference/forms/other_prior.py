"""A Gaussian posterior under another prior: the stand-ins of its sites stay, and the prior's precision is exchanged.

    P₁ = P − Λ₀ + Λ₁,   P₁m₁ = Pm − Λ₀μ₀ + Λ₁μ₁

With Gaussian sites that is the posterior under the other prior; with others it is near, and where to start.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import blas

from latlin.densities.density import Density
from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import PrecisionCovariance, Whitening
from latlin.inference.blocks import BlockModel
from latlin.inference.forms.prior import GaussianPart, gaussian_part, needs_sparse
from latlin.inference.forms.sites import Start
from latlin.inference.model import LatentLinearModel, Model
from latlin.numerics.arrays import Array
from latlin.numerics.linalg import cholesky, gram, symmetrise


class Whitened(NamedTuple):
    """Mean and precision (upper triangle, in Fortran's order) of a Gaussian in coordinates w = μ + Lu."""

    u: Array
    precision: Array


def density_under(model: Model, start: Start) -> Density:
    """The posterior with the prior of a model in the place of its own; as it is where one of them is not Gaussian."""
    part, before = _prior_of(model), _prior_of(start.model)
    if part is None or before is None or part.whitening is None or _is_same(part, before):
        return start.density
    found = under_prior(part.mean, part.whitening, start)
    if found is None:
        return start.density
    mean = part.mean + part.whitening.apply(found.u)
    return Gaussian(mean, PrecisionCovariance(part.whitening, cholesky(found.precision)))


def under_prior(mean: Array, whitening: Whitening, start: Start) -> Whitened | None:
    """The posterior under the prior N(mean, LLᵀ), in coordinates whitened by that; None where its own has no such form.

    Parameters
    ----------
    mean : ndarray of shape (dim,)
    whitening : Whitening
        L.
    start : posterior
    """
    before, here = _prior_of(start.model), in_units(mean, whitening, start.density)
    if before is None or before.whitening is None or here is None or len(before.mean) != len(mean):
        return None
    # Λ̃₀ = RᵀR with R = L₀⁻¹L
    root = before.whitening.solve(whitening.apply(np.eye(len(mean))))
    own = symmetrise(gram(np.ascontiguousarray(root)))
    precision = symmetrise(here.precision) - own
    linear = blas.dsymv(1.0, here.precision, here.u) - blas.dsymv(1.0, own, whitening.solve(before.mean - mean))
    precision[np.diag_indices(len(mean))] += 1.0
    upper = np.asfortranarray(np.triu(precision))
    try:
        return Whitened(cholesky(upper).solve(linear), upper)
    except ValueError:
        return None


def in_units(mean: Array, whitening: Whitening, density: Density) -> Whitened | None:
    """A density as it is, in coordinates whitened by N(mean, LLᵀ); None where its covariance is singular."""
    half = whitening.solve(density.covariance())
    try:
        precision = cholesky(whitening.solve(np.ascontiguousarray(half.T))).inverse()
    except ValueError:
        return None
    return Whitened(whitening.solve(density.mean - mean), np.asfortranarray(np.triu(precision)))


def _prior_of(model: Model) -> GaussianPart | None:
    """The Gaussian factors on w, where there are no others."""
    held = model.own if isinstance(model, BlockModel) else model
    if not isinstance(held, LatentLinearModel) or needs_sparse(held):
        return None
    part = gaussian_part(held)
    return None if part.whitening is None or len(part.measured_values) else part


def _is_same(one: GaussianPart, other: GaussianPart) -> bool:
    scales = [getattr(part.whitening, "scale", getattr(part.whitening, "factor", None)) for part in (one, other)]
    return bool(np.array_equal(one.mean, other.mean) and np.array_equal(*scales))  # type: ignore[arg-type]
