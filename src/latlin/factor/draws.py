"""Draws of the latents of rows, given the fitted parameters: what factor models answer by `sample_posterior`."""

from __future__ import annotations

from typing import Any

import numpy as np

from latlin.diagnostics.inference_data import inference_data
from latlin.numerics.linalg import Array
from latlin.numerics.options import whole
from latlin.numerics.reported import Reported
from latlin.numerics.rng import RandomState, generator


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
        return self._draw_posterior(X, whole("n_samples", n_samples, 1), generator(random_state))

    def to_arviz(self, n_samples: int = 1000, random_state: RandomState = None, *, X: Any) -> Any:
        """Draws of the latents of rows X as an `arviz.InferenceData` (of ArviZ 1, a `DataTree`); needs ArviZ.

        The group posterior has "latents", with the axes row and factor.
        """
        draws = self.sample_posterior(n_samples, random_state, X=X)
        coords = {"row": range(draws.shape[1]), "factor": list(self.get_feature_names_out())}  # type: ignore[attr-defined]
        return inference_data({"posterior": {"latents": draws[None]}}, coords, {"latents": ["row", "factor"]})

    def _draw_posterior(self, X: Any, count: int, rng: np.random.Generator) -> Array:
        return draw_gaussians(*self.transform(X, return_cov=True), count, rng)  # type: ignore[attr-defined]


def draw_gaussians(mean: Array, cov: Array, count: int, rng: np.random.Generator) -> Array:
    """Draws of N(mean_n, cov_n), of shape (count, n, K), by square roots; one covariance may serve every row."""
    values, vectors = np.linalg.eigh(cov)
    root = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
    noise = rng.standard_normal((count, *mean.shape))
    return mean + (root @ noise[..., None])[..., 0]
