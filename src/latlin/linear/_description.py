"""What a fitted linear estimator says of itself: the table of coefficients, joint statements, draws for ArviZ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import chi2
from sklearn.utils.validation import check_is_fitted

from latlin.diagnostics.inference_data import inference_data
from latlin.hyper.marginals import HyperparameterTable
from latlin.inference.diagnosis.log_joint import log_joint
from latlin.inference.forms.projections import stacked_sites
from latlin.inference.model import require_in_memory
from latlin.inference.posterior import Posterior
from latlin.linear._learning import ARGUMENTS, LearntFit
from latlin.linear._predict import check_levels
from latlin.linear._problem import Design
from latlin.numerics.arrays import Array
from latlin.numerics.options import check_number, check_whole
from latlin.numerics.rng import RandomState
from latlin.potentials.families import FAMILIES

# --- The table of coefficients: mean, standard deviation, interval and probability of being positive, by feature name.


#: most hyperparameters that are listed
MOST_LINES = 8
COLUMNS = ("mean", "sd", "low", "high", "p_positive")


class JointHypothesis(NamedTuple):
    """Whether several coefficients are all zero, or all equal, by their joint posterior.

    Attributes
    ----------
    statistic : float
        mᵀS⁻¹m of the contrasts, with their posterior mean m and covariance S.
    df : int
        Number of contrasts.
    probability : float
        Posterior probability of values less probable than zero: near 0, the coefficients are clearly not all zero.
    """

    statistic: float
    df: int
    probability: float


def joint_of(posterior: Posterior, known: Sequence[str], names: Sequence[str], equal: bool) -> JointHypothesis:
    """Of the coefficients of some features, or of their differences to the first: δᵀS⁻¹δ of a Gaussian δ is χ²."""
    listed = list(map(str, known))
    if not names or not set(names) <= set(listed):
        raise ValueError(f"names must be features of the model or one of its columns of levels, got {list(names)!r}")
    places = [listed.index(name) for name in names]
    mean, covariance = posterior.mean[places], posterior.covariance()[np.ix_(places, places)]
    if equal:
        contrast = np.hstack([-np.ones((len(places) - 1, 1)), np.eye(len(places) - 1)])
        mean, covariance = contrast @ mean, contrast @ covariance @ contrast.T
    values, vectors = np.linalg.eigh(covariance)
    kept = values > 1e-12 * max(values.max(), 1e-300)
    z = vectors.T[kept] @ mean / np.sqrt(values[kept])
    statistic = float(z @ z)
    return JointHypothesis(statistic, int(kept.sum()), float(chi2.sf(statistic, max(int(kept.sum()), 1))))


@dataclass(frozen=True)
class Summary:
    """Coefficients of a fitted model; prints as a table in a terminal and in a notebook.

    Attributes
    ----------
    rows : list of dict
        name, mean, sd, low, high, p_positive of each coefficient, the intercept last.
    coverage : float
        Of the interval from low to high.
    title, footer : str
        The model, and its evidence and other learnt numbers.
    """

    rows: list[dict[str, Any]]
    coverage: float
    title: str
    footer: str

    def to_frame(self) -> Any:
        """A data frame with one row per coefficient, indexed by name."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_frame() needs pandas: pip install 'latlin[cli]'") from error
        return pandas.DataFrame(self.rows).set_index("name")

    def to_pandas(self) -> Any:
        """The same as `to_frame`."""
        return self.to_frame()

    def _headings(self) -> tuple[str, ...]:
        low, high = 50.0 - 50.0 * self.coverage, 50.0 + 50.0 * self.coverage
        return ("mean", "sd", f"{low:g}%", f"{high:g}%", "P(>0)")

    def __repr__(self) -> str:
        width = max([len("coefficient"), *(len(row["name"]) for row in self.rows)])
        head = "coefficient".ljust(width) + "".join(f"{title:>12}" for title in self._headings())
        lines = [row["name"].ljust(width) + "".join(f"{row[c]:12.4g}" for c in COLUMNS) for row in self.rows]
        return "\n".join([self.title, head, *lines, self.footer])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(title)}</th>" for title in ("coefficient", *self._headings()))
        body = "".join(
            f"<tr><th scope='row'>{escape(row['name'])}</th>"
            + "".join(f"<td>{row[c]:.4g}</td>" for c in COLUMNS)
            + "</tr>"
            for row in self.rows
        )
        caption = f"<caption>{escape(self.title)}<br>{escape(self.footer)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def learnt_lines(table: HyperparameterTable) -> list[str]:
    """What is known of each hyperparameter, and its prior; of many only how many there are."""
    if len(table) > MOST_LINES:
        return [f"{len(table)} hyperparameters {table.manner}; see hyperparameters_"]
    lines = []
    for row in table.rows:
        spread = "" if np.isnan(row["sd"]) else f" ± {row['sd']:.2g}, 90 % in [{row['5%']:.3g}, {row['95%']:.3g}]"
        end = f", at its {row['at_bound']} end: do not use" if row["at_bound"] else ""
        lines.append(f"{row['name']} {table.manner}: {row['mean']:.3g}{spread}{end}, prior {row['prior']}")
    return lines


def coefficient_rows(
    posterior: Posterior, design: Design, names: Sequence[str], coverage: float
) -> list[dict[str, Any]]:
    """One row per coefficient, and one for the intercept at x = 0."""
    coverage = check_number("coverage", coverage, above=0.0, below=1.0)
    marginals = posterior.project(design.user_rows())
    labels = [*map(str, names), "intercept"][: len(marginals.mean)]
    sd = np.sqrt(np.maximum(marginals.variance, 0.0))
    if np.any(sd > 0.0):
        low, high = marginals.quantile(np.array([[0.5 - 0.5 * coverage], [0.5 + 0.5 * coverage]]))
        positive = np.clip(1.0 - marginals.cdf(np.zeros(len(sd))), 0.0, 1.0)
    else:
        low, high, positive = marginals.mean, marginals.mean, np.heaviside(marginals.mean, 0.5)
    columns = zip(marginals.mean, sd, low, high, positive, strict=True)
    return [{"name": n, **dict(zip(COLUMNS, map(float, c), strict=True))} for n, c in zip(labels, columns, strict=True)]


# --- Draws for ArviZ: coefficients, log p and log q (so that draws can be reweighted), and pointwise log-likelihoods.


def inference_groups(posterior: Posterior, design: Design, w: Array) -> dict[str, dict[str, Array]]:
    """Groups of arrays with leading axes (chain, draw) for draws w of one posterior."""
    coef, intercept = design.coefficients(w)
    model = require_in_memory(posterior.model)
    data = model.sites[-1]
    sites = stacked_sites(model)
    (span, potential) = sites.blocks[-1]
    x = np.asarray(data.H @ w.T).T
    draws = {"coef": coef} | ({"intercept": intercept} if design.intercept else {})
    return {
        "posterior": {key: value[None] for key, value in draws.items()},
        "sample_stats": {"lp": log_joint(model)(w)[None], "log_q": np.asarray(posterior.logpdf(w))[None]},
        "log_likelihood": {"y": sites.part(span).log_density(x)[None]},
        "observed_data": {"y": potential.observed},
    }


#: unknowns whose names are kept with a posterior
MOST_NAMES = 10_000


class Description:
    """Answers of an estimator that keeps its design and its fits."""

    #: the family as reports name it
    _name = ""
    _design: Design
    _fits: list[LearntFit]
    n_features_in_: int
    converged_: bool
    log_evidence_: Any
    evidence_kind_: str
    hyperparameters_: Any

    def _generator(self, random_state: RandomState) -> np.random.Generator:
        raise NotImplementedError

    def summary(self, coverage: float = 0.9) -> Summary:
        """Mean, standard deviation, central interval and P(> 0) of every coefficient, by feature name."""
        check_is_fitted(self, "posterior_")
        check_levels("coverage", coverage)
        rows = []
        for label, fit in zip(self._response_names(), self._fits, strict=True):
            part = coefficient_rows(fit.posterior, self._design, self._feature_names(), coverage)
            rows += [{**row, "name": f"{label}{row['name']}"} for row in part]
        return Summary(rows, coverage, self._title(), self._footer())

    def family_name(self) -> str:
        """The family as reports and the command line name it."""
        return self._name

    def joint(self, names: str | Sequence[str], *, equal: bool = False, response: int = 0) -> JointHypothesis:
        """What the posterior says of several coefficients together, for example all levels of a factor.

        Parameters
        ----------
        names : str or sequence of str
            Features; or one column of levels, which stands for the features of its levels.
        equal : bool
            Ask whether they are all equal instead of all zero: for levels that have one indicator each.
        response : int
            Of several classes, which.

        Examples
        --------
        >>> import pandas
        >>> from latlin.linear import BayesianLinearRegression
        >>> X = pandas.DataFrame({"a": [0.0, 1, 0, 0, 1, 0], "b": [0.0, 0, 1, 0, 0, 1]})
        >>> BayesianLinearRegression(noise_scale=0.1).fit(X, [0.0, 1.0, 2.0, 0.1, 1.1, 2.1]).joint(["a", "b"]).df
        2
        """
        check_is_fitted(self, "posterior_")
        if isinstance(names, str):
            factors = getattr(getattr(self, "encoding_", None), "factors", {})
            names = factors[names]["features"] if names in factors else [names]
        return joint_of(self._fits[response].posterior, self._feature_names(), names, equal)

    def _response_names(self) -> list[str]:
        return [""]

    def _feature_names(self) -> list[str]:
        raise NotImplementedError

    def _title(self) -> str:
        posterior: Posterior = self._fits[0].posterior
        return f"{type(self).__name__}, engine {posterior.engine}, {'' if self.converged_ else 'NOT '}converged"

    def _footer(self) -> str:
        total = float(np.sum(self.log_evidence_))
        said = [] if self.evidence_kind_ == "none" else [f"log evidence {total:.4f} ({self.evidence_kind_})"]
        learnt = {n: v for n, v in self._fits[0].values.items() if np.ndim(v) == 0} if len(self._fits) == 1 else {}
        numbers = ", ".join([*said, *(f"{ARGUMENTS.get(name, name)} {value:.4g}" for name, value in learnt.items())])
        table = self.hyperparameters_
        lines = [] if isinstance(table, list) or table.manner == "fixed" else learnt_lines(table)
        is_one = len(self._fits) == 1 and self._design.dim <= MOST_NAMES and self.evidence_kind_ != "none"
        levels_ = _describe_factors(self, getattr(self, "encoding_", None)) if is_one else []
        return "\n".join(
            filter(None, [describe_response(self), numbers, *lines, *levels_, str(getattr(self, "checks_", ""))])
        )

    def to_arviz(self, n_samples: int = 1000, random_state: RandomState = None) -> Any:
        """Draws as an `arviz.InferenceData`; a list of them, one per class, for several classes.

        Groups: posterior ("coef", "intercept"), sample_stats ("lp", the log joint, and "log_q", the log density of the
        approximation: their difference gives importance weights), log_likelihood and observed_data ("y"). Needs
        ArviZ and the training data, so a model that was fitted here. ArviZ 1 makes a `DataTree` of them.
        """
        check_is_fitted(self, "posterior_")
        rng, count = self._generator(random_state), check_whole("n_samples", n_samples)
        found = []
        for fit in self._fits:
            w = fit.posterior.sample(count, rng)
            groups = inference_groups(fit.posterior, self._design, w)
            found.append(inference_data(groups, {"feature": self._feature_names()}, {"coef": ["feature"]}))
        return found[0] if len(found) == 1 else found


#: what coefficients change, by the link of a family
CHANGED = {
    "identity": "y itself (identity link)",
    "log": "the logarithm of the mean or of the typical size of y (log link)",
    "share": "the mean share on the scale of its link, log odds for logit",
}


def describe_response(model: Any) -> str:
    """What the coefficients change, in a line: the class, the link, the cut points."""
    name, classes = model.family_name(), getattr(model, "classes_", None)
    if name == "ordinal":
        return str(model.modelled_)
    if classes is not None:
        of = f"class {classes[1]} (against {classes[0]})" if len(classes) == 2 else "each class (against the rest)"
        changed = {"logistic": f"the log odds of {of} (logit link)", "probit": f"the probit of {of} (probit link)"}
        return f"coefficients change {changed[name]}" if name in changed else ""
    link = FAMILIES[name].link if name in FAMILIES else "identity"
    return f"coefficients change {CHANGED[link]}" if link in CHANGED else ""


def _describe_factors(model: Any, encoding: Any) -> list[str]:
    """What the posterior says of every column of levels as a whole."""
    said = []
    for name, part in ({} if encoding is None else encoding.factors).items():
        joint = model.joint(part["features"])
        plural = "contrast" if joint.df == 1 else "contrasts"
        shown = f"{joint.probability:.2g}" if np.isfinite(joint.probability) else "unknown"
        said.append(f"{name}, compared with {part['baseline']}: joint p = {shown} ({joint.df} {plural})")
    return said
