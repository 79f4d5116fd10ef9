"""Likelihoods by name: a potential with the values a fit starts from, and how x stands to an observation.

What can be learnt and within which ends, how observations are drawn, and how they are distributed is the potential's
own knowledge; estimators, Gaussian processes and the command line know no family but by this page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from latlin.numerics.arrays import Array
from latlin.potentials.base import Potential
from latlin.potentials.beta import Beta
from latlin.potentials.beta_binomial import BetaBinomial
from latlin.potentials.binomial import Binomial
from latlin.potentials.gamma import Gamma
from latlin.potentials.gaussian import Gaussian, LogNormal
from latlin.potentials.generalised_poisson import GeneralisedPoisson
from latlin.potentials.huber import Huber
from latlin.potentials.inverse_gaussian import InverseGaussian
from latlin.potentials.laplace import AsymmetricLaplace, Laplace
from latlin.potentials.logistic import Logistic
from latlin.potentials.logit import Logit
from latlin.potentials.negative_binomial import NegativeBinomial
from latlin.potentials.ordinal import Ordinal
from latlin.potentials.poisson import Poisson
from latlin.potentials.probit import Probit
from latlin.potentials.ranges import Positive, Range
from latlin.potentials.student_t import Cauchy, StudentT
from latlin.potentials.survival import Exponential, LogLogistic, Weibull
from latlin.potentials.tweedie import Tweedie
from latlin.potentials.zero_counts import Hurdle, ZeroInflated

#: x is the centre of an observation, the logarithm of its size, mapped to a share, or cut into ordered classes
Link = Literal["identity", "log", "share", "ordered"]
Values = Mapping[str, Any]
#: values of a parameter among which one that matches the spread of y is sought
MATCHED = 200


class Described(Protocol):
    """What families ask of observations, wherever they are."""

    def mean(self) -> float:
        """The weighted mean of y."""
        ...

    def residual_moments(self) -> tuple[float, float]:
        """Weighted mean and standard deviation of y less its offset."""
        ...

    def log_exposure(self) -> float | None:
        """Logarithm of the weighted mean of exp(offset); None without offsets."""
        ...

    def class_weights(self, count: int) -> Array:
        """Total weight of each class."""
        ...


@dataclass(frozen=True)
class Family:
    """A likelihood.

    Parameters
    ----------
    template : Potential
        Of no particular observation, with the values that a search starts from.
    link : {"identity", "log", "share", "ordered"}
    observed : tuple of str
        The constructor's arguments that hold one number per row, the observation first.
    wider : str
        The family to try where observations vary more than this one allows; empty where it can adapt.

    Examples
    --------
    >>> family = FAMILIES["student-t"]
    >>> family.parameters
    ('df', 'scale')
    >>> family.potential([1.0, 2.0], {"df": 3.0, "scale": 0.5})
    StudentT(df=3, loc=[1., 2.], scale=0.5)
    """

    template: Potential
    link: Link = "identity"
    observed: tuple[str, ...] = ()
    wider: str = ""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters that can be learnt."""
        return tuple(self.template.free)

    @property
    def columns(self) -> tuple[str, ...]:
        """What belongs to one row of data."""
        return self.observed or (self.template.observation[0],)

    def fixed(self, **arguments: Any) -> Family:
        """The same family with some of the constructor's arguments chosen."""
        return replace(self, template=self.template.replace(**arguments))

    def kind(self, values: Values) -> Potential:
        """The potential of no particular observation."""
        return self.template.replace(**self._learnt(values))

    def potential(self, y: ArrayLike, values: Values) -> Potential:
        """The sites of observations y, shape (n,) or, where several numbers belong to a row, (n, columns)."""
        y = np.asarray(y, dtype=float)
        data = dict(zip(self.columns, y.T if y.ndim == 2 else [y], strict=False))
        return self.template.replace(**self._learnt(values), **data)

    def _learnt(self, values: Values) -> dict[str, Any]:
        if missing := [name for name in self.parameters if name not in values]:
            raise ValueError(f"{type(self.template).__name__} needs a value of {missing[0]}, got {sorted(values)}")
        return {name: values[name] for name in self.parameters}

    @property
    def is_noise(self) -> bool:
        """Whether observations lie about x at a scale, all of them or those that are recorded."""
        seen: Potential = getattr(self.template, "base", self.template)
        return self.link == "identity" and seen.location_scale

    def ranges(self, unit: float) -> dict[str, Range]:
        """Where the parameters lie; the scale of a noise is measured in the units of y."""
        located = {"scale": Positive(0.5 * unit, 1e-4 * unit, 1e2 * unit)} if self.is_noise else {}
        return {**self.template.free, **located}

    def first(self, targets: Described, share: float = 0.5) -> dict[str, Any]:
        """Parameters to start a search from; of a noise its share of the spread of y."""
        if isinstance(self.template, ZeroInflated | Hurdle) and targets.mean() == 0.0:
            raise ValueError(
                "y holds no count above zero, and families with zeros of their own need some to learn the others from; "
                "try family='poisson'"
            )
        values = {name: np.asarray(self.template.value_of(name), dtype=float) for name in self.parameters}
        found: dict[str, Any] = {name: float(v) if v.ndim == 0 else v for name, v in values.items()}
        if self.is_noise:
            found["scale"] = share * self.unit(targets)
        one = len(found) == 1 and not self.template.location_scale
        if one and (self.link == "log" or (self.link == "share" and len(self.columns) == 1)):
            found |= self._matched(targets)
        return found

    def _matched(self, targets: Described) -> dict[str, float]:
        """The only parameter at which an observation at the mean of y varies as much as y does, if there is one."""
        ((name, span),) = self.template.free.items()
        mean, sd = targets.mean(), targets.residual_moments()[1]
        if not (mean > 0.0 and sd > 0.0) or (self.link == "share" and mean >= 1.0):
            return {}
        grid = span.from_free(np.linspace(*span.bounds(1)[0], MATCHED))
        x = np.full(MATCHED, np.log(mean if self.link == "log" else mean / (1.0 - mean)))
        found = self.template.replace(**{name: grid}).predictive(x, np.zeros(MATCHED)).variance
        best = int(np.argmin(np.abs(np.log(found) - 2.0 * np.log(sd))))
        return {name: float(grid[best])} if 0 < best < MATCHED - 1 else {}

    def unit(self, targets: Described) -> float:
        """The natural size of a coefficient of a standardised feature."""
        if self.link != "identity":
            return 1.0
        mean, sd = targets.residual_moments()
        # constant observations: their own size, or one
        return sd if sd > 1e-10 * abs(mean) else abs(mean) or 1.0

    def intercept(self, targets: Described) -> tuple[float, float]:
        """Mean and standard deviation of a wide prior for the intercept."""
        if self.link == "identity":
            return targets.residual_moments()[0], 10.0 * self.unit(targets)
        if self.link != "log":
            return 0.0, 10.0
        mean, exposure = targets.mean(), targets.log_exposure()
        rate = np.log(mean if mean > 0.0 else 1e-3)
        return float(rate if exposure is None else rate - exposure), 5.0


@dataclass(frozen=True)
class Ordered(Family):
    """Ordered classes 0 … K−1 between cut points; shifts belong to these, so there is no intercept."""

    n_classes: int = 2

    def first(self, targets: Described, share: float = 0.5) -> dict[str, Any]:
        """Cuts that give the classes their shares at x = 0."""
        shares = targets.class_weights(self.n_classes) + 0.5
        below = np.cumsum(shares)[:-1] / shares.sum()
        probit = getattr(self.template, "link") == "probit"  # noqa: B009
        return {"cuts": ndtri(below) if probit else np.log(below / (1.0 - below))}


FAMILIES: dict[str, Family] = {
    "gaussian": Family(Gaussian(0.0)),
    "student-t": Family(StudentT(4.0)),
    "laplace": Family(Laplace(0.0)),
    "cauchy": Family(Cauchy(0.0)),
    "logistic": Family(Logistic(0.0)),
    "huber": Family(Huber(0.0)),
    "asymmetric-laplace": Family(AsymmetricLaplace(0.5)),
    "logit": Family(Logit(1.0), "share"),
    "probit": Family(Probit(1.0), "share"),
    "poisson": Family(Poisson(0.0), "log", wider="negative-binomial"),
    "negative-binomial": Family(NegativeBinomial(0.0, 1.0), "log"),
    "zero-inflated-poisson": Family(ZeroInflated(Poisson(0.0), 0.2), "log", wider="zero-inflated-negative-binomial"),
    "zero-inflated-negative-binomial": Family(ZeroInflated(NegativeBinomial(0.0, 1.0), 0.2), "log"),
    "hurdle-poisson": Family(Hurdle(Poisson(0.0), 0.3), "log", wider="hurdle-negative-binomial"),
    "hurdle-negative-binomial": Family(Hurdle(NegativeBinomial(0.0, 1.0), 0.3), "log"),
    "generalised-poisson": Family(GeneralisedPoisson(0.0, 0.3), "log"),
    "binomial": Family(Binomial(0.0, 1.0), "share", ("successes", "trials"), wider="beta-binomial"),
    "beta-binomial": Family(BetaBinomial(0.0, 1.0, 1.0), "share", ("successes", "trials")),
    "beta": Family(Beta(0.5, 1.0), "share"),
    "gamma": Family(Gamma(1.0, 1.0), "log"),
    "inverse-gaussian": Family(InverseGaussian(1.0, 1.0), "log"),
    "log-normal": Family(LogNormal(1.0), "log"),
    "tweedie": Family(Tweedie(1.0, 1.5, 1.0), "log"),
    "weibull": Family(Weibull(1.0), "log", ("time", "event", "upper")),
    "exponential": Family(Exponential(1.0), "log", ("time", "event", "upper")),
    "log-logistic": Family(LogLogistic(1.0), "log", ("time", "event", "upper")),
    "ordinal": Ordered(Ordinal(0.0, [0.0]), "ordered"),
}


def find_family(name: str, known: Mapping[str, Any] = FAMILIES, argument: str = "family") -> Any:
    """The family of a name, or one sentence that lists the names."""
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"{argument} must be one of {', '.join(known)}, got {name!r}")
    return known[name]


def wider_family(potential: Potential) -> str:
    """The family to try where observations vary more than those of this potential, empty where it can adapt."""

    def kind(block: Any) -> tuple[type, type]:
        return type(block), type(getattr(block, "base", None))

    found = [family.wider for family in FAMILIES.values() if kind(family.template) == kind(potential)]
    return found[0] if found else ""


#: families by what they describe, from the simplest on
COUNTS = (
    "poisson",
    "negative-binomial",
    "generalised-poisson",
    "zero-inflated-poisson",
    "zero-inflated-negative-binomial",
    "hurdle-poisson",
    "hurdle-negative-binomial",
)
AMOUNTS = ("gamma", "inverse-gaussian", "log-normal", "tweedie")
TIMES = ("weibull", "exponential", "log-logistic")
SUCCESSES = ("binomial", "beta-binomial")
