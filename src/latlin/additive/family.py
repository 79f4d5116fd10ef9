"""Families of responses: `latlin.potentials.families` with what a formula adds, which is data beside y and priors.

Every family declared there has a name here: its potential, what it can learn and within which ends, and how it is drawn
is that declaration's knowledge. Default priors, by what is learnt:

    sigma                  half Student t, 3 degrees of freedom, scale 2.5 units of the response
    df                     gamma of shape 2 and mean 20 (Juárez and Steel, 2010)
    dispersion of counts   exponential of mean one
    gap(k) of classes      half Student t, 4 degrees of freedom, scale 2.5
    between two ends       uniform
    others                 log-normal about their usual value with a factor e² either way
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit, ndtri

from latlin.additive.expression import evaluate, is_name
from latlin.additive.formula import ResponseSide
from latlin.additive.frame import check_numbers, codes_of, column, is_category, n_rows, ordered_levels
from latlin.additive.term import SD_PRIOR, Values
from latlin.hyper.space import Hyperparameter
from latlin.numerics.arrays import Array
from latlin.potentials import families
from latlin.potentials.base import Potential
from latlin.potentials.binomial import Binomial
from latlin.potentials.families import Family, Ordered
from latlin.potentials.laplace import AsymmetricLaplace
from latlin.potentials.logit import Logit
from latlin.potentials.ordinal import cut_words
from latlin.potentials.probit import Probit
from latlin.potentials.ranges import Between, Increasing, Range
from latlin.potentials.survival import warn_of_codes
from latlin.potentials.zero_counts import Hurdle
from latlin.priors import Exponential, Gamma, HalfStudentT, LogNormal, Uniform
from latlin.priors.base import Prior


@dataclass(frozen=True)
class ObservedResponse:
    """What was observed, one number per row.

    Attributes
    ----------
    y : array of shape (n,)
    trials, se, weight, event, upper : array of shape (n,) or None
    classes : array of shape (classes,) or None
        The labels of a response that has such, in their order; y counts them from zero.
    """

    y: Array
    trials: Array | None = None
    se: Array | None = None
    weight: Array | None = None
    classes: NDArray[Any] | None = None
    event: Array | None = None
    upper: Array | None = None

    def select(self, rows: NDArray[np.int64]) -> ObservedResponse:
        """Those of some rows."""
        names = ("y", "trials", "se", "weight", "event", "upper")
        held = {name: getattr(self, name) for name in names}
        return replace(self, **{name: value[rows] for name, value in held.items() if value is not None})


@dataclass(frozen=True)
class _Described:
    """Observations as `latlin.potentials.families` asks about them."""

    y: Array
    offset: Array
    weight: Array | None

    def mean(self) -> float:
        return float(np.average(self.y, weights=self.weight))

    def residual_moments(self) -> tuple[float, float]:
        residual = self.y - self.offset
        mean = np.average(residual, weights=self.weight)
        return float(mean), float(np.sqrt(np.average((residual - mean) ** 2, weights=self.weight)))

    def log_exposure(self) -> float:
        top = float(self.offset.max(initial=0.0))
        return float(top + np.log(np.average(np.exp(self.offset - top), weights=self.weight)))

    def class_weights(self, count: int) -> Array:
        return np.bincount(self.y.astype(int), weights=self.weight, minlength=count).astype(float)


@dataclass(frozen=True)
class LearntParameter:
    """A number of a family that the data have to say.

    Attributes
    ----------
    name : str
        In tables: "sigma", "dispersion", "gap(1)".
    parameter : str
        The argument of the potential.
    place : int or None
        Of a gap between cut points: the cut above it, and all after that, move with it.
    """

    name: str
    parameter: str
    place: int | None = None

    def slope(self, by_parameter: Array) -> float:
        """The derivative in this number from that in the argument."""
        return float(np.sum(by_parameter if self.place is None else by_parameter[self.place :]))


#: names in tables of arguments whose own are not those of the field
SHOWN = {"scale": "sigma", "probability": "zeros"}
#: the linear predictor of a share, and the variance of the noise behind a share or an ordered class, by link
QUANTILE = {"logit": logit, "probit": ndtri, "cloglog": lambda share: np.log(-np.log1p(-share))}
LATENT = {"logit": np.pi**2 / 3.0, "probit": 1.0, "cloglog": np.pi**2 / 6.0}
#: where spreads of numbers without a variance are taken
QUARTILES = np.array([0.25, 0.75])
#: sd of the logarithm of a parameter of which nothing is known
WIDE = 2.0
#: potentials whose moments take many nodes, so that matching them is not worth its price
SLOW = (Hurdle,)


#: what a coefficient changes, by the link of a family, and by that of probabilities
SCALES = {
    "identity": "",
    "log": "the log of the expected value (exp(coefficient) multiplies it)",
    "ordered": "a latent scale on which later classes lie higher",
}
SHARES = {
    "logit": "the log odds{of} (exp(coefficient) multiplies the odds)",
    "probit": "the probit of the probability{of}",
    "cloglog": "the complementary log-log of the probability{of}",
}


@dataclass(frozen=True)
class ResponseFamily:
    """A family of responses.

    Attributes
    ----------
    name : str
    declared : Family
        Of `latlin.potentials.families`.
    """

    name: str
    declared: Family

    @property
    def link(self) -> str:
        """ "identity", "log", "share" or "ordered"."""
        return self.declared.link

    @property
    def template(self) -> Potential:
        return self.declared.template

    @property
    def ordered(self) -> bool:
        return self.link == "ordered"

    @property
    def binary(self) -> bool:
        """Whether an observation is a success or none, or successes among trials."""
        return isinstance(self.template, Logit | Probit | Binomial)

    @property
    def of_quantiles(self) -> bool:
        """Whether the linear predictor is a quantile, which is then what is predicted: the density is a device."""
        return isinstance(self.template, AsymmetricLaplace)

    @property
    def whole(self) -> bool:
        """Whether observations are whole numbers."""
        return self.template.predictive(0.0, 1.0).whole

    def scale_words(self, success: str = "") -> str:
        """What a coefficient changes, of a success that is named; empty where it is the response itself."""
        if self.link != "share":
            return SCALES[self.link]
        link = getattr(self.template, "link", "probit" if isinstance(self.template, Probit) else "logit")
        return SHARES[link].format(of=f" of {success}" if success else "")

    def cut_words(self, coefficients: Sequence[Any], learnt: Sequence[Any], classes: Any) -> str:
        """The means of the cut points between ordered classes: minus the intercept, and the gaps from there on."""
        if not self.ordered or not coefficients or coefficients[0]["name"] != "Intercept":
            return ""
        gaps = [row["mean"] for row in learnt if row["name"].startswith("gap(")]
        link = str(getattr(self.template, "link", "probit"))
        return cut_words(link, classes, np.cumsum([-coefficients[0]["mean"], *gaps]))

    @property
    def matched(self) -> bool:
        """Whether matching moments is cheap, so that expectation propagation is worth its price."""
        return not isinstance(self.template, SLOW)

    # --- what is learnt -----------------------------------------------------------------------------------------

    def learnt(self, observed: ObservedResponse) -> tuple[LearntParameter, ...]:
        """The numbers to learn; known standard deviations leave no "sigma"."""
        found: list[LearntParameter] = []
        for name, span in self.template.free.items():
            if isinstance(span, Increasing):
                # the first cut is zero, and the intercept takes its place
                found += [LearntParameter(f"gap({k})", name, k) for k in range(1, _n_classes(observed) - 1)]
            elif not (name == "scale" and observed.se is not None):
                found.append(LearntParameter(SHOWN.get(name, name), name))
        return tuple(found)

    def hyperparameters(self, observed: ObservedResponse, offset: Array, unit: float) -> tuple[Hyperparameter, ...]:
        """The numbers to learn with their priors and starts."""
        declared = self.declared
        if isinstance(declared, Ordered):
            declared = replace(declared, n_classes=_n_classes(observed))
        starts = declared.first(_Described(observed.y, offset, observed.weight))
        ranges = declared.ranges(unit)
        return tuple(
            _gap(one, float(np.diff(starts[one.parameter])[one.place - 1]))
            if one.place is not None
            else self._hyperparameter(one, float(starts[one.parameter]), ranges[one.parameter], unit)
            for one in self.learnt(observed)
        )

    def _hyperparameter(self, one: LearntParameter, start: float, span: Range, unit: float) -> Hyperparameter:
        low, high = (float(end) for end in span.from_free(np.array(span.bounds(1)[0])))
        support = (span.low, span.high) if isinstance(span, Between) else (0.0, np.inf)
        if one.parameter == "df":
            # noise without a mean has no expected response
            low, support = 1.0 + 1e-3, (1.0, np.inf)
        prior = self._prior(one.parameter, span, unit)
        return Hyperparameter(one.name, float(np.clip(start, low, high)), prior, support, (low, high))

    def _prior(self, parameter: str, span: Range, unit: float) -> Prior:
        if parameter == "scale":
            df, width = SD_PRIOR
            return HalfStudentT(df, width * unit)
        if parameter == "df":
            return Gamma(2.0, 0.1)
        if parameter == "dispersion" and self.whole:
            return Exponential(1.0)
        if isinstance(span, Between):
            return Uniform(span.low, span.high)
        return LogNormal(float(np.log(span.start or 1.0)), WIDE)

    def _arguments(self, values: Values) -> dict[str, Any]:
        """The potential's arguments at given hyperparameters."""
        found: dict[str, Any] = {}
        for name, span in self.template.free.items():
            if isinstance(span, Increasing):
                gaps = [values[f"gap({k})"] for k in range(1, 1 + sum(key.startswith("gap(") for key in values))]
                found[name] = np.cumsum([0.0, *gaps])
            elif SHOWN.get(name, name) in values:
                found[name] = values[SHOWN.get(name, name)]
        return found

    # --- sites --------------------------------------------------------------------------------------------------

    def potential(self, observed: ObservedResponse, values: Values) -> Potential:
        """The sites of the observations at given hyperparameters."""
        template, arguments = self.template, self._arguments(values)
        if self.binary:
            return self._successes(observed)
        if observed.se is not None:
            arguments["scale"] = observed.se
        data = {name: getattr(observed, name, None) for name in self.declared.columns[1:]}
        if "trials" in data and data["trials"] is None:
            data["trials"] = np.ones_like(observed.y)
        beside = {name: value for name, value in data.items() if value is not None}
        return template.replace(**arguments, **{self.declared.columns[0]: observed.y}, **beside)

    def _successes(self, observed: ObservedResponse) -> Potential:
        """Labels where there is one trial per row and the link has a potential of its own."""
        link, known = link_of(self.template), {"logit": Logit, "probit": Probit}
        if observed.trials is None and link in known:
            return known[link](observed.y)
        return Binomial(observed.y, np.ones_like(observed.y) if observed.trials is None else observed.trials, link)

    def unit(self, observed: ObservedResponse, offset: Array) -> float:
        """The natural size of the linear predictor."""
        return self.declared.unit(_Described(observed.y, offset, None))

    def centre(self, observed: ObservedResponse, offset: Array) -> float:
        """Where the linear predictor of the average row lies."""
        rows = _Described(observed.y, offset, None)
        if self.link == "identity":
            return rows.residual_moments()[0]
        if self.link == "log":
            return float(np.log(max(rows.mean(), 1e-3)) - rows.log_exposure())
        if self.ordered:
            share, template = float(np.mean(observed.y > 0)), self.template.replace(cuts=[0.0])
        else:
            y = observed.y if observed.trials is None else observed.y / observed.trials
            share, template = float(np.average(y, weights=observed.trials)), self.template
        share = min(max(share, 1e-3), 1.0 - 1e-3)
        return float(QUANTILE[link_of(template)](share))

    def latent_variance(self, values: Values, mean: float) -> float:
        """The variance of an observation on the scale of the linear predictor, for shares of variances.

        Shares and classes have that of the noise behind them. With a log link it is log(1 + V/μ²) at the mean, as of a
        log-normal number (Nakagawa, Johnson and Schielzeth 2017); an infinite one is a normal's with its quartiles.
        """
        if self.link in ("share", "ordered") and self.whole:
            return LATENT[link_of(self.template)]
        scale, back = {"identity": (float, np.asarray), "log": (np.log, np.log), "share": (logit, logit)}[self.link]
        rows = self.template.replace(**self._arguments(values)).predictive(np.array([scale(mean)]), np.zeros(1))
        with np.errstate(invalid="ignore"):
            about = float((rows.variance / rows.mean**2)[0])
        if not np.isfinite(rows.variance[0]):
            return float((np.diff(back(np.ravel(rows.quantile(QUARTILES)))) / np.diff(ndtri(QUARTILES)))[0] ** 2)
        if self.link == "log":
            return float(np.log1p(about))
        return float(rows.variance[0]) if self.link == "identity" else about / (1.0 - float(rows.mean[0])) ** 2


def link_of(template: Potential) -> str:
    """The distribution function behind a share or an ordered class."""
    return str(getattr(template, "link", "probit" if isinstance(template, Probit) else "logit"))


def _n_classes(observed: ObservedResponse) -> int:
    return 2 if observed.classes is None else len(observed.classes)


def _gap(one: LearntParameter, start: float) -> Hyperparameter:
    return Hyperparameter(one.name, start, HalfStudentT(4.0, 2.5), (0.0, np.inf), (1e-5, 50.0))


#: declared names that mean something else beside a formula, where "logistic" is a regression
RENAMED = {"logit": "bernoulli", "logistic": "logistic-noise"}
FAMILIES: dict[str, ResponseFamily] = {
    RENAMED.get(name, name): ResponseFamily(RENAMED.get(name, name), family)
    for name, family in families.FAMILIES.items()
} | {"cloglog": ResponseFamily("cloglog", Family(Binomial(0.0, 1.0, "cloglog"), "share"))}
ALIASES = {"normal": "gaussian", "logit": "bernoulli", "logistic": "bernoulli", "negbinomial": "negative-binomial"}


def family_of(given: Any) -> ResponseFamily:
    """A family by its name, or by a potential that stands for it with some of its arguments chosen."""
    if isinstance(given, Potential):
        return _like(given)
    found = FAMILIES.get(ALIASES.get(str(given), str(given)))
    if found is None:
        near = get_close_matches(str(given).lower().replace("_", "-"), [*FAMILIES, *ALIASES], 1, 0.85)
        hint = f": write {near[0]!r}" if near else ""
        raise ValueError(f"family must be one of {', '.join(FAMILIES)}, or a potential, got {given!r:.80}{hint}")
    return found


def _like(given: Potential) -> ResponseFamily:
    """The declared family of a potential, with this one for its template."""

    def kind(potential: Potential) -> tuple[type, ...]:
        return (type(potential), *(kind(potential.base) if hasattr(potential, "base") else ()))

    for name, family in FAMILIES.items():
        if kind(family.template) == kind(given):
            return ResponseFamily(name, replace(family.declared, template=given))
    own = Family(given)
    if not own.is_noise:
        raise ValueError(
            f"family must be a potential of a declared family, or one with a location and a scale, got {given!r:.80}"
        )
    return ResponseFamily(type(given).__name__, own)


def observe(
    response: ResponseSide, family: ResponseFamily, frame: Any, classes: NDArray[Any] | None = None
) -> ObservedResponse:
    """What a table's rows say of the response; `classes` are its labels where these are known."""
    y, classes = _response(response.y, family, frame, classes)
    trials = None
    if response.failures is not None:
        trials = y + evaluate(response.failures, frame)
    elif response.trials is not None:
        trials = evaluate(response.trials, frame)
    if trials is not None and not (family.binary or "trials" in family.declared.columns):
        raise ValueError(f"family {family.name!r} has no trials; use family='binomial'")
    se = None if response.se is None else evaluate(response.se, frame)
    if se is not None and (family.link != "identity" or np.any(se <= 0.0)):
        raise ValueError("se(…) holds positive standard deviations of a family with an identity link")
    weight = None if response.weights is None else evaluate(response.weights, frame)
    event, upper = (None if text is None else evaluate(text, frame) for text in (response.event, response.upper))
    for option, given in (("event", event), ("upper", upper)):
        if given is not None and option not in family.declared.columns:
            timed = ", ".join(name for name, one in FAMILIES.items() if option in one.declared.columns)
            raise ValueError(f"family {family.name!r} has no {option}(…); these have: {timed}")
    if event is not None:
        warn_of_codes(event)
    return ObservedResponse(y, trials, se, weight, classes, event, upper)


def observe_without_response(response: ResponseSide, family: ResponseFamily, frame: Any) -> ObservedResponse:
    """Rows without a response: what is known of them beside it, for predictions."""
    y = np.full(n_rows(frame), family.template.observation[1])
    trials, se = None, None
    if response.failures is not None:
        trials = evaluate(response.y, frame) + evaluate(response.failures, frame)
    elif response.trials is not None:
        trials = evaluate(response.trials, frame)
    if response.se is not None:
        se = evaluate(response.se, frame)
    return ObservedResponse(y, trials, se)


def example_row(response: ResponseSide, family: ResponseFamily) -> ObservedResponse:
    """Some observation, for what does not depend on it."""
    counted = response.trials is not None or response.failures is not None
    y, one = np.array([family.template.observation[1]]), np.ones(1)
    return ObservedResponse(y, one if counted else None, None if response.se is None else one)


def _response(
    source: str, family: ResponseFamily, frame: Any, classes: NDArray[Any] | None
) -> tuple[Array, NDArray[Any] | None]:
    """y as numbers, and its labels where it has such: they are counted from zero."""
    if not is_name(source):
        values, known = evaluate(source, frame), False
    else:
        values, known = column(frame, source), True
        if values.dtype.kind == "b" and not family.ordered:
            values = values.astype(float)
    labelled = is_category(values)
    if not labelled and not family.ordered:
        return check_numbers(values, f"column {source!r}") if known else values, None
    if classes is None:
        classes = ordered_levels(frame, source) if known else np.unique(values)
    if len(classes) < 2 or not (family.ordered or (family.binary and len(classes) == 2)):
        raise ValueError(
            f"column {source!r} holds labels ({', '.join(map(str, classes[:4]))} …): family='bernoulli' takes two of "
            "them, 'ordinal' two or more in their order, other families take numbers"
        )
    codes = codes_of(values, classes, f"column {source!r}")
    if np.any(codes < 0):
        strange = values[int(np.argmin(codes))]
        raise ValueError(
            f"column {source!r} holds {str(strange)!r}, which is none of {', '.join(map(str, classes[:8]))}"
        )
    return codes.astype(float), classes
