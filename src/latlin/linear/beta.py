"""Regression of shares strictly between zero and one."""

from __future__ import annotations

from typing import Any

from latlin.inference.engine import Engine
from latlin.linear._base import shared_options
from latlin.linear._regression import Regression
from latlin.numerics.options import AutoOrNumbers
from latlin.numerics.rng import RandomState
from latlin.potentials.families import FAMILIES, Family
from latlin.priors.base import PriorsLike


class BayesianBetaRegression(Regression):
    """Shares y in (0, 1) with mean σ(xᵀw + b) and a beta density, w_j ~ N(0, (prior_scale/sd_j)²).

    Parameters
    ----------
    precision : "auto" or float
        φ: the variance of y is μ(1 − μ)/(1 + φ).
    engine : str or engine object
        "auto", "laplace", "ep", "gkl", "map", or an object of `latlin.engines`.
    prior_scale : "auto", float or array of shape (n_features,)
        Prior standard deviation of a coefficient, for features of standard deviation one when `standardise`. "auto"
        learns it (see `hyperparameters`).
    ard : bool
        Learn one prior scale per feature (automatic relevance determination); needs prior_scale="auto".
    fit_intercept : bool
        Include an intercept, with a wide prior of its own around the value zero.
    intercept_scale : float, optional
        Standard deviation of that prior, 10 unless given.
    standardise : bool
        Measure `prior_scale` in standard deviations of the features. Coefficients stay in the user's units.
    hyperparameters : {"auto", "maximise", "integrate", "fixed"}
        What is done with everything that is "auto": its penalised optimum, an average over its posterior, or nothing.
        "auto" integrates where that is cheap: few hyperparameters and small problems.
    priors : dict, Prior or None
        Of what is learnt, by name, from `latlin.priors`; `Flat()` for all gives plain evidence maximisation. Weakly
        informative in the units of the data unless given; `hyperparameters_` shows them.
    warm_start : bool
        Start from the last fit.
    random_state : int, Generator, RandomState or None
        For draws.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    precision_ : float
    coef_, coef_std_ : ndarray of shape (n_features,)
        Changes of the log odds of the mean.
    intercept_ : float
        At x = 0.
    posterior_, log_evidence_, evidence_kind_, prior_scale_, converged_, n_iter_, trace_
        As of `BayesianLinearRegression`.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.linear import BayesianBetaRegression
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0], [4.0]])
    >>> model = BayesianBetaRegression(prior_scale=1.0).fit(X, [0.1, 0.25, 0.4, 0.7, 0.8])
    >>> bool(0.4 < model.predict([[2.0]])[0] < 0.5)
    True
    """

    _name = "beta"

    def __init__(
        self,
        *,
        precision: AutoOrNumbers = "auto",
        engine: str | Engine = "auto",
        prior_scale: AutoOrNumbers = "auto",
        ard: bool = False,
        fit_intercept: bool = True,
        intercept_scale: float | None = None,
        standardise: bool = True,
        hyperparameters: str = "auto",
        priors: PriorsLike = None,
        warm_start: bool = False,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(**shared_options(locals()))
        self.precision = precision

    def _family(self) -> Family:
        return FAMILIES["beta"]

    def _given(self) -> dict[str, Any]:
        return {"prior_scale": self.prior_scale, "precision": self.precision}

    @property
    def precision_(self) -> float:
        """φ of the beta density."""
        return self._fitted_value("precision")
