"""Regression with priors that put most coefficients near zero."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted

from latlin import potentials
from latlin.inference.engine import Engine
from latlin.inference.evidence.terms import EvidenceGradient
from latlin.inference.infer import infer
from latlin.inference.model import LatentLinearModel, SiteFactor
from latlin.inference.posterior import StoredModel
from latlin.linear._base import shared_options
from latlin.linear._problem import CoefficientPrior, Design, Values, locate_and_scale
from latlin.linear._regression import Regression
from latlin.numerics.alerts import ConvergenceWarning
from latlin.numerics.arrays import Array
from latlin.numerics.options import AutoOrNumbers, check_choice
from latlin.numerics.rng import RandomState
from latlin.potentials.base import Potential
from latlin.potentials.families import FAMILIES, Family
from latlin.potentials.ranges import Range
from latlin.priors.base import PriorsLike

#: noise about the linear predictor
LOCATION = ("gaussian", "student-t", "laplace", "cauchy", "logistic")

# --- Priors of coefficients that are sites: one potential per coefficient, or a spike and a slab.

#: nodes over which the share of the slab is averaged
NODES = 64


@dataclass(frozen=True)
class SitePrior:
    """One potential per coefficient, of its family's own scale prior_scale / spread_j."""

    template: Potential

    def _names(self) -> dict[str, str]:
        """The estimator's name of each parameter of the potential but its scale."""
        return {f"prior_{name}": name for name in self.template.free if name != "scale"}

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(self._names())

    def first(self) -> dict[str, Any]:
        return {own: float(self.template.value_of(name)) for own, name in self._names().items()}

    def ranges(self, unit: float) -> dict[str, Range]:
        return {own: self.template.free[name] for own, name in self._names().items()}

    def factor(self, design: Design, intercept: tuple[float, float], values: Values) -> SiteFactor:
        loc, scale = locate_and_scale(design, intercept, values)
        shapes = {name: values[own] for own, name in self._names().items()}
        return SiteFactor(None, self.template.replace(loc=loc, scale=scale, **shapes))

    def gradient(self, design: Design, values: Values, slopes: EvidenceGradient) -> dict[str, Any]:
        found = slopes.sites[0]
        shapes = {own: float(np.sum(found[name])) for own, name in self._names().items()}
        return {"prior_scale": found["scale"][: design.n_features] / design.spread, **shapes}


@dataclass(frozen=True)
class SpikePrior:
    """w_j is next to nothing, or with a chance N(0, (prior_scale / spread_j)²); the intercept is wide for certain."""

    #: standard deviation of the spike, as a share of the slab's, and the chance of the intercept's slab
    spike: float = 0.02
    certain: float = 1.0 - 1e-9
    parameters: tuple[str, ...] = ("prior_probability",)

    def first(self) -> dict[str, Any]:
        return {"prior_probability": 0.2}

    def ranges(self, unit: float) -> dict[str, Range]:
        return {"prior_probability": potentials.SpikeAndSlab.free["probability"]}

    def factor(self, design: Design, intercept: tuple[float, float], values: Values) -> SiteFactor:
        loc, slab = locate_and_scale(design, intercept, values)
        # the spike and the slab are about zero: an intercept about another number has a slab that reaches it
        slab = np.hypot(slab, loc)
        chance = np.where(np.arange(len(slab)) < design.n_features, values["prior_probability"], self.certain)
        return SiteFactor(None, potentials.SpikeAndSlab(chance, slab, self.spike * slab))

    def gradient(self, design: Design, values: Values, slopes: EvidenceGradient) -> dict[str, Any]:
        found, some = slopes.sites[0], slice(0, design.n_features)
        wide = found["slab"][some] + self.spike * found["spike"][some]
        return {"prior_scale": wide / design.spread, "prior_probability": float(np.sum(found["probability"][some]))}


def slab_shares(mean: Array, sd: Array, scale: Array, chance: float) -> Array:
    """⟨slab(w)/(slab(w) + spike(w))⟩ under N(w | mean, sd²), by Gauss–Hermite nodes."""
    node, weight = np.polynomial.hermite_e.hermegauss(NODES)
    w = mean[:, None] + sd[:, None] * node
    slab = potentials.Gaussian(0.0, 1.0).log_density(w / scale[:, None]) + np.log(chance)
    narrow = SpikePrior.spike
    spike = potentials.Gaussian(0.0, 1.0).log_density(w / (narrow * scale[:, None])) + np.log((1.0 - chance) / narrow)
    return np.asarray(expit(slab - spike) @ (weight / weight.sum()))


SPARSE: dict[str, CoefficientPrior] = {
    "laplace": SitePrior(potentials.Laplace()),
    "student-t": SitePrior(potentials.StudentT(3.0)),
    "generalised-normal": SitePrior(potentials.GeneralisedNormal(0.8)),
    "horseshoe": SitePrior(potentials.Horseshoe()),
    "spike-and-slab": SpikePrior(),
}


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
        noise_scale: AutoOrNumbers = "auto",
        df: Any = 4.0,
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
        self.prior = prior
        self.likelihood = likelihood
        self.prior_df = prior_df
        self.prior_shape = prior_shape
        self.prior_probability = prior_probability
        self.noise_scale = noise_scale
        self.df = df

    def _family(self) -> Family:
        return FAMILIES[check_choice("likelihood", self.likelihood, LOCATION)]

    def _prior(self) -> CoefficientPrior:
        return SPARSE[check_choice("prior", self.prior, SPARSE)]

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
