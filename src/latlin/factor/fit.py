"""What every way to fit a factor model returns, and its canonical form."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latlin.numerics.arrays import LOG_2PI
from latlin.numerics.linalg import Array
from latlin.numerics.low_rank import LowRankNormal, weighted_gram


class FactorFit(NamedTuple):
    """N(mean, FFᵀ + Ψ) with F stored as K×d, and how it was found; `trace` holds total log-likelihoods."""

    mean: Array
    loadings: Array
    noise: Array
    trace: Array
    converged: bool
    n_iter: int
    message: str

    @property
    def density(self) -> LowRankNormal:
        return LowRankNormal(self.mean, self.loadings, self.noise)


def canonical(loadings: Array, noise: Array) -> Array:
    """Rotate so that FᵀΨ⁻¹F is diagonal and falling, each factor's largest loading positive."""
    _, vectors = np.linalg.eigh(weighted_gram(loadings, noise))
    return fix_signs(vectors[:, ::-1].T @ loadings)


def fix_signs(loadings: Array) -> Array:
    """Each factor's loading of largest absolute value is positive."""
    peaks = np.take_along_axis(loadings, np.abs(loadings).argmax(axis=1)[:, None], axis=1)
    return loadings * np.where(peaks < 0.0, -1.0, 1.0)


def total_log_likelihood(n: int, dim: int, log_det: float, trace_term: float) -> float:
    """−½N(d log 2π + log det(FFᵀ + Ψ) + tr S(FFᵀ + Ψ)⁻¹), Challis (2013), eq. 2.1.11."""
    return -0.5 * n * (dim * LOG_2PI + log_det + trace_term)


def parameter_count(dim: int, rank: int, isotropic: bool) -> int:
    """Free parameters: mean, loadings up to a rotation, noise."""
    return dim + dim * rank - rank * (rank - 1) // 2 + (1 if isotropic else dim)


class NamedEvidence:
    """`log_evidence_`, the name that every estimator has for its evidence, where factor models have names of their own.

    Latents are integrated out, parameters are those of the fit.
    """

    @property
    def log_evidence_(self) -> float:
        """log p(X) at the fitted parameters, or its bound; `evidence_kind_` says which."""
        for name in ("lower_bound_", "log_likelihood_"):
            if name in vars(self):
                return float(vars(self)[name])
        raise AttributeError(f"this {type(self).__name__} has no log evidence: it is not fitted, or fed by a stream")
