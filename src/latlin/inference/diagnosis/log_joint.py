"""log ∏ factors of a model at many w, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.linalg import LinearOperator
from scipy.special import logsumexp

from latlin.densities.gaussian import Gaussian
from latlin.inference.forms.prior import (
    expected_log_gaussians,
    factor_precision,
    factor_whitening,
    log_integral,
    needs_sparse,
    quadratic_of,
)
from latlin.inference.forms.projections import stacked_rows
from latlin.inference.forms.sites import Sites
from latlin.inference.model import IN_BLOCKS, GaussianFactor, LatentLinearModel, Model, SiteFactor, in_memory
from latlin.numerics.arrays import LOG_2PI, Array

# --- A model whose hyperparameters are integrated out: a weighted sum of latent linear models.
#
#     p(w) ∝ Σ_k weight_k p_k(w),   log Z = log Σ_k weight_k Z_k
#
# Each p_k is a product of factors with its own constants, so the weights are those of a quadrature rule times the prior
# of the hyperparameters.


class AveragedModel(LatentLinearModel):
    """Several models of the same w with weights; `gaussians` and `sites` are those of the middle one.

    Parameters
    ----------
    parts : sequence of LatentLinearModel
    log_weights : array of shape (K,)
    middle : int
        The part that stands for all where one model is asked for.
    """

    parts: tuple[Model, ...]
    log_weights: Array
    centre: Model

    def __init__(self, parts: Sequence[Model], log_weights: ArrayLike, middle: int) -> None:
        weights = np.asarray(log_weights, float)
        if weights.shape != (len(parts),):
            raise ValueError(f"log_weights must hold one number per model, got shape {weights.shape} for {len(parts)}")
        # whatever a model has, this has from its middle part
        for name, value in vars(parts[middle]).items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "dim", parts[middle].dim)
        object.__setattr__(self, "parts", tuple(parts))
        object.__setattr__(self, "centre", parts[middle])
        object.__setattr__(self, "log_weights", weights)

    def __getattr__(self, name: str) -> NoReturn:
        # parts whose rows are in blocks have no factors here
        raise ValueError(IN_BLOCKS) if name in ("gaussians", "sites") else AttributeError(name)

    def __repr__(self) -> str:
        return f"AveragedModel({len(self.parts)} x {self.parts[0]!r})"


#: rows of sites in a block, and numbers that are made at a time
ROWS, MOST = 512, 2**16


class LogJoint:
    """The log joint of one model, with every constant.

    Sites are taken in blocks of rows: one product of a block with all draws, small enough to stay in cache.

    Parameters
    ----------
    model : LatentLinearModel
        A LinearOperator H is used as one, a product with some draws at a time.
    """

    def __init__(self, model: LatentLinearModel) -> None:
        self._model = model
        sites = Sites.of(model)
        self._blocks = [
            _RowBlock(_rows_of(factor, slice(start - span.start, stop - span.start)), sites.part(slice(start, stop)))
            for factor, (span, _) in zip(model.sites, sites.blocks, strict=True)
            for start, stop in _cuts(factor, span)
        ]
        # of a prior that is normalised as a whole
        self._constant = -log_integral(model, quadratic_of(model)) if model.normalise_prior else 0.0

    def __call__(self, w: Array) -> Array:
        """log p at each row of w; −∞ where a site is, an error where a value is not a number."""
        total = np.full(len(w), self._constant)
        for gaussian in self._model.gaussians:
            width = w.shape[1] if gaussian.H is None else gaussian.H.shape[0]
            for some in _portions(len(w), width):
                total[some] += _log_gaussian(gaussian, w[some])
        for block in self._blocks:
            for some in _portions(len(w), len(block.sites)):
                total[some] += block.log_likelihoods(w[some])
        if np.any(np.isnan(total)) or np.any(total == np.inf):
            raise ValueError("the model's log density is not a number at some draws; rescale the columns of H")
        return total


class _RowBlock(NamedTuple):
    """Some rows of a site factor, and what is to be summed over them: H (None, a slice, for coordinates) and sites."""

    H: Any
    sites: Sites

    def log_likelihoods(self, w: Array) -> Array:
        """Σ_n weight_n ψ_n(h_nᵀw + o_n) at each row of w."""
        x = w[:, self.H] if isinstance(self.H, slice) else _times(self.H, w)
        return self.sites.log_density_sums(x)


def _cuts(factor: SiteFactor, span: slice) -> list[tuple[int, int]]:
    """Ends of the blocks of rows of a factor; an operator has but one."""
    step = max(span.stop - span.start, 1) if isinstance(factor.H, LinearOperator) else ROWS
    return [(start, min(start + step, span.stop)) for start in range(span.start, span.stop, step)]


def _rows_of(factor: SiteFactor, span: slice) -> Any:
    if factor.H is None:
        return span
    return factor.H if isinstance(factor.H, LinearOperator) else factor.H[span]


def _portions(count: int, width: int) -> Iterator[slice]:
    """Slices of `count` draws, of which each has `width` numbers, with some tens of thousands of numbers each."""
    step = max(MOST // max(width, 1), 1)
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


class AveragedLogJoint:
    """log Σ_k weight_k p_k(w) of a model whose hyperparameters are integrated out."""

    def __init__(self, model: AveragedModel) -> None:
        self._parts = [LogJoint(in_memory(part)) for part in model.parts]
        self._log_weights = model.log_weights

    def __call__(self, w: Array) -> Array:
        parts = [weight + joint(w) for weight, joint in zip(self._log_weights, self._parts, strict=True)]
        return np.asarray(logsumexp(parts, axis=0))


def log_joint(model: LatentLinearModel) -> LogJoint | AveragedLogJoint:
    """The log joint of a model as a function of rows of w."""
    return AveragedLogJoint(model) if isinstance(model, AveragedModel) else LogJoint(model)


def _log_gaussian(factor: GaussianFactor, w: Array) -> Array:
    x = w if factor.H is None else _times(factor.H, w)
    if factor.precision is not None:
        precision, constant = factor_precision(factor, x.shape[1])
        deviations = x - factor.mean
        return constant - 0.5 * np.einsum("nd,dn->n", deviations, precision @ deviations.T)
    whitening = factor_whitening(factor, x.shape[1])
    root = whitening.solve(np.ascontiguousarray((x - factor.mean).T))
    return -0.5 * np.einsum("dn,dn->n", root, root) - 0.5 * x.shape[1] * LOG_2PI - whitening.log_det


def _times(matrix: Any, w: Array) -> Array:
    """Rows of w times Hᵀ."""
    if sparse.issparse(matrix) or isinstance(matrix, LinearOperator):
        return np.asarray(matrix @ w.T).T
    return w @ matrix.T


def gaussian_kl_bound(model: LatentLinearModel, density: Gaussian) -> float:
    """The bound at a Gaussian over w, with every constant."""
    marginals = density.project(stacked_rows(model))
    sites = Sites.of(model).expected_log(marginals.mean, marginals.variance)
    if needs_sparse(model):
        return float(sites.value.sum()) + expected_log_gaussians(model, density) + density.entropy
    gaussians = sum(_expected_log_factor(factor, density) for factor in model.gaussians)
    return float(sites.value.sum()) + gaussians + density.entropy


def _expected_log_factor(factor: GaussianFactor, density: Gaussian) -> float:
    """⟨log N(Hw | μ, LLᵀ)⟩ = −½ log det(2πLLᵀ) − ½ Σ_i ⟨r_i²⟩, r = L⁻¹(Hw − μ)."""
    rows = sparse.eye_array(density.dim, format="csr") if factor.H is None else factor.H
    whitening = factor_whitening(factor, rows.shape[0])
    constant = -0.5 * rows.shape[0] * LOG_2PI - whitening.log_det
    residual = whitening.solve(rows @ density.mean - factor.mean)
    if factor.factor is None:
        # a diagonal L scales the variances
        variance = density.project(rows).variance * whitening.solve(np.ones(rows.shape[0])) ** 2
    else:
        dense = rows.toarray() if sparse.issparse(rows) else rows
        variance = density.project(np.ascontiguousarray(whitening.solve(dense))).variance
    return constant - 0.5 * float(residual @ residual + variance.sum())
