"""Logistic and probit regression."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from latlin import potentials
from latlin.linear._classification import Classification
from latlin.linear._families import Binary, Family
from latlin.linear._stream import StreamingClasses

Array = NDArray[np.float64]


class BayesianLogisticRegression(StreamingClasses, Classification):
    """P(y = 1) = σ(xᵀw + b), w_j ~ N(0, (prior_scale/sd_j)²); several classes one against the rest.

    Parameters
    ----------
    engine : str or engine object
        "auto", "laplace", "lvb", "ep", "gkl", "ai-kl", "map", or an object of `latlin.engines`.
    prior_scale : "auto", float or array of shape (n_features,)
        Prior standard deviation of a coefficient, for features of standard deviation one when `standardise`. "auto"
        maximises the evidence.
    ard : bool
        Learn one prior scale a feature (automatic relevance determination); needs prior_scale="auto".
    fit_intercept : bool
        Include an intercept, with a wide prior of its own.
    intercept_scale : float, optional
        Standard deviation of that prior, 10 unless told. The intercept is measured at the mean of the features when
        they are dense and standardised, else at x = 0.
    standardise : bool
        Measure `prior_scale` in standard deviations of the features. Coefficients stay in the user's units.
    n_jobs : int, optional
        Classes fitted at the same time.
    warm_start : bool
        Start from the last fit.
    random_state : int, Generator, RandomState or None
        For draws.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_, coef_std_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Posterior means and standard deviations; of the second class of two, or of each class against the rest.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        At x = 0.
    posterior_ : Posterior or list of Posterior
        Over the coefficients and, last, the intercept at the mean of the features (at 0 if they were not centred).
    log_evidence_ : float or ndarray of shape (n_classes,)
        log p(y), or a bound or an approximation: see `evidence_kind_`. One a class.
    prior_scale_ : float or ndarray
    converged_, n_iter_, trace_ : bool, int or ndarray, ndarray or list

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.linear import BayesianLogisticRegression
    >>> X = np.array([[-2.0], [-1.0], [-0.5], [0.4], [1.2], [2.5]])
    >>> model = BayesianLogisticRegression(prior_scale=2.0).fit(X, ["no", "no", "yes", "no", "yes", "yes"])
    >>> model.predict([[3.0]]).tolist(), model.evidence_kind_
    (['yes'], 'lower bound')
    """

    def _family(self) -> Family:
        return Binary(potentials.Logit)


class BayesianProbitRegression(StreamingClasses, Classification):
    """P(y = 1) = Φ(xᵀw + b) with the normal distribution function Φ; else as `BayesianLogisticRegression`.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.linear import BayesianProbitRegression
    >>> X = np.array([[-2.0], [-1.0], [-0.5], [0.4], [1.2], [2.5]])
    >>> model = BayesianProbitRegression(engine="ep", prior_scale=1.0).fit(X, [0, 0, 1, 0, 1, 1])
    >>> model.predict_proba([[0.0]]).round(2)
    array([[0.5, 0.5]])
    """

    def _family(self) -> Family:
        return Binary(potentials.Probit)

    def _link(self, x: Array) -> Array:
        return np.asarray(ndtr(x))
