"""Poisson regression: counts whose logarithmic rate is linear."""

from __future__ import annotations

from latlin.linear._model_checks import Dispersed
from latlin.linear._problem import AVERAGED_COUNTS
from latlin.linear._regression import Exposed
from latlin.linear._stream import Streaming
from latlin.potentials.families import Family


class BayesianPoissonRegression(Dispersed, Streaming, Exposed):
    """y ~ Poisson(exp(xᵀw + b + offset)), w_j ~ N(0, (prior_scale/sd_j)²).

    The variance of a Poisson count is its mean. Real counts often vary more (over-dispersion); then the intervals of
    this model are too narrow: `fit` warns, `summary()` repeats it, and `BayesianCountRegression` has families that vary
    more.

    Parameters
    ----------
    engine : str or engine object
        "auto", "laplace", "ep", "gkl", "ai-kl", "map", or an object of `latlin.engines`.
    prior_scale : "auto", float or array of shape (n_features,)
        Prior standard deviation of a coefficient, for features of standard deviation one when `standardise`. "auto"
        maximises the evidence.
    ard : bool
        Learn one prior scale per feature (automatic relevance determination); needs prior_scale="auto".
    fit_intercept : bool
        Include an intercept, with a wide prior of its own around the logarithm of the mean rate.
    intercept_scale : float, optional
        Standard deviation of that prior, 5 unless given.
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
        Pearson's statistic of the training data per degree of freedom: 1 for Poisson counts, more if over-dispersed.
    finding_ : str
        What the dispersion says where it is beyond chance, or empty.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.linear import BayesianPoissonRegression
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> model = BayesianPoissonRegression(prior_scale=1.0).fit(X, [1, 2, 8, 19])
    >>> model.predict_interval([[2.5]], coverage=0.9).tolist()
    [[6.0, 19.0]]
    """

    _name = "poisson"

    def _family(self) -> Family:
        return AVERAGED_COUNTS
