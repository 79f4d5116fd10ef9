"""Regression of counts by families that vary more than Poisson's, or have more zeros."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from latlin.inference.diagnosis.dispersion import BEYOND
from latlin.inference.engine import Engine
from latlin.linear._base import shared_options
from latlin.linear._model_checks import Dispersed
from latlin.linear._regression import AUTO, Exposed, ExposedFamily
from latlin.linear._stream import Streaming
from latlin.numerics.rng import RandomState
from latlin.potentials import families
from latlin.potentials.checks import countable, finite, refuse
from latlin.potentials.families import FAMILIES, Family
from latlin.potentials.poisson import Poisson

#: families of counts without zeros of their own, with more of them, and with any number
OF_COUNTS = ("poisson", "negative-binomial")
WITH_ZEROS = ("zero-inflated-poisson", "zero-inflated-negative-binomial")
WITHOUT_ZEROS = ("hurdle-poisson", "hurdle-negative-binomial")


class PoissonRate(Poisson):
    """Poisson sites that also take non-integer y ≥ 0, such as averaged counts: y! becomes Γ(y + 1)."""

    def __init__(self, y: ArrayLike) -> None:
        values = finite("y", y)
        refuse("y", values, values < 0, "numbers of at least zero")
        self._store(y=countable("y", values))


AVERAGED_COUNTS = replace(FAMILIES["poisson"], template=PoissonRate(0.0))
COUNTS = {name: FAMILIES[name] for name in families.COUNTS} | {"poisson": AVERAGED_COUNTS}


class BayesianCountRegression(Dispersed, ExposedFamily):
    """Counts with mean exposure·exp(xᵀw + b), w_j ~ N(0, (prior_scale/sd_j)²), in a family that evidence can choose.

    Parameters
    ----------
    family : str
        "auto", "poisson", "negative-binomial", "generalised-poisson", "zero-inflated-poisson",
        "zero-inflated-negative-binomial", "hurdle-poisson" or "hurdle-negative-binomial". "auto" fits Poisson and
        negative binomial, their zero-inflated families where there are more zeros than Poisson's, and hurdles where
        there are fewer, as of counts that are recorded only from one on; it keeps
        the simplest one whose log evidence is within one nat of the best; `family_` and `choice_` say which and why.
    dispersion : "auto" or float
        Of a negative binomial count with mean μ the variance is μ + dispersion·μ².
    probability : "auto" or float
        Share of rows that are zero whatever their mean (zero-inflated), or share of zeros (hurdle).
    clustering : "auto" or float
        Of "generalised-poisson": between 0 (Poisson) and 1.
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
    dispersion_ : float
        Pearson's statistic of the training data per degree of freedom; 1 if counts vary as the family says.
    finding_ : str
        What that says where it is beyond chance, or empty.
    coef_, coef_std_ : ndarray of shape (n_features,)
    intercept_ : float
        At x = 0.
    posterior_, log_evidence_, evidence_kind_, prior_scale_, converged_, n_iter_, trace_
        As of `BayesianLinearRegression`.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.linear import BayesianCountRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 1))
    >>> y = rng.poisson(np.exp(1.0 + X[:, 0]) * rng.gamma(1.0, 1.0, 200))
    >>> model = BayesianCountRegression().fit(X, y)
    >>> model.family_
    'negative-binomial'
    """

    _families = COUNTS
    _candidates = (*OF_COUNTS, *WITH_ZEROS, *WITHOUT_ZEROS)
    _extras = (*Dispersed._extras, *ExposedFamily._extras)

    def __init__(
        self,
        family: str = AUTO,
        *,
        dispersion: Any = AUTO,
        probability: Any = AUTO,
        clustering: Any = AUTO,
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
        self.dispersion = dispersion
        self.probability = probability
        self.clustering = clustering

    def _is_worth(self, name: str, tried: Mapping[str, Any]) -> bool:
        """Zeros need a family of their own only where there are more than Poisson's expects, or fewer.

        A negative binomial count may have explained more of them by its dispersion, at the price of the others.
        """
        best = max(tried, key=lambda each: tried[each].log_evidence_)
        if name in WITHOUT_ZEROS:
            return bool(tried[best]._more_zeros < -BEYOND) or best in WITHOUT_ZEROS
        if name == "zero-inflated-poisson":
            return "poisson" not in tried or tried["poisson"]._more_zeros > BEYOND
        return name != "zero-inflated-negative-binomial" or best not in OF_COUNTS or tried[best]._more_zeros > BEYOND


# --- Poisson regression: counts whose logarithmic rate is linear.


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
        learns it (see `hyperparameters`).
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
    [[6.0, 18.0]]
    """

    _name = "poisson"

    def _family(self) -> Family:
        return AVERAGED_COUNTS
