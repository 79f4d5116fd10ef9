"""Everything a report says, as plain values: gathered from a fitted estimator, kept with it, shown later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from math import isfinite
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from latlin.diagnostics.model_checks import Check, ModelChecks
from latlin.report.assess import Assessment, read_checks
from latlin.version import __version__

COVERAGE = 0.9
MOST_STEPS = 400
#: unknowns up to which the covariance is looked at
MOST_JOINT = 2000
#: label of the verdict on the approximation among the lines of a diagnosis
VERDICT = "Approximation"
#: parameters of families whose estimators call them otherwise
LEARNT = {"scale": "noise scale"}


@dataclass(frozen=True)
class Facts:
    """What is known about a fit.

    Attributes
    ----------
    title, target, family, model, engine : str
    rows : int
    features : int
        Encoded columns.
    columns : list of dict
        The table as it came: name, kind, missing, distinct, summary.
    notes : list of str
        What was done to the data.
    positive : str
        The class whose probability rises with the coefficients, where there are two.
    log_evidence : list of [label, number]
        One, or one per class.
    evidence_kind : str
    learnt : list of [name, number]
        Hyperparameters, given or found.
    converged : bool
    steps : int
    trace : list of float
    message : str
    seconds : float
    coverage : float
    coefficients : list of dict
        name, mean, sd, low, high, p_positive, and effect: what mean, low and high are multiplied by to get the change
        for one standard deviation of the feature.
    diagnosis : list of [label, text]
        The verdict on the approximation, if it was diagnosed.
    engines : list of dict
        Engines beside each other, if they were compared: texts by column.
    assessment : Assessment or None
    version : str
    checks : list of Check
        Whether the model describes the data, one check at a time.
    factors : list of dict
        Columns of levels: name, levels, baseline (what they are compared with) and joint, the posterior probability
        of values less probable than no difference at all.
    scales : {"integrated", "maximised", "fixed", ""}
        What was done about hyperparameters; empty where it is not known.
    curves : list of dict
        Expected targets along the main features, as `effect_curves` gives them.
    """

    title: str
    target: str
    family: str
    model: str
    engine: str
    rows: int
    features: int
    columns: list[dict[str, Any]]
    notes: list[str]
    positive: str
    log_evidence: list[tuple[str, float]]
    evidence_kind: str
    learnt: list[tuple[str, float]]
    converged: bool
    steps: int
    trace: list[float]
    message: str
    seconds: float
    coverage: float
    coefficients: list[dict[str, Any]]
    diagnosis: list[tuple[str, str]]
    engines: list[dict[str, str]]
    assessment: Assessment | None
    version: str
    checks: list[Check] = field(default_factory=list)
    factors: list[dict[str, Any]] = field(default_factory=list)
    scales: str = ""
    curves: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; numbers that are none become null."""
        return _plain({entry.name: getattr(self, entry.name) for entry in fields(self)})

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Facts:
        """Back from a JSON object; a ValueError if it is not one of `to_json`."""
        try:
            return cls(
                **{name: read(stored[name]) for name, read in READERS.items() if name in stored or name not in LATER}
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ValueError(f"the facts of the fit cannot be read: {error!r}") from error

    @property
    def model_checks(self) -> ModelChecks:
        """The verdict on the model with all its checks."""
        return ModelChecks(tuple(self.checks))

    @property
    def approximation(self) -> str:
        """The verdict on the approximation with its reason, or empty."""
        return next((said for label, said in self.diagnosis if label == VERDICT), "")

    def with_(self, **changes: Any) -> Facts:
        """A copy with some fields changed."""
        return replace(self, **changes)


def gather(
    estimator: BaseEstimator,
    rows: int,
    *,
    target: str = "y",
    title: str | None = None,
    columns: Sequence[Mapping[str, Any]] = (),
    notes: Sequence[str] = (),
    spread: Mapping[str, float] | None = None,
    diagnosis: Sequence[tuple[str, str]] = (),
    engines: Sequence[Mapping[str, str]] = (),
    assessment: Assessment | None = None,
    factors: Mapping[str, Mapping[str, Any]] | None = None,
    curves: Sequence[Mapping[str, Any]] = (),
) -> Facts:
    """Read the facts off a fitted estimator of `latlin.linear`.

    Parameters
    ----------
    estimator : fitted estimator
    rows : int
        Of the training data.
    target : str
    title : str, optional
    columns : sequence of dict
        As `latlin.datasets.encoding.describe_columns` gives them.
    notes : sequence of str
    spread : dict, optional
        Feature name → standard deviation, to set coefficients of different units beside each other.
    diagnosis, engines, assessment :
        As in `Facts`.
    factors : dict, optional
        Column of levels → features, levels, baseline, coding: what belongs together.
    """
    model = type(estimator).__name__
    posteriors = estimator.posterior_ if isinstance(estimator.posterior_, list) else [estimator.posterior_]
    classes = [_label(label) for label in getattr(estimator, "classes_", [])]
    # one evidence, or one for each class
    each = zip(classes, posteriors, strict=True) if np.ndim(estimator.log_evidence_) else [("", posteriors[0])]
    family = estimator.family_name() if hasattr(estimator, "family_name") else model
    return Facts(
        title=title or f"Bayesian {_written(family)} regression of {target}",
        target=target,
        family=family,
        model=model,
        rows=int(rows),
        features=int(estimator.n_features_in_),
        columns=[dict(column) for column in columns],
        notes=[*map(str, notes), *_findings(estimator)],
        positive=f"{target} = {classes[1]}" if len(classes) == 2 else "",
        log_evidence=[(label, float(p.log_evidence)) for label, p in each],
        evidence_kind=str(estimator.evidence_kind_),
        learnt=_learnt(estimator),
        scales=scales_of(estimator),
        curves=[dict(curve) for curve in curves],
        coverage=COVERAGE,
        coefficients=_coefficients(estimator, spread or {}),
        diagnosis=[(str(label), str(text)) for label, text in diagnosis],
        engines=[dict(line) for line in engines],
        assessment=assessment,
        version=__version__,
        checks=_checks(estimator, assessment),
        factors=[_factor(estimator, name, part) for name, part in (factors or {}).items()],
        **_describe_fit(estimator, posteriors),
    )


def _describe_fit(estimator: BaseEstimator, posteriors: Sequence[Any]) -> dict[str, Any]:
    """How the fit went."""
    return {
        "engine": posteriors[0].engine,
        "converged": bool(estimator.converged_),
        "steps": int(np.sum(estimator.n_iter_)),
        "trace": _thinned(np.asarray(posteriors[0].trace, float)),
        "message": str(posteriors[0].message),
        "seconds": float(sum(p.elapsed for p in posteriors)),
    }


def _checks(estimator: BaseEstimator, assessment: Assessment | None) -> list[Check]:
    """What the fit showed, and what held-out rows showed."""
    known: ModelChecks = getattr(estimator, "checks_", ModelChecks())
    return list(known.including(assessment.checks if assessment is not None else ()).checks)


def _factor(estimator: BaseEstimator, name: str, part: Mapping[str, Any]) -> dict[str, Any]:
    """What the posterior says of all levels together; of several classes, of the one with the clearest difference."""
    count = len(estimator.posterior_) if isinstance(estimator.posterior_, list) else 1
    joint = float("nan")
    if estimator.evidence_kind_ != "none" and estimator.n_features_in_ <= MOST_JOINT:
        equal = part["coding"] == "one-hot" and len(part["features"]) > 1
        each = [estimator.joint(part["features"], equal=equal, response=k).probability for k in range(count)]
        joint = min(1.0, count * min(each))
    kept = {"name": name, "levels": list(part["levels"]), "features": list(part["features"])}
    return {**kept, "baseline": str(part["baseline"]), "joint": joint}


def _label(value: Any) -> str:
    """A class as people write it: 1, not 1.0."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _coefficients(estimator: BaseEstimator, spread: Mapping[str, float]) -> list[dict[str, Any]]:
    lines = []
    for row in estimator.summary(COVERAGE).rows:
        feature = next((name for name in (row["name"], row["name"].partition(": ")[2]) if name in spread), None)
        numbers = {key: float(row[key]) for key in ("mean", "sd", "low", "high", "p_positive")}
        lines.append({"name": str(row["name"]), **numbers, "effect": float(spread[feature]) if feature else 1.0})
    return lines


def is_intercept(row: Mapping[str, Any]) -> bool:
    """Whether a line of the coefficients is an intercept (of a class)."""
    return str(row["name"]).rpartition(": ")[2] == "intercept"


def _written(family: str) -> str:
    """A family as people write it."""
    return family.replace("poisson", "Poisson").replace("gaussian", "Gaussian").replace("weibull", "Weibull")


def _findings(estimator: BaseEstimator) -> list[str]:
    """What the fit says of its family: which was chosen and why, and whether the observations vary more."""
    return [words for name in ("choice_", "finding_", "modelled_") if (words := getattr(estimator, name, ""))]


def _learnt(estimator: BaseEstimator) -> list[tuple[str, float]]:
    """Fitted scalars that are neither coefficients nor how the fit went."""
    named = {"prior scale": getattr(estimator, "prior_scale_", np.nan)}
    named |= {LEARNT.get(name, name): value for name, value in getattr(estimator, "parameters_", {}).items()}
    named |= {
        name.strip("_").replace("_", " "): getattr(estimator, name, np.nan) for name in ("prior_df_", "prior_shape_")
    }
    named["Pearson dispersion"] = getattr(estimator, "dispersion_", np.nan)
    values = {name: np.asarray(value, float) for name, value in named.items()}
    return [(name, float(value)) for name, value in values.items() if value.ndim == 0 and np.isfinite(value)]


def scales_of(estimator: BaseEstimator) -> str:
    """Whether hyperparameters were integrated, maximised or given; one word for all classes."""
    held = getattr(estimator, "hyperparameters_", None)
    tables = held if isinstance(held, list) else [held]
    found = {str(getattr(table, "manner", "")) for table in tables}
    return found.pop() if len(found) == 1 else "maximised" if "maximised" in found else ""


def _thinned(trace: Any) -> list[float]:
    some = np.unique(np.linspace(0, max(len(trace) - 1, 0), min(MOST_STEPS, len(trace))).astype(int))
    return [float(trace[i]) for i in some if np.isfinite(trace[i])]


def _plain(value: Any) -> Any:
    """Dictionaries, lists, texts and numbers; those that are none become None."""
    # a line per coefficient, a hundred thousand of them: numbers first, by their kind
    if type(value) is float:
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if is_dataclass(value):
        return {entry.name: _plain(getattr(value, entry.name)) for entry in fields(value)}
    return None if isinstance(value, float) and not isfinite(value) else value


# --- reading what was stored: every field becomes the type that it has ---------------------------------


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _pairs_of_number(pairs: Any) -> list[tuple[str, float]]:
    return [(str(name), _number(value)) for name, value in pairs]


def _coefficient(row: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("mean", "sd", "low", "high", "p_positive", "effect")
    return {"name": str(row["name"]), **{key: _number(row[key]) for key in keys}}


def _factor_line(line: Mapping[str, Any]) -> dict[str, Any]:
    texts = {key: [str(value) for value in line[key]] for key in ("levels", "features")}
    return {"name": str(line["name"]), **texts, "baseline": str(line["baseline"]), "joint": _number(line["joint"])}


def _effect_curve(line: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {key: [float(value) for value in line[key]] for key in ("x", "mean", "low", "high")}
    return {"name": str(line["name"]), **numbers}


#: fields that files of version 0.1 lack
LATER = ("checks", "factors", "scales", "curves")
READERS: dict[str, Any] = {
    "curves": lambda lines: [_effect_curve(line) for line in lines],
    "checks": read_checks,
    "factors": lambda lines: [_factor_line(line) for line in lines],
    **dict.fromkeys(("title", "target", "family", "model", "engine", "positive", "message", "version"), str),
    **dict.fromkeys(("rows", "features", "steps"), int),
    **dict.fromkeys(("seconds", "coverage"), _number),
    **dict.fromkeys(("evidence_kind", "scales"), str),
    "converged": bool,
    "columns": lambda lines: [{str(key): str(value) for key, value in line.items()} for line in lines],
    "notes": lambda notes: [str(note) for note in notes],
    "log_evidence": _pairs_of_number,
    "learnt": _pairs_of_number,
    "trace": lambda trace: [float(value) for value in trace],
    "coefficients": lambda rows: [_coefficient(row) for row in rows],
    "diagnosis": lambda pairs: [(str(label), str(text)) for label, text in pairs],
    "engines": lambda lines: [{str(key): str(value) for key, value in line.items()} for line in lines],
    "assessment": lambda stored: None if stored is None else Assessment.from_json(stored),
}
