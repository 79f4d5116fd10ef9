"""Regression with noise of heavy tails, for data with outliers."""

from __future__ import annotations

from typing import Any

from latlin.inference.engine import Engine
from latlin.linear._base import shared_options
from latlin.linear._predict import central_levels
from latlin.linear._regression import Regression
from latlin.numerics.arrays import Array
from latlin.numerics.options import check_choice, check_number
from latlin.numerics.rng import RandomState
from latlin.potentials.families import FAMILIES, Family

ROBUST = ("student-t", "laplace", "cauchy", "logistic", "huber")


class RobustRegression(Regression):
    """y = xᵀw + b + noise with tails heavier than a Gaussian's, w_j ~ N(0, (prior_scale/sd_j)²).

    Parameters
    ----------
    likelihood : {"student-t", "laplace", "cauchy", "logistic", "huber"}
        Family of the noise; "huber" is a Gaussian in the middle with exponential tails beyond `threshold`.
    noise_scale : "auto" or float
        The noise family's own scale parameter; "auto" learns it (see `hyperparameters`).
    df : "auto" or float
        Degrees of freedom of "student-t".
    threshold : "auto" or float
        Of "huber": where the tails begin, in units of `noise_scale`.
    engine : str or engine object
        "auto", "ep", "gkl", "lvb", "laplace" (not for "laplace" noise, which has a kink), "ai-kl", "map", or an object
        of `latlin.engines`.
    prior_scale : "auto", float or array of shape (n_features,)
        Prior standard deviation of a coefficient, for features of standard deviation one when `standardise`. "auto"
        learns it (see `hyperparameters`).
    ard : bool
        Learn one prior scale per feature (automatic relevance determination); needs prior_scale="auto".
    fit_intercept : bool
        Include an intercept, with a wide prior of its own around the mean of y.
    intercept_scale : float, optional
        Standard deviation of that prior; ten times that of y unless given.
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
    intercept_ : float
        At x = 0.
    noise_scale_, df_, threshold_ : float
        Those that the family has.
    posterior_, log_evidence_, evidence_kind_, prior_scale_, converged_, n_iter_, trace_
        As of `BayesianLinearRegression`.

    Notes
    -----
    `predict` gives the centre of the predictive distribution. Its standard deviation is infinite for df ≤ 2 and for
    Cauchy noise: use `predict_interval`. The posterior of a noise that is not log-concave may have several modes.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.linear import RobustRegression
    >>> X = np.arange(10.0)[:, None]
    >>> y = 2.0 * X[:, 0] + np.array([0.1, -0.2, 0.1, 0.3, -0.1, 30.0, 0.0, 0.2, -0.3, 0.1])
    >>> model = RobustRegression("student-t", df=3.0).fit(X, y)
    >>> model.coef_.round(1)
    array([2.])
    """

    _name = "robust"

    def __init__(
        self,
        likelihood: str = "student-t",
        *,
        noise_scale: Any = "auto",
        df: Any = 4.0,
        threshold: Any = 1.345,
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
        self.likelihood = likelihood
        self.noise_scale = noise_scale
        self.df = df
        self.threshold = threshold

    def _family(self) -> Family:
        return FAMILIES[check_choice("likelihood", self.likelihood, ROBUST)]

    def _given(self) -> dict[str, Any]:
        given = {"scale": self.noise_scale, "df": self.df, "threshold": self.threshold}
        return {"prior_scale": self.prior_scale, **{name: given[name] for name in self._family().parameters}}

    @property
    def noise_scale_(self) -> float:
        """Scale of the noise."""
        return self._fitted_value("scale")

    @property
    def df_(self) -> float:
        """Degrees of freedom of Student-t noise."""
        return self._fitted_value("df")

    @property
    def threshold_(self) -> float:
        """Where the tails of Huber noise begin, in units of its scale."""
        return self._fitted_value("threshold")


# --- Regression of a quantile instead of the mean.


class BayesianQuantileRegression(Regression):
    """P(y ≤ xᵀw + b) = quantile, w_j ~ N(0, (prior_scale/sd_j)²), by an asymmetric Laplace likelihood.

    Parameters
    ----------
    quantile : float
        Between 0 and 1; ½ is the median.
    noise_scale : "auto" or float
        Scale of the asymmetric Laplace density; "auto" learns it (see `hyperparameters`).
    engine : str or engine object
        "auto", "ep", "gkl", "map", or an object of `latlin.engines`.
    prior_scale : "auto", float or array of shape (n_features,)
        Prior standard deviation of a coefficient, for features of standard deviation one when `standardise`. "auto"
        learns it (see `hyperparameters`).
    ard : bool
        Learn one prior scale per feature (automatic relevance determination); needs prior_scale="auto".
    fit_intercept : bool
        Include an intercept, with a wide prior of its own around the mean of y.
    intercept_scale : float, optional
        Standard deviation of that prior; ten times that of y unless given.
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
    noise_scale_ : float
    coef_, coef_std_ : ndarray of shape (n_features,)
    intercept_ : float
        At x = 0.
    posterior_, log_evidence_, evidence_kind_, prior_scale_, converged_, n_iter_, trace_
        As of `BayesianLinearRegression`.

    Notes
    -----
    `predict` gives the quantile, `quantile_interval` where it lies. The likelihood is a device to find it: its density
    is not that of y, so that evidences of different quantiles, and intervals for new observations, say little about the
    data. Intervals of coefficients are of the right order (Yu and Moyeed, 2001).

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.linear import BayesianQuantileRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((400, 1))
    >>> y = X[:, 0] * (1.0 + rng.exponential(1.0, 400))
    >>> upper = BayesianQuantileRegression(0.9).fit(X, y).predict(X)
    >>> round(float(np.mean(y <= upper)), 2)
    0.9
    """

    _name = "quantile"

    def __init__(
        self,
        quantile: float = 0.5,
        *,
        noise_scale: Any = "auto",
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
        self.quantile = quantile
        self.noise_scale = noise_scale

    def _family(self) -> Family:
        return FAMILIES["asymmetric-laplace"].fixed(
            quantile=check_number("quantile", self.quantile, above=0.0, below=1.0)
        )

    def _given(self) -> dict[str, Any]:
        return {"prior_scale": self.prior_scale, "scale": self.noise_scale}

    def quantile_interval(self, X: Any, coverage: float = 0.9, offset: Any = None) -> Array:
        """Where the quantile itself lies with probability `coverage`: columns low and high, one row per row."""
        _, (at,), dtype = self._latents(X, offset)
        return at.quantile(central_levels(coverage)).astype(dtype)

    @property
    def noise_scale_(self) -> float:
        """Scale of the asymmetric Laplace density."""
        return self._fitted_value("scale")
