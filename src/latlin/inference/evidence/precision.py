"""Derivatives of the log evidence when the precision matrix of a Gaussian factor changes.

A factor with precision Q, r = Hw − μ, contributes ½ log |Q|₊ − ½ rᵀQr. At a fitted posterior with covariance S and mean
residual r̄ the envelope theorem leaves

    d log Z = ½ d log |Q|₊ − ½ tr(dQ HSHᵀ) − ½ r̄ᵀdQ r̄

and for the Laplace approximation, whose mode moves by −S Hᵀ dQ r̄ and takes its curvature along, also
−(H S Σ_n h_n ½s_n²ψ_n‴)ᵀ dQ r̄. Of S only the entries on the pattern of HᵀdQH are needed: the selected inverse has them.
A prior that is normalised as a whole takes off what its own integral gains.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from latlin.densities.gaussian import Gaussian
from latlin.densities.probed_precision import ProbedPrecisionCovariance
from latlin.densities.sparse_precision import SparsePrecisionCovariance
from latlin.inference.blocks import BlockModel
from latlin.inference.forms.prior import prior_gaussian
from latlin.inference.model import LatentLinearModel, in_memory
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.intrinsic import ground
from latlin.numerics.sparse_cholesky import analyse

Index = NDArray[np.integer]


@dataclass(frozen=True)
class PrecisionSlopes:
    """Slopes of one posterior's log evidence, for any number of changes.

    Parameters
    ----------
    posterior : Posterior
        Converged, of an engine with an evidence and a Gaussian density.
    """

    posterior: Posterior

    def __post_init__(self) -> None:
        self._density()

    def _density(self) -> Gaussian:
        density = self.posterior.density
        if not isinstance(density, Gaussian) or self.posterior.evidence_term is None:
            raise ValueError(
                "slopes need a Gaussian posterior with an evidence and its term, "
                f"got one of engine {self.posterior.engine!r}"
            )
        return density

    def __call__(self, change: Any, factor: int = 0, log_det_slope: float | None = None) -> float:
        """d log Z for a change dQ of the precision; see `precision_slope`."""
        model = _own(self.posterior)
        gaussian = model.gaussians[factor]
        if gaussian.precision is None:
            raise ValueError(f"GaussianFactor {factor} is given by its covariance: use evidence_gradient() for it")
        change = sparse.csr_array(change)
        if change.shape != gaussian.precision.shape:
            raise ValueError(f"change must have the shape {gaussian.precision.shape} of precision, got {change.shape}")
        rows = None if gaussian.H is None else sparse.csr_array(gaussian.H)
        slope = -0.5 * _mean_square(self._density(), change, rows, gaussian.mean)
        if self._move is not None:
            residual = _seen(rows, self.posterior.mean) - gaussian.mean
            slope -= float(_seen(rows, self._move) @ (change @ residual))
        if self._prior is not None:
            # log |Q|₊ is in the prior and in its integral alike
            return slope + 0.5 * _mean_square(self._prior, change, rows, gaussian.mean)
        given = _log_det_slope(gaussian.precision, gaussian.rank, change) if log_det_slope is None else log_det_slope
        return slope + 0.5 * given

    def moments(self, i: Index, j: Index, covariance: Array) -> Array:
        """M_ij of a factor on w itself, with which d log Z = ½ d log |Q|₊ − ½ Σ_ij dQ_ij M_ij.

        S_ij, which is given, + r̄_i r̄_j and, for the Laplace approximation, the movement of its mode.
        """
        residual = self._density().mean - in_memory(self.posterior.model).gaussians[0].mean
        first, second = residual[i], residual[j]
        if self._move is None:
            return covariance + first * second
        # r̄_i r̄_j + move_i r̄_j + r̄_i move_j
        return covariance + (first + self._move[i]) * second + first * self._move[j]

    @cached_property
    def _prior(self) -> Gaussian | None:
        model = _own(self.posterior)
        found = prior_gaussian(model) if model.normalise_prior else None
        return None if found is None else found[0]

    @cached_property
    def _move(self) -> Array | None:
        """S Σ_n h_n ½s_n²ψ_n‴, by which the curvature pulls the mode of a Laplace approximation."""
        term = self.posterior.evidence_term
        movement = None if term is None else term.movement(self.posterior)
        return None if movement is None else movement.move


def _own(posterior: Posterior) -> LatentLinearModel:
    """The factors that are here, wherever the rows are."""
    model = posterior.model
    return model.own if isinstance(model, BlockModel) else in_memory(model)


def precision_slope(posterior: Posterior, change: Any, factor: int = 0, log_det_slope: float | None = None) -> float:
    """d `posterior.log_evidence`, re-optimised, when the precision of a Gaussian factor changes by dQ.

    Parameters
    ----------
    posterior : Posterior
    change : sparse matrix of shape (m, m)
        dQ, symmetric, on the pattern of Q or within it, with the null space of an intrinsic Q.
    factor : int
        Which Gaussian factor of the model.
    log_det_slope : float, optional
        d log |Q|₊, where it is known (rank·dτ/τ for τQ); else it is computed.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
    >>> Q = sparse.csr_array(np.array([[2.0, -1.0], [-1.0, 2.0]]))
    >>> sites = SiteFactor(None, potentials.Poisson([3, 4]))
    >>> post = infer(LatentLinearModel([GaussianFactor(precision=Q), sites]), "gkl")
    >>> round(precision_slope(post, Q), 4)  # d log Z / d log τ of the precision τQ at τ = 1
    -0.161
    """
    return PrecisionSlopes(posterior)(change, factor, log_det_slope)


def _seen(rows: sparse.csr_array | None, w: Array) -> Array:
    """Hw; w itself where the factor is on it."""
    return w if rows is None else rows @ w


def _mean_square(density: Gaussian, change: sparse.csr_array, rows: sparse.csr_array | None, mean: Array) -> float:
    """⟨rᵀdQ r⟩ = tr(HᵀdQH S) + r̄ᵀdQ r̄."""
    residual = _seen(rows, density.mean) - mean
    whole = change if rows is None else sparse.csr_array(rows.T @ change @ rows)
    structure = density.structure
    if isinstance(structure, SparsePrecisionCovariance | ProbedPrecisionCovariance):
        trace = structure.trace_with(whole)
    else:
        trace = float(whole.multiply(density.covariance()).sum())
    return trace + float(residual @ (change @ residual))


def _log_det_slope(precision: sparse.csr_array, rank: int | None, change: sparse.csr_array) -> float:
    """tr(Q⁺dQ) = tr(Q′⁻¹dQ), Q held at as many coordinates as its null space has dimensions."""
    analysis = analyse(abs(precision) + abs(change))
    grounded = ground(analysis, analysis.values(precision), precision.shape[0] - (rank or 0))
    assert grounded is not None  # the factor was checked
    coo = sparse.coo_array(change)
    return float(np.sum(coo.data * grounded.factor.inverse_entries(coo.row, coo.col)))
