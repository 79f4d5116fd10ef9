"""Questions to a fitted group factor model: latents from any views, one view from others, samples, gaps filled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from latlin.distributed.opening import rowwise
from latlin.factor.analysis.moments import posterior as plug_in_posterior
from latlin.factor.fit import latent_moments
from latlin.factor.group.data import Labels, Name, Patterns, Views, find_patterns, is_views
from latlin.factor.group.rows import multiply_by_label, outer_sums, product, weighted_sums
from latlin.factor.group.updates import row_precisions
from latlin.numerics.arrays import check_numeric, check_summable, check_visible
from latlin.numerics.linalg import Array, LowRankNormal
from latlin.numerics.options import check_whole
from latlin.numerics.rng import RandomState, generator
from latlin.numerics.stored import storable

# --- Which factor acts in which view, and how much of the view it explains.


@storable
@dataclass(frozen=True)
class FactorActivity:
    """Views × factors.

    Attributes
    ----------
    views : tuple
        Names of the views.
    share : ndarray of shape (views, factors)
        Share of the view's variance that the factor explains.
    signal : ndarray of shape (views, factors)
        Energy of the mean loadings over the sum of their posterior variances.
    active : ndarray of bool of shape (views, factors)
        Where the signal is above 1: the view needs the factor.

    Examples
    --------
    >>> activity = FactorActivity(("a", "b"), np.array([[0.5, 0.2], [0.3, 0.0]]), np.array([[9.0, 5.0], [8.0, 0.0]]))
    >>> activity.n_shared, activity.n_private
    (1, 1)
    >>> print(activity)
    a     50.0%  20.0%
    b     30.0%    ·
    """

    views: tuple[Any, ...]
    share: Array
    signal: Array

    @property
    def active(self) -> NDArray[np.bool_]:
        return self.signal > 1.0

    @property
    def n_shared(self) -> int:
        """Factors that are active in at least two views."""
        return int((self.active.sum(axis=0) >= 2).sum())

    @property
    def n_private(self) -> int:
        """Factors that are active in one view only."""
        return int((self.active.sum(axis=0) == 1).sum())

    def __str__(self) -> str:
        width = max(5, *(len(str(name)) for name in self.views))
        lines = []
        for name, share, active in zip(self.views, self.share, self.active, strict=True):
            cells = [f"{100 * s:6.1f}%" if on else "   ·   " for s, on in zip(share, active, strict=True)]
            lines.append(f"{name!s:<{width}}{''.join(cells)}".rstrip())
        return "\n".join(lines)

    def plot(self, ax: Any = None) -> Any:
        """A heat map of the shares, a cross where a factor is not active; returns the axes."""
        if ax is None:
            try:
                from matplotlib import pyplot
            except ImportError as error:
                raise ImportError("plot_activity needs matplotlib: install latlin[plot]") from error
            _, ax = pyplot.subplots(layout="constrained")
        image = ax.imshow(100.0 * self.share, aspect="auto", cmap="viridis", vmin=0.0)
        ax.figure.colorbar(image, ax=ax, label="variance explained, %")
        row, column = np.nonzero(~self.active)
        ax.plot(column, row, "x", color="0.6", markersize=4)
        ax.set_yticks(range(len(self.views)), [str(name) for name in self.views])
        ax.set_xticks(range(self.share.shape[1]))
        ax.set_xlabel("factor")
        ax.set_ylabel("view")
        return ax


PIECE = 2048


@storable
class GroupPosterior(NamedTuple):
    """q(W) and ⟨τ⟩ of the scaled columns: w_d ~ N(loading_d, B_c diag(spread_d) B_cᵀ), c the class of column d."""

    loading: Array
    basis: Array
    spread: Array
    column: Labels
    precision: Array
    centre: Array
    scale: Array

    def check(self, views: Views) -> None:
        """A ValueError where these numbers are none of a fit of such views."""
        if min(views.sizes) < 1 or views.n_columns != len(self.loading):
            raise ValueError(f"views of {views.sizes} columns do not add up to {len(self.loading)}")
        if self.column.dtype.kind not in "iu" or not np.all((self.column >= 0) & (self.column < len(self.basis))):
            raise ValueError(f"column must hold places of {len(self.basis)} bases, got {self.column!r:.80}")
        for name in ("precision", "scale"):
            part = getattr(self, name)
            if not np.all((part > 0.0) & np.isfinite(part)):
                raise ValueError(f"{name} must be above 0 and finite")


class GroupLatents(NamedTuple):
    """Posterior of the latents: means (n, K), covariances (patterns, K, K), and the pattern of every row."""

    mean: Array
    covariance: Array
    patterns: Patterns


class GroupQueries(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What can be asked once `posterior_`, `views_` and `factor_activity_` are known."""

    posterior_: GroupPosterior
    views_: Views
    factor_activity_: FactorActivity

    @rowwise
    def transform(self, X: Any, *, return_std: bool = False, return_cov: bool = False) -> Any:
        """Posterior of the latents of unseen samples, from all views or from some of them.

        Parameters
        ----------
        X : dict, list or matrix
            As given to `fit`. A dict may leave views out, a list may hold None for them; NaN marks missing entries.
        return_std, return_cov : bool
            Also return the posterior standard deviations, (n, K), or covariances, (n, K, K).

        Returns
        -------
        ndarray of shape (n, K), or a pair.
        """
        latents = self._latents(self._joined(X))
        return latent_moments(latents.mean, lambda: latents.covariance[latents.patterns.row], return_std, return_cov)

    def inverse_transform(self, Z: Any) -> Any:
        """Means of the observations given latents, in the form of the data given to `fit`."""
        check_is_fitted(self, "posterior_")
        z = check_array(check_visible("Z", Z), dtype=np.float64)
        if z.shape[1] != self.posterior_.loading.shape[1]:
            raise ValueError(f"Z must have {self.posterior_.loading.shape[1]} columns, got {z.shape[1]}")
        return self.views_.split(self._means(z, slice(None)))

    def predict_view(self, target: Name, sources: Any, *, return_std: bool = False) -> Any:
        """One view of samples for which other views are known.

        Parameters
        ----------
        target : name or position of the view
        sources : dict, list or matrix
            The known views, as for `transform`; entries of the target itself are not used.
        return_std : bool
            Also return the predictive standard deviations, noise and the uncertainty of latents and loadings included.

        Returns
        -------
        ndarray of shape (n, columns of the target), or a pair of them.
        """
        rows = self._joined(sources)
        where = self.views_.slice_of(target)
        rows[:, where] = np.nan
        return self._predict(rows, where, return_std)

    def impute(self, X: Any, *, return_std: bool = False) -> Any:
        """Fill missing entries (and views) by their predictive means; standard deviations are 0 where observed."""
        rows = self._joined(X)
        gap = np.isnan(rows)
        mean, std = self._predict(rows, slice(0, rows.shape[1]), True)
        filled = self.views_.split(np.where(gap, mean, rows))
        return (filled, self.views_.split(np.where(gap, std, 0.0))) if return_std else filled

    @rowwise
    def score_samples(self, X: Any) -> Array:
        """log p(observed entries) of every row with loadings and noise at their posterior means, constants included."""
        rows = self._joined(X)
        post = self.posterior_
        loadings = post.loading.T * post.scale
        density = LowRankNormal(post.centre, loadings, post.scale**2 / post.precision)
        parts = [plug_in_posterior(density, rows[i : i + PIECE]).log_density for i in range(0, len(rows), PIECE)]
        return np.concatenate(parts)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of `score_samples`."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, *, random_state: RandomState = None) -> Any:
        """Draws with loadings and noise at their posterior means, in the form of the data given to `fit`."""
        check_is_fitted(self, "posterior_")
        rng = generator(random_state)
        post = self.posterior_
        d, k = post.loading.shape
        means = self._means(rng.standard_normal((check_whole("n_samples", n_samples), k)), slice(None))
        return self.views_.split(means + rng.standard_normal((n_samples, d)) * post.scale / np.sqrt(post.precision))

    def plot_activity(self, ax: Any = None) -> Any:
        """A heat map of the variance each factor explains in each view (needs matplotlib); returns the axes."""
        check_is_fitted(self, "posterior_")
        return self.factor_activity_.plot(ax)

    @property
    def _n_features_out(self) -> int:
        return self.posterior_.loading.shape[1]

    def _joined(self, X: Any) -> Array:
        check_is_fitted(self, "posterior_")
        if self.views_.form == "matrix" and not is_views(X):
            X = validate_data(self, check_numeric("X", X), reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
            check_summable("X", X)
        return self.views_.join(X)

    def _latents(self, rows: Array) -> GroupLatents:
        """q(z) of scaled copies of `rows`: precision I + Σ τ⟨w wᵀ⟩ over what each row observes."""
        post = self.posterior_
        gap = np.isnan(rows)
        x = np.where(gap, 0.0, (rows - post.centre) / post.scale)
        patterns = find_patterns(gap if gap.any() else None, len(rows), self.views_.of_column.astype(np.int64))
        covariance: Array = np.asarray(
            np.linalg.inv(row_precisions(_moments(post, patterns), patterns.seen)), np.float64
        )
        pulled = product(x, post.loading * post.precision[:, None])
        return GroupLatents(multiply_by_label(covariance, patterns.row, pulled), covariance, patterns)

    def _means(self, z: Array, where: slice) -> Array:
        post = self.posterior_
        return z @ post.loading[where].T * post.scale[where] + post.centre[where]

    def _predict(self, rows: Array, where: slice, return_std: bool) -> Any:
        latents = self._latents(rows)
        mean = self._means(latents.mean, where)
        return (mean, self._std(latents, where)) if return_std else mean

    def _std(self, latents: GroupLatents, where: slice) -> Array:
        """√(w̄ᵀSw̄ + ⟨zᵀ cov(w) z⟩ + 1/τ)."""
        post, row = self.posterior_, latents.patterns.row
        loading, column = post.loading[where], post.column[where]
        # w̄ᵀSw̄ for every pattern of rows
        by_pattern = np.stack([np.einsum("dk,dk->d", loading @ cov, loading) for cov in latents.covariance])
        variance = by_pattern[row] + 1.0 / post.precision[where]
        for c in np.unique(column):
            basis, of = post.basis[c], column == c
            square = (latents.mean @ basis) ** 2
            turned = np.einsum("kl,rkm,ml->rl", basis, latents.covariance, basis, optimize=True)
            variance[:, of] += (square + turned[row]) @ post.spread[where][of].T
        return np.sqrt(variance) * post.scale[where]


def _moments(post: GroupPosterior, patterns: Patterns) -> Array:
    """Σ τ_d⟨w_d w_dᵀ⟩ over the classes of new patterns, from the classes of the fit."""
    pairs, pair = np.unique(post.column * patterns.n_classes + patterns.column, return_inverse=True)
    fitted, new = np.divmod(pairs, patterns.n_classes)
    width = weighted_sums(post.spread, post.precision, pair.astype(np.int64), len(pairs))
    basis = post.basis[fitted]
    total = outer_sums(post.loading, post.precision, patterns.column, patterns.n_classes)
    np.add.at(total, new, (basis * width[:, None, :]) @ basis.transpose(0, 2, 1))
    return total
