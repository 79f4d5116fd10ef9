"""Regression with priors that put most coefficients near zero."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from latlin.inference.engine import Engine
from latlin.inference.infer import infer
from latlin.inference.model import LatentLinearModel
from latlin.inference.posterior import StoredModel
from latlin.linear._base import shared_options
from latlin.linear._design import SPARSE, CoefficientPrior, slab_shares
from latlin.linear._problem import LOCATION
from latlin.linear._regression import Regression
from latlin.numerics.alerts import ConvergenceWarning
from latlin.numerics.arrays import Array
from latlin.numerics.options import one_of
from latlin.numerics.rng import RandomState
from latlin.potentials.families import Family


class SparseRegression(Regression):
    """y = xᵀw + b + noise, with a prior of the coefficients that is peaked at zero or has heavy tails.

    Parameters
    ----------
    prior : {"laplace", "student-t", "generalised-normal", "horseshoe", "spike-and-slab"}
        Family of the prior, of scale prior_scale/sd_j (the family's own scale parameter; of "spike-and-slab" the
        standard deviation of the slab, fifty times that of the spike).
    likelihood : {"gaussian", "student-t", "laplace", "cauchy", "logistic"}
        Family of the noise.
    prior_df : "auto" or float
        Degrees of freedom of the prior "student-t".
    prior_shape : "auto" or float
        Power of the prior "generalised-normal": 1 is "laplace", less is sparser.
    prior_probability : "auto" or float
        Chance that a coefficient comes from the slab of "spike-and-slab".
    noise_scale : "auto" or float
        Scale of the noise; "auto" learns it (see `hyperparameters`).
    df : "auto" or float
        Degrees of freedom of the noise "student-t".
    engine : str or engine object
        "auto", "gkl", "ep", "lvb", "ai-kl", "map", or an object of `latlin.engines`; not "laplace" where there is a
        kink.
    prior_scale : "auto", float or array of shape (n_features,)
        Scale of the prior, for features of standard deviation one when `standardise`. "auto" learns it (see
        `hyperparameters`).
    ard : bool
        Learn one prior scale per feature; needs prior_scale="auto".
    fit_intercept : bool
        Include an intercept, with a wide prior of the same family around the mean of y.
    intercept_scale : float, optional
        Scale of that prior; ten standard deviations of y unless given.
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
    noise_scale_, df_, prior_df_, prior_shape_ : float
        Those that the families have; also `prior_probability_`.
    posterior_, log_evidence_, evidence_kind_, prior_scale_, converged_, n_iter_, trace_
        As of `BayesianLinearRegression`.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.linear import SparseRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((40, 10))
    >>> y = 3.0 * X[:, 0] + 0.5 * rng.standard_normal(40)
    >>> model = SparseRegression(engine="gkl").fit(X, y)
    >>> int(np.sum(np.abs(model.coef_) > 0.5))
    1
    """

    _name = "sparse"

    def __init__(
        self,
        prior: str = "laplace",
        likelihood: str = "gaussian",
        *,
        prior_df: Any = 3.0,
        prior_shape: Any = 0.8,
        prior_probability: Any = "auto",
        noise_scale: Any = "auto",
        df: Any = 4.0,
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
        self.prior = prior
        self.likelihood = likelihood
        self.prior_df = prior_df
        self.prior_shape = prior_shape
        self.prior_probability = prior_probability
        self.noise_scale = noise_scale
        self.df = df

    def _family(self) -> Family:
        return LOCATION[one_of("likelihood", self.likelihood, LOCATION)]

    def _prior(self) -> CoefficientPrior:
        return SPARSE[one_of("prior", self.prior, SPARSE)]

    def _given(self) -> dict[str, Any]:
        given = {"scale": self.noise_scale, "df": self.df}
        likelihood = {name: given[name] for name in self._family().parameters}
        return {
            "prior_scale": self.prior_scale,
            **likelihood,
            **{name: getattr(self, name) for name in self._prior().parameters},
        }

    @property
    def noise_scale_(self) -> float:
        """Scale of the noise."""
        return self._fitted_value("scale")

    @property
    def df_(self) -> float:
        """Degrees of freedom of Student-t noise."""
        return self._fitted_value("df")

    @property
    def prior_df_(self) -> float:
        """Degrees of freedom of a Student-t prior."""
        return self._fitted_value("prior_df")

    @property
    def prior_probability_(self) -> float:
        """Chance that a coefficient comes from the slab."""
        return self._fitted_value("prior_probability")

    def estimated_log_evidence(self) -> float | None:
        """The log evidence by expectation propagation, where `log_evidence_` is a lower bound.

        With many more features than rows and a prior with a peak the bound may be many nat too low, so that it loses
        against an exact ridge regression that is worse. Where hyperparameters are averaged over, the difference between
        the two is taken at one of their values. None where expectation propagation does
        not converge or the training rows are gone.
        """
        check_is_fitted(self, "posterior_")
        model = self._held_model()
        if self.evidence_kind_ != "lower bound" or model is None:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            matched = infer(model, "ep")
        bound = infer(model, "gkl") if self._fits[0].shares else self._fits[0].posterior
        return float(self.log_evidence_ + matched.log_evidence - bound.log_evidence) if matched.converged else None

    def _footer(self) -> str:
        said = super()._footer()
        estimate = self.estimated_log_evidence() if self._is_wide() else None
        if estimate is None:
            return said
        return (
            f"{said}\nexpectation propagation estimates the log evidence as {estimate:.4f}: with more features than "
            "rows the lower bound may be far below it; compare with exact models by the estimate"
        )

    def _is_wide(self) -> bool:
        """More features than rows, which is where the bound is loose."""
        model = self._held_model()
        return model is not None and int(model.sites[-1].size or 0) < self.n_features_in_

    def _held_model(self) -> LatentLinearModel | None:
        """The model with its rows, where these are in memory."""
        model = self._fits[0].posterior.model
        return model if isinstance(model, LatentLinearModel) and not isinstance(model, StoredModel) else None

    def inclusion_probabilities(self) -> Array:
        """The chance that each coefficient comes from the slab of a "spike-and-slab" prior, given the data.

        For a coefficient N(m, v) under the posterior, the average over it of slab density over total density.
        """
        if self.prior != "spike-and-slab":
            raise ValueError(f"inclusion_probabilities() needs prior='spike-and-slab', got {self.prior!r}")
        check_is_fitted(self, "posterior_")
        fit = self._fits[0]
        scale = np.broadcast_to(fit.values["prior_scale"], self._design.n_features) / self._design.spread
        return slab_shares(self.coef_, self.coef_std_, scale, fit.values["prior_probability"])

    @property
    def prior_shape_(self) -> float:
        """Power of a generalised normal prior."""
        return self._fitted_value("prior_shape")
