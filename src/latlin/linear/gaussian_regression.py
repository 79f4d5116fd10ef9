"""Linear regression with Gaussian noise: everything exact."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from latlin.inference.engine import Engine
from latlin.linear._base import shared_options
from latlin.linear._regression import Regression
from latlin.linear._stream import Streaming
from latlin.numerics.options import AutoOrNumbers
from latlin.numerics.rng import RandomState
from latlin.potentials.families import FAMILIES, Family
from latlin.priors.base import PriorsLike


class BayesianLinearRegression(Streaming, Regression):
    """y = xᵀw + b + noise, w_j ~ N(0, (prior_scale/sd_j)²): exact posterior, exact evidence.

    Parameters
    ----------
    engine : str or engine object
        "auto" is exact; any engine of `latlin.engines` can be named.
    prior_scale : "auto", float or array of shape (n_features,)
        Prior standard deviation of a coefficient, for features of standard deviation one when `standardise`. "auto"
        learns it (see `hyperparameters`).
    prior_mean : float, "auto" or array of shape (n_features,)
        Prior mean of a coefficient, in the units of `prior_scale`. "auto" learns one for all of them: what
        coefficients that are alike have in common.
    noise_scale : "auto" or float
        Standard deviation of the noise.
    ard : bool
        Learn one prior scale per feature (automatic relevance determination); needs prior_scale="auto".
    fit_intercept : bool
        Include an intercept, with a wide prior of its own around the mean of y.
    intercept_scale : float, optional
        Standard deviation of that prior; ten times that of y unless given. The intercept is measured at the mean of the
        features when they are dense and standardised, else at x = 0.
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
    coef_, coef_std_ : ndarray of shape (n_features,)
        Posterior means and standard deviations.
    intercept_ : float
        At x = 0.
    posterior_ : Posterior
        Over the coefficients and, last, the intercept at the mean of the features (at 0 if they were not centred).
    log_evidence_ : float
        log p(y), every constant included; `evidence_kind_` says whether it is exact.
    prior_scale_, prior_mean_, noise_scale_ : float or ndarray
    converged_, n_iter_, trace_ : bool, int, ndarray

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.linear import BayesianLinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((50, 2))
    >>> y = X @ [1.0, -0.5] + 0.1 * rng.standard_normal(50)
    >>> model = BayesianLinearRegression().fit(X, y)
    >>> model.coef_.round(1), model.hyperparameters_.manner
    (array([ 1. , -0.5]), 'integrated')
    """

    _name = "linear"

    def __init__(
        self,
        *,
        engine: str | Engine = "auto",
        prior_scale: AutoOrNumbers = "auto",
        prior_mean: ArrayLike = 0.0,
        noise_scale: AutoOrNumbers = "auto",
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
        self.noise_scale = noise_scale

    def _family(self) -> Family:
        return FAMILIES["gaussian"]

    def _given(self) -> dict[str, Any]:
        return {"prior_scale": self.prior_scale, "scale": self.noise_scale}

    @property
    def noise_scale_(self) -> float:
        """Standard deviation of the noise."""
        return self._fitted_value("scale")
