"""What a fitted factor model answers: densities, latents, draws, conditionals. All of it exact Gaussian algebra."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtr
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from latlin.distributed.opening import rowwise
from latlin.factor.analysis.moments import PIECE, posterior
from latlin.factor.fit import fix_signs, latent_moments
from latlin.numerics.arrays import check_numeric, check_summable
from latlin.numerics.linalg import Array, LowRankNormal
from latlin.numerics.options import check_whole
from latlin.numerics.rng import RandomState, generator

# --- Varimax: the rotation of the loadings that makes the squares of each factor as unequal as it can.


def varimax(loadings: Array, *, tol: float = 1e-10, max_iter: int = 500) -> Array:
    """Rotate K×d loadings to the maximum of Σ_k var_i(F_ik²), by SVDs of its gradient."""
    f = loadings.T
    rotation = np.eye(f.shape[1])
    value = 0.0
    for _ in range(max_iter):
        turned = f @ rotation
        gradient = f.T @ (turned**3 - turned * (turned**2).mean(axis=0))
        u, singular, vt = np.linalg.svd(gradient)
        rotation = u @ vt
        if singular.sum() <= value * (1.0 + tol):
            break
        value = float(singular.sum())
    turned = (f @ rotation).T
    order = np.argsort(-(turned**2).sum(axis=1), kind="stable")
    return fix_signs(turned[order])


ROTATIONS = {"varimax": varimax}


class Conditional(NamedTuple):
    """The Gaussian of the missing entries given the observed ones."""

    indices: np.ndarray
    mean: Array
    covariance: Array


class FactorQueries(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Methods of a model N(mean_, components_ᵀ components_ + diag(noise_variance_)).

    Rows may have missing entries (NaN): they are integrated out, never filled in.
    """

    mean_: Array
    components_: Array
    noise_variance_: Array

    @property
    def _density(self) -> LowRankNormal:
        check_is_fitted(self, "components_")
        return LowRankNormal(self.mean_, self.components_, self.noise_variance_)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _rows(self, X: Any) -> Array:
        check_is_fitted(self, "components_")
        rows = validate_data(self, check_numeric("X", X), reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
        return np.asarray(check_summable("X", rows))

    @rowwise
    def transform(self, X: Any, *, return_std: bool = False, return_cov: bool = False) -> Any:
        """Posterior means of the latents.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Missing entries (NaN) are integrated out when the model was fitted with method="em"; other fits refuse
            them. `transform(impute(X))` gives the same means.
        return_std : bool
            Also return the posterior standard deviations, (n, K).
        return_cov : bool
            Also return the posterior covariance: (K, K), the same for every row, or (n, K, K) when entries of
            `X` are missing.

        Returns
        -------
        ndarray of shape (n, K), or a pair.
        """
        rows, density = self._rows(X), self._density
        complete = not np.isnan(rows).any()
        if not complete and not self.__sklearn_tags__().input_tags.allow_nan:
            raise ValueError("X contains NaN: fill it by impute(X), which gives the same latent means")
        if complete:
            means = density.latent_means(rows)
            return latent_moments(means, lambda: density.latent_precision().inverse(), return_std, return_cov)
        parts = [posterior(density, rows[i : i + PIECE]) for i in range(0, len(rows), PIECE)]
        means = np.concatenate([p.means for p in parts])
        return latent_moments(means, lambda: np.concatenate([p.covariances for p in parts]), return_std, return_cov)

    def inverse_transform(self, Z: Any) -> Array:
        """Means of the observations given latents: Z components_ + mean_."""
        check_is_fitted(self, "components_")
        z = check_array(check_numeric("Z", Z), dtype=np.float64)
        if z.shape[1] != len(self.components_):
            raise ValueError(f"Z must have {len(self.components_)} columns, got {z.shape[1]}")
        return z @ self.components_ + self.mean_

    @rowwise
    def score_samples(self, X: Any) -> Array:
        """log p(x) of every row, of its observed entries when some are missing; every constant included."""
        rows, density = self._rows(X), self._density
        if not np.isnan(rows).any():
            return density.logpdf(rows)
        parts = [posterior(density, rows[i : i + PIECE]).log_density for i in range(0, len(rows), PIECE)]
        return np.concatenate(parts)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log p(x) of the rows."""
        return float(self.score_samples(X).mean())

    @rowwise
    def novelty(self, X: Any) -> Array:
        """How surprising every row is: P(χ² ≤ its squared Mahalanobis distance), near 1 for outliers.

        Under the model these are uniform on (0, 1); the degrees of freedom are the observed entries.
        """
        rows, density = self._rows(X), self._density
        if not np.isnan(rows).any():
            return chdtr(float(rows.shape[1]), density.mahalanobis(rows))
        parts = [posterior(density, rows[i : i + PIECE]) for i in range(0, len(rows), PIECE)]
        count = np.concatenate([p.observed for p in parts])
        distance = np.concatenate([p.distance for p in parts])
        return np.where(count > 0, chdtr(np.maximum(count, 1.0), distance), 0.0)

    def sample(self, n_samples: int = 1, *, random_state: RandomState = None) -> Array:
        """Draws from the fitted model, shape (n_samples, d)."""
        return np.asarray(
            self._density.sample(check_whole("n_samples", n_samples), generator(random_state)), dtype=np.float64
        )

    def get_covariance(self) -> Array:
        """FFᵀ + Ψ, shape (d, d)."""
        density = self._density
        return density.loadings.T @ density.loadings + np.diag(density.noise)

    def get_precision(self) -> Array:
        """(FFᵀ + Ψ)⁻¹ by Woodbury's identity, shape (d, d)."""
        density = self._density
        scaled = density.loadings / density.noise
        return np.diag(1.0 / density.noise) - scaled.T @ density.latent_precision().solve(scaled)

    @rowwise
    def impute(self, X: Any, *, return_std: bool = False) -> Any:
        """Fill missing entries by their conditional means given the observed entries of the row.

        Parameters
        ----------
        X : array-like of shape (n, d)
            NaN marks what is missing.
        return_std : bool
            Also return the conditional standard deviations, 0 where an entry was observed.

        Returns
        -------
        ndarray of shape (n, d), or a pair of them.
        """
        rows, density = self._rows(X), self._density
        filled, std = rows.copy(), np.zeros_like(rows)
        f = density.loadings
        for i in range(0, len(rows), PIECE):
            part = slice(i, i + PIECE)
            post, gap = posterior(density, rows[part]), np.isnan(rows[part])
            filled[part] = np.where(gap, density.mean + post.means @ f, rows[part])
            # var(x_i | observed) = f_iᵀ M⁻¹ f_i + ψ_i
            spread = np.einsum("kd,nkl,ld->nd", f, post.covariances, f, optimize=True) + density.noise
            std[part] = np.where(gap, np.sqrt(spread), 0.0)
        return (filled, std) if return_std else filled

    def conditional(self, x: Any) -> Conditional:
        """The joint Gaussian of the missing entries (NaN) of one observation given its observed ones."""
        row = self._rows(np.atleast_2d(np.asarray(x, dtype=np.float64)))
        if len(row) != 1:
            raise ValueError(f"x must be one observation, got {len(row)}")
        density = self._density
        post, gap = posterior(density, row), np.isnan(row[0])
        f = density.loadings[:, gap]
        covariance = f.T @ post.covariances[0] @ f + np.diag(density.noise[gap])
        return Conditional(np.flatnonzero(gap), density.mean[gap] + post.means[0] @ f, covariance)
