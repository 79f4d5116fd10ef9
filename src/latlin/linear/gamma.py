"""Regression of positive amounts: times, costs, sizes."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from latlin.inference.engine import Engine
from latlin.linear._base import shared_options
from latlin.linear._regression import AUTO, ExposedFamily
from latlin.numerics.rng import RandomState
from latlin.potentials.families import AMOUNTS, FAMILIES


class BayesianGammaRegression(ExposedFamily):
    """Positive y with size exposure·exp(xᵀw + b), w_j ~ N(0, (prior_scale/sd_j)²).

    Parameters
    ----------
    family : {"gamma", "inverse-gaussian", "log-normal", "tweedie", "auto"}
        exp(xᵀw + b) is the mean of y, of "log-normal" its median. "tweedie" also takes zeros. "auto" fits the first
        three and keeps the simplest one whose log evidence is within one nat of the best; `family_` and `choice_` say
        which and why.
    shape : "auto" or float
        Of "gamma" the variance is μ²/shape, of "inverse-gaussian" μ³/shape.
    scale : "auto" or float
        Standard deviation of log y, of "log-normal".
    power, dispersion : "auto" or float
        Of "tweedie": the variance is dispersion·μ^power with a power between 1 and 2.
    engine : str or engine object
        "auto", "laplace", "ep", "gkl", "map", or an object of `latlin.engines`.
    prior_scale : "auto", float or array of shape (n_features,)
        Prior standard deviation of a coefficient, for features of standard deviation one when `standardise`. "auto"
        learns it (see `hyperparameters`).
    ard : bool
        Learn one prior scale per feature (automatic relevance determination); needs prior_scale="auto".
    fit_intercept : bool
        Include an intercept, with a wide prior of its own around the logarithm of the mean rate.
    intercept_scale : float, optional
        Standard deviation of that prior, 5 unless given.
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
    family_ : str
        The family that was fitted.
    choice_ : str
        What "auto" chose and why; empty otherwise.
    parameters_ : dict
        The family's own parameters, given or learnt, by name.
    coef_, coef_std_ : ndarray of shape (n_features,)
    intercept_ : float
        At x = 0.
    posterior_, log_evidence_, evidence_kind_, prior_scale_, converged_, n_iter_, trace_
        As of `BayesianLinearRegression`.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.linear import BayesianGammaRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 1))
    >>> y = np.exp(1.0 + 0.5 * X[:, 0]) * rng.gamma(4.0, 0.25, 200)
    >>> model = BayesianGammaRegression().fit(X, y)
    >>> model.coef_.round(1), round(model.parameters_["shape"])
    (array([0.5]), 4)
    """

    _families = MappingProxyType({name: FAMILIES[name] for name in AMOUNTS})
    _candidates = ("gamma", "log-normal", "inverse-gaussian")

    def __init__(
        self,
        family: str = "gamma",
        *,
        shape: Any = AUTO,
        scale: Any = AUTO,
        power: Any = AUTO,
        dispersion: Any = AUTO,
        engine: str | Engine = "auto",
        prior_scale: Any = "auto",
        ard: bool = False,
        fit_intercept: bool = True,
        intercept_scale: float | None = None,
        standardise: bool = True,
        hyperparameters: str = "auto",
        priors: Any = None,
        warm_start: bool = False,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(**shared_options(locals()))
        self.family = family
        self.shape = shape
        self.scale = scale
        self.power = power
        self.dispersion = dispersion
