"""Poisson regression: counts whose logarithmic rate is linear."""

from __future__ import annotations

from typing import Any

import numpy as np

from latlin.inference.block_model import BlockModel
from latlin.linear._block_fitting import pearson
from latlin.linear._families import Count, Family
from latlin.linear._predict import Latent
from latlin.linear._regression import Regression
from latlin.linear._stream import Streaming
from latlin.numerics.arrays import Array


class BayesianPoissonRegression(Streaming, Regression):
    """y ~ Poisson(exp(xᵀw + b + offset)), w_j ~ N(0, (prior_scale/sd_j)²).

    The variance of a Poisson count is its mean. Real counts often vary more (over-dispersion); then the intervals of
    this model are too narrow, which `summary()` and held-out coverage show.

    Parameters
    ----------
    engine : str or engine object
        "auto", "laplace", "ep", "gkl", "ai-kl", "map", or an object of `latlin.engines`.
    prior_scale : "auto", float or array of shape (n_features,)
        Prior standard deviation of a coefficient, for features of standard deviation one when `standardise`. "auto"
        maximises the evidence.
    ard : bool
        Learn one prior scale a feature (automatic relevance determination); needs prior_scale="auto".
    fit_intercept : bool
        Include an intercept, with a wide prior of its own around the logarithm of the mean rate.
    intercept_scale : float, optional
        Standard deviation of that prior, 5 unless told.
    standardise : bool
        Measure `prior_scale` in standard deviations of the features. Coefficients stay in the user's units.
    warm_start : bool
        Start from the last fit.
    random_state : int, Generator, RandomState or None
        For draws.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    coef_, coef_std_ : ndarray of shape (n_features,)
    intercept_ : float
        At x = 0.
    posterior_, log_evidence_, evidence_kind_, prior_scale_, converged_, n_iter_, trace_
        As of `BayesianLinearRegression`.
    dispersion_ : float
        Pearson's statistic of the training data a degree of freedom: 1 for Poisson counts, more if over-dispersed.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.linear import BayesianPoissonRegression
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> model = BayesianPoissonRegression(prior_scale=1.0).fit(X, [1, 2, 8, 19])
    >>> model.predict_interval([[2.5]], coverage=0.9).tolist()
    [[6.0, 19.0]]
    """

    _extras = ("dispersion_",)

    def _family(self) -> Family:
        return Count()

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, offset: Any = None, *, checkpoint: Any = None
    ) -> Any:
        """Learn from rows X (n, n_features), dense or sparse, and counts y (n,).

        Parameters
        ----------
        X : array, sparse matrix, Dask collection, large memory map or blocks of shape (n, n_features)
            Finite numbers; missing values (NaN) are refused. Rows that are not all in memory are fitted block by block.
        y : array of shape (n,)
            Counts; other numbers of at least zero, such as averaged counts, are taken with y! = Γ(y + 1).
        sample_weight : array of shape (n,), optional
            A row of weight 2 counts as two rows.
        offset : array of shape (n,), optional
            Added to the logarithmic rate with coefficient one, such as the logarithm of an exposure.
        checkpoint : path, optional
            For rows in blocks: keep the state of the fit in this file (several fits: this name and a number), and go
            on from it if it exists.
        """
        super().fit(X, y, sample_weight, offset, checkpoint=checkpoint)
        self.dispersion_ = self._dispersion()
        return self

    def _dispersion(self) -> float:
        """Σ weight (y − rate)²/rate over Σ weight − number of unknowns, at the posterior mean."""
        model, mean = self._fits[0].posterior.model, self._fits[0].posterior.mean
        if isinstance(model, BlockModel):
            statistic, total = pearson(model, mean)
            return statistic / max(total - len(mean), 1.0)
        sites = model.sites[-1]
        rate = np.exp(sites.H @ mean + (0.0 if sites.offset is None else sites.offset))
        y = np.asarray(sites.potential.y)  # type: ignore[attr-defined]
        weight = np.ones_like(rate) if sites.weight is None else sites.weight
        return float(np.sum(weight * (y - rate) ** 2 / rate) / max(weight.sum() - len(mean), 1.0))

    def _centre(self, at: Latent) -> Array:
        return np.asarray(self._likelihood().predictive(at.mean, at.variance).mean)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags
