"""New rows: the posterior of their linear predictors, and of new observations.

Everything about one row is one-dimensional: the predictor is hᵀw, and an observation's distribution is that of the
potential integrated over it, by quadrature or in closed form.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.potentials.base import Potential
from latlin.potentials.gaussian import Gaussian
from latlin.potentials.predictive import LocationPredictive, Predictive


class Latent(NamedTuple):
    """Linear predictors of some rows, offsets included in the mean."""

    mean: Array
    variance: Array
    offset: Array
    marginals: Any

    def quantile(self, q: Array) -> Array:
        """Quantiles of shape (n, len(q)); the mean where there is no uncertainty."""
        if not np.any(self.variance > 0.0):
            return np.tile(self.mean[:, None], (1, len(q)))
        return np.asarray(self.marginals.quantile(q[:, None])).T + self.offset[:, None]


def latent(posterior: Posterior, rows: Any, offset: Array | None) -> Latent:
    """The linear predictors of rows."""
    marginals = posterior.project(rows)
    shift = np.zeros(len(marginals.mean)) if offset is None else offset
    return Latent(marginals.mean + shift, np.maximum(marginals.variance, 0.0), shift, marginals)


def log_density(potential: Potential, at: Latent) -> Array:
    """log ∫ φ_n(x) q_n(x) dx for the potential's own observations, one per row."""
    if not hasattr(at.marginals, "expectation"):
        return np.asarray(potential.tilted_moments(at.mean, at.variance).log_z)
    regions = tuple((centre - at.offset, width) for centre, width in potential.regions())
    density = at.marginals.expectation(
        lambda x: np.exp(potential.log_density(x + at.offset)), regions, potential.smooth
    )
    return np.log(np.maximum(density, np.finfo(float).tiny))


def predictive(potential: Potential, at: Latent) -> Predictive:
    """The distribution of new observations; of a density that is not Gaussian, the first two moments are used."""
    return potential.predictive(at.mean, at.variance)


def predictive_quantiles(potential: Potential, at: Latent, q: Array) -> Array:
    """Quantiles of new observations, shape (n, len(q))."""
    if type(potential) is Gaussian:
        return at.mean[:, None] + np.sqrt(at.variance + potential.scale**2)[:, None] * ndtri(q)
    return np.asarray(predictive(potential, at).quantile(np.broadcast_to(q[:, None], (len(q), len(at.mean))))).T


def predictive_covariance(potential: Potential, posterior: Posterior, rows: Any, at: Latent) -> Array:
    """Covariance matrix of new observations at the rows, noise on the diagonal."""
    s = latent_covariance(posterior, rows)
    described = predictive(potential, at)
    if not isinstance(described, LocationPredictive):
        _refuse_other_means(potential)
        # cov(y_i, y_j) = ⟨e^{x_i}⟩⟨e^{x_j}⟩(e^{S_ij} − 1), and the variance of an observation on the diagonal
        s = np.outer(described.mean, described.mean) * np.expm1(s)
    s[np.diag_indices(len(s))] = described.variance
    return s


def _refuse_other_means(potential: Potential) -> None:
    """Covariances of observations are known where their mean is a multiple of e^x."""
    low, high = potential.predictive(np.array([0.0, 1.0]), np.zeros(2)).mean
    if not np.isclose(high, np.e * low, rtol=1e-8):
        raise ValueError(
            f"return_cov has no closed form for {type(potential).__name__} observations; take the covariance of "
            "draws of sample_y, or ask for return_std"
        )


def latent_covariance(posterior: Posterior, rows: Any) -> Array:
    """H S Hᵀ."""
    half = rows @ posterior.covariance()
    return np.asarray(rows @ half.T)


def levels(name: str, values: ArrayLike) -> Array:
    """Probabilities strictly between 0 and 1, as a vector."""
    try:
        q = np.atleast_1d(np.asarray(values, float))
    except (TypeError, ValueError):
        q = np.zeros(1)
    if q.ndim != 1 or not np.all((q > 0.0) & (q < 1.0)):
        raise ValueError(f"{name} must hold probabilities strictly between 0 and 1, got {values!r}")
    return q


def tails(coverage: float) -> Array:
    """The two quantiles of a central interval."""
    (share,) = levels("coverage", coverage)
    return np.array([0.5 - 0.5 * share, 0.5 + 0.5 * share])
