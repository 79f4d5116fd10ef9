"""What the factor estimators share: their fitted base, draws of the latents, and the loop of a fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.diagnostics.inference_data import inference_data
from latlin.numerics.arrays import LOG_2PI
from latlin.numerics.linalg import Array, LowRankNormal, weighted_gram
from latlin.numerics.options import check_whole
from latlin.numerics.reported import Reported
from latlin.numerics.rng import RandomState, generator

# --- Draws of the latents of rows, given the fitted parameters: what factor models answer by `sample_posterior`.


class LatentDraws(Reported):
    """Draws of q(latents of a row), for every factor model."""

    def sample_posterior(self, n_samples: int = 1, random_state: RandomState = None, *, X: Any) -> Array:
        """Draws of the latents of rows, of shape (n_samples, n, K), the parameters being as fitted.

        Parameters
        ----------
        n_samples : int
        random_state : int, Generator, RandomState or None
        X : array-like
            Rows, in the form that `transform` takes.
        """
        return self._draw_posterior(X, check_whole("n_samples", n_samples, 1), generator(random_state))

    def to_arviz(self, n_samples: int = 1000, random_state: RandomState = None, *, X: Any) -> Any:
        """Draws of the latents of rows X as an `arviz.InferenceData` (of ArviZ 1, a `DataTree`); needs ArviZ.

        The group posterior has "latents", with the axes row and factor.
        """
        draws = self.sample_posterior(n_samples, random_state, X=X)
        coords = {"row": range(draws.shape[1]), "factor": list(self.get_feature_names_out())}  # type: ignore[attr-defined]
        return inference_data({"posterior": {"latents": draws[None]}}, coords, {"latents": ["row", "factor"]})

    def _draw_posterior(self, X: Any, count: int, rng: np.random.Generator) -> Array:
        mean, cov = self.transform(X, return_cov=True)  # type: ignore[attr-defined]
        return draw_gaussians(mean, cov, count, rng)


def latent_moments(mean: Array, cov: Callable[[], Array], return_std: bool, return_cov: bool) -> Any:
    """What `transform` answers: the means (n, K), and if asked standard deviations (n, K) or covariances.

    `cov` gives the covariances, (n, K, K) or one (K, K) of all rows; it is called only if they are asked for.
    """
    if return_std and return_cov:
        raise ValueError("return_std and return_cov cannot both be True; the diagonal of cov holds the variances")
    if return_std:
        variance = np.broadcast_to(np.einsum("...kk->...k", cov()), mean.shape)
        return mean, np.sqrt(np.maximum(variance, 0.0))
    return (mean, cov()) if return_cov else mean


def draw_gaussians(mean: Array, cov: NDArray[np.floating[Any]], count: int, rng: np.random.Generator) -> Array:
    """Draws of N(mean_n, cov_n), of shape (count, n, K), by square roots; one covariance may serve every row."""
    values, vectors = np.linalg.eigh(cov)
    root = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
    noise = rng.standard_normal((count, *mean.shape))
    return mean + (root @ noise[..., None])[..., 0]


# --- What every way to fit a factor model returns, and its canonical form.


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


def make_canonical(loadings: Array, noise: Array) -> Array:
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
