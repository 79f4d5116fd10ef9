"""Families of responses: a potential from what was observed, the numbers it has to learn, and the scale of its link."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from latlin import potentials
from latlin.additive.expression import evaluate, is_name
from latlin.additive.formula import ResponseSide
from latlin.additive.frame import column, is_category, n_rows, numbers
from latlin.additive.term import SD_PRIOR, Values
from latlin.hyper.space import Hyperparameter
from latlin.numerics.arrays import Array
from latlin.potentials.base import Potential
from latlin.priors import Beta, Exponential, Gamma, HalfStudentT, LogNormal
from latlin.priors.base import Prior


@dataclass(frozen=True)
class ObservedResponse:
    """What was observed, one number per row.

    Attributes
    ----------
    y : array of shape (n,)
    trials, se, weight, event : array of shape (n,) or None
    classes : array of shape (2,) or None
        The labels of a response with two of them; y is 1 for the second.
    """

    y: Array
    trials: Array | None = None
    se: Array | None = None
    weight: Array | None = None
    classes: NDArray[Any] | None = None
    event: Array | None = None


@dataclass(frozen=True)
class LearntParameter:
    """A parameter of a family that the data have to say.

    Attributes
    ----------
    name : str
        In tables: "sigma", "dispersion".
    parameter : str
        The argument of the potential.
    prior : callable
        unit → Prior.
    start : float
        In units, where `in_units`.
    in_units : bool
        Whether it grows with the unit of the response.
    """

    name: str
    parameter: str
    prior: Callable[[float], Prior]
    start: float = 1.0
    in_units: bool = False
    support: tuple[float, float] = (0.0, np.inf)

    def hyperparameter(self, unit: float) -> Hyperparameter:
        scale = unit if self.in_units else 1.0
        bounds = (1e-4 * scale, 1e4 * scale) if np.isinf(self.support[1]) else None
        if self.support[0] > 0.0:
            bounds = None
        return Hyperparameter(self.name, self.start * scale, self.prior(unit), self.support, bounds)


@dataclass(frozen=True)
class ResponseFamily:
    """A family of responses.

    Attributes
    ----------
    name : str
    build : callable
        (Observed, values of the potential's parameters by name) → Potential.
    link : {"identity", "log", "logit", "probit", "cloglog"}
    learnt : tuple of Learnt
    counts : bool
        Whether observations are whole numbers.
    latent_variance : callable
        Mean response → variance of the noise on the scale of the linear predictor, for shares of variances.
    matched : bool
        Whether matching moments is cheap, so that expectation propagation is worth its price.
    """

    name: str
    build: Callable[..., Potential]
    link: str
    learnt: tuple[LearntParameter, ...] = ()
    counts: bool = False
    latent_variance: Callable[[float], float] = field(default=lambda mean: 0.0)
    matched: bool = True

    def unknown(self, observed: ObservedResponse) -> tuple[LearntParameter, ...]:
        """The parameters to learn; known standard deviations leave none of "sigma"."""
        return tuple(one for one in self.learnt if not (one.name == "sigma" and observed.se is not None))

    def potential(self, observed: ObservedResponse, values: Values) -> Potential:
        """The sites of the observations at given hyperparameters."""
        given = {one.parameter: values[one.name] for one in self.unknown(observed)}
        return self.build(observed, **given)

    def unit(self, observed: ObservedResponse, offset: Array) -> float:
        """The natural size of the linear predictor."""
        if self.link != "identity":
            return 1.0
        residual = observed.y - offset
        spread = float(np.std(residual))
        mean = float(np.mean(residual))
        # a constant response has its own size
        return spread if spread > 1e-10 * abs(mean) else abs(mean) or 1.0

    def centre(self, observed: ObservedResponse, offset: Array) -> float:
        """Where the linear predictor of the average row lies."""
        y = observed.y if observed.trials is None else observed.y / observed.trials
        mean = float(np.average(y, weights=observed.trials))
        if self.link == "identity":
            return float(np.mean(observed.y - offset))
        if self.link == "log":
            top = float(offset.max(initial=0.0))
            return float(np.log(max(mean, 1e-3)) - top - np.log(np.mean(np.exp(offset - top))))
        share = min(max(mean, 1e-3), 1.0 - 1e-3)
        if self.link == "probit":
            return float(ndtri(share))
        return float(np.log(-np.log1p(-share)) if self.link == "cloglog" else np.log(share / (1.0 - share)))


def _sigma(unit: float) -> Prior:
    df, width = SD_PRIOR
    return HalfStudentT(df, width * unit)


SIGMA = LearntParameter("sigma", "scale", _sigma, 0.5, True)
DF = LearntParameter("df", "df", lambda unit: Gamma(2.0, 0.1), 6.0, False, (1.0, np.inf))
DISPERSION = LearntParameter("dispersion", "dispersion", lambda unit: Exponential(1.0), 0.5)
SHAPE = LearntParameter("shape", "shape", lambda unit: LogNormal(1.0, 2.0), 2.0)
SPREAD = LearntParameter("sigma", "scale", _sigma, 0.5)
ZEROS = LearntParameter("zeros", "probability", lambda unit: Beta(1.0, 1.0), 0.2, False, (0.0, 1.0))
HAZARD = LearntParameter("shape", "shape", lambda unit: LogNormal(0.0, 1.0), 1.0)
PRECISION = LearntParameter("precision", "precision", lambda unit: LogNormal(2.0, 2.0), 10.0)


def _location(kind: str) -> Callable[..., Potential]:
    def build(observed: ObservedResponse, **values: Any) -> Potential:
        scale = {"scale": observed.se} if observed.se is not None else {}
        return getattr(potentials, kind)(loc=observed.y, **{**values, **scale})

    return build


def _counted(kind: str, first: str) -> Callable[..., Potential]:
    def build(observed: ObservedResponse, **values: Any) -> Potential:
        return getattr(potentials, kind)(**{first: observed.y}, **values)

    return build


def _binary(kind: str, link: str) -> Callable[..., Potential]:
    def build(observed: ObservedResponse, **values: Any) -> Potential:
        if observed.trials is None and kind:
            return getattr(potentials, kind)(observed.y, **values)
        trials = np.ones_like(observed.y) if observed.trials is None else observed.trials
        return potentials.Binomial(observed.y, trials, link, **values)

    return build


def _beta_binomial(observed: ObservedResponse, **values: Any) -> Potential:
    trials = np.ones_like(observed.y) if observed.trials is None else observed.trials
    build: Callable[..., Potential] = getattr(potentials, "BetaBinomial")  # noqa: B009
    return build(observed.y, trials, **values)


def _waiting(kind: str) -> Callable[..., Potential]:
    def build(observed: ObservedResponse, **values: Any) -> Potential:
        event = np.ones_like(observed.y) if observed.event is None else observed.event
        return getattr(potentials, kind)(observed.y, event, **values)

    return build


def _inflated(observed: ObservedResponse, **values: Any) -> Potential:
    return potentials.ZeroInflated(potentials.Poisson(observed.y), **values)


#: variance of the noise behind a binary response, by link
THIRD = np.pi**2 / 3.0
FAMILIES: dict[str, ResponseFamily] = {
    family.name: family
    for family in (
        ResponseFamily("gaussian", _location("Gaussian"), "identity", (SIGMA,)),
        ResponseFamily("student-t", _location("StudentT"), "identity", (SIGMA, DF)),
        ResponseFamily("laplace", _location("Laplace"), "identity", (SIGMA,)),
        ResponseFamily("bernoulli", _binary("Logit", "logit"), "logit", (), True, lambda mean: THIRD),
        ResponseFamily("binomial", _binary("Logit", "logit"), "logit", (), True, lambda mean: THIRD),
        ResponseFamily("probit", _binary("Probit", "probit"), "probit", (), True, lambda mean: 1.0),
        ResponseFamily(
            "cloglog", _binary("", "cloglog"), "cloglog", (), True, lambda mean: np.pi**2 / 6.0, matched=False
        ),
        ResponseFamily("beta-binomial", _beta_binomial, "logit", (PRECISION,), True, lambda mean: THIRD),
        ResponseFamily("poisson", _counted("Poisson", "y"), "log", (), True, lambda mean: float(np.log1p(1.0 / mean))),
        ResponseFamily(
            "negative-binomial",
            _counted("NegativeBinomial", "y"),
            "log",
            (DISPERSION,),
            True,
            lambda mean: float(np.log1p(1.0 / mean)),
        ),
        ResponseFamily(
            "zero-inflated-poisson", _inflated, "log", (ZEROS,), True, lambda mean: float(np.log1p(1.0 / mean))
        ),
        ResponseFamily("gamma", _counted("Gamma", "y"), "log", (SHAPE,)),
        ResponseFamily("inverse-gaussian", _counted("InverseGaussian", "y"), "log", (SHAPE,)),
        ResponseFamily("log-normal", _counted("LogNormal", "y"), "log", (SPREAD,)),
        ResponseFamily("exponential", _waiting("Exponential"), "log"),
        ResponseFamily("weibull", _waiting("Weibull"), "log", (HAZARD,), matched=False),
        ResponseFamily("beta", _counted("Beta", "y"), "logit", (PRECISION,)),
    )
}
#: families of successes
BINARY = ("bernoulli", "binomial", "probit", "cloglog")
WAITING = ("exponential", "weibull")
#: families of positive numbers
POSITIVE = ("gamma", "inverse-gaussian", "log-normal", *WAITING)
ALIASES = {"normal": "gaussian", "logit": "bernoulli", "logistic": "bernoulli", "negbinomial": "negative-binomial"}


def family_of(name: Any) -> ResponseFamily:
    """A family by its name."""
    found = FAMILIES.get(ALIASES.get(str(name), str(name)))
    if found is None:
        raise ValueError(f"family must be one of {', '.join(FAMILIES)}, got {name!r:.80}")
    return found


def observe(response: ResponseSide, family: ResponseFamily, frame: Any) -> ObservedResponse:
    """What a table's rows say of the response."""
    y, classes = _response(response.y, family, frame)
    trials = None
    if response.failures is not None:
        trials = y + evaluate(response.failures, frame)
    elif response.trials is not None:
        trials = evaluate(response.trials, frame)
    if trials is not None and family.name not in (*BINARY, "beta-binomial"):
        raise ValueError(f"family {family.name!r} has no trials; use family='binomial'")
    se = None if response.se is None else evaluate(response.se, frame)
    if se is not None and (family.link != "identity" or np.any(se <= 0.0)):
        raise ValueError("se(…) holds positive standard deviations of a family with an identity link")
    weight = None if response.weights is None else evaluate(response.weights, frame)
    event = None if response.event is None else evaluate(response.event, frame)
    if event is not None and family.name not in WAITING:
        raise ValueError(f"family {family.name!r} has no events; {' and '.join(WAITING)} have")
    return ObservedResponse(y, trials, se, weight, classes, event)


def blank(response: ResponseSide, family: ResponseFamily, frame: Any) -> ObservedResponse:
    """Rows without a response: what is known of them beside it, for predictions."""
    y = np.full(n_rows(frame), 0.5 if family.name == "beta" else 1.0 if family.name in POSITIVE else 0.0)
    trials, se = None, None
    if response.failures is not None:
        trials = evaluate(response.y, frame) + evaluate(response.failures, frame)
    elif response.trials is not None:
        trials = evaluate(response.trials, frame)
    if response.se is not None:
        se = evaluate(response.se, frame)
    return ObservedResponse(y, trials, se)


def _response(source: str, family: ResponseFamily, frame: Any) -> tuple[Array, NDArray[Any] | None]:
    """y as numbers; two labels become 0 and 1."""
    if not is_name(source):
        return evaluate(source, frame), None
    values = column(frame, source)
    if not is_category(values):
        return numbers(values, f"column {source!r}"), None
    if values.dtype.kind == "b":
        return values.astype(float), None
    labels = np.unique(values.astype(str))
    if len(labels) != 2 or family.name not in BINARY:
        raise ValueError(
            f"column {source!r} holds labels ({', '.join(labels[:4])} …): family='bernoulli' takes two of them, "
            "other families take numbers"
        )
    return (values.astype(str) == labels[1]).astype(float), labels


def hyperparameters(family: ResponseFamily, observed: ObservedResponse, unit: float) -> tuple[Hyperparameter, ...]:
    """Those of the family."""
    return tuple(one.hyperparameter(unit) for one in family.unknown(observed))


def parameter_names(family: ResponseFamily, observed: ObservedResponse) -> Mapping[str, str]:
    """Name in tables → argument of the potential."""
    return {one.name: one.parameter for one in family.unknown(observed)}
