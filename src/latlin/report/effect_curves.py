"""How the expected target changes with each main feature, the others at their means: curves with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
from scipy.special import expit, ndtr, ndtri

from latlin.numerics.arrays import Array
from latlin.potentials.families import Family
from latlin.potentials.laplace import AsymmetricLaplace
from latlin.potentials.logit import Logit
from latlin.potentials.probit import Probit
from latlin.report.charts import Chart
from latlin.report.markup import figure, paragraph, section

#: features drawn, places of a curve, and coverage of its band; fewer different values are levels
MOST, PLACES, COVERAGE, FEWEST = 4, 41, 0.9, 5


def effect_curves(estimator: Any, X: Any) -> list[dict[str, Any]]:
    """Name, x, mean, low and high of the features with the largest effects; none where the mean has no known link.

    Parameters
    ----------
    estimator : fitted estimator of `latlin.linear`
        With one response.
    X : array or data frame of numbers
        The rows it was fitted to.

    Examples
    --------
    >>> from latlin.linear import BayesianLinearRegression
    >>> X = np.linspace(0.0, 1.0, 40)[:, None]
    >>> curve = effect_curves(BayesianLinearRegression().fit(X, 2.0 * X[:, 0]), X)[0]
    >>> curve["name"], [round(curve["mean"][k], 1) for k in (0, -1)]
    ('x0', [0.0, 2.0])
    """
    inverse = _inverse_link(estimator.response_family())
    try:
        rows = np.asarray(X, float)
    except (TypeError, ValueError):
        return []
    coef = np.asarray(estimator.coef_, float)
    if inverse is None or coef.size != rows.shape[1] or estimator.evidence_kind_ == "none":
        return []
    effect = np.abs(coef.ravel()) * rows.std(axis=0)
    numeric = (j for j in np.argsort(-effect) if effect[j] > 0.0 and len(np.unique(rows[:, j])) >= FEWEST)
    names = getattr(estimator, "feature_names_in_", [f"x{j}" for j in range(rows.shape[1])])
    return [{"name": str(names[j]), **_curve(estimator, X, rows, j, inverse)} for j in islice(numeric, MOST)]


def _inverse_link(family: Family) -> Callable[[Array], Array] | None:
    """The mean of an observation by its linear predictor; None for classes in order, shares and quantiles."""
    if isinstance(family.template, Logit):
        return expit
    if isinstance(family.template, Probit):
        return ndtr
    if isinstance(family.template, AsymmetricLaplace):
        return None
    return np.asarray if family.link == "identity" else np.exp if family.link == "log" else None


def _curve(estimator: Any, X: Any, rows: Array, j: int, inverse: Callable[[Array], Array]) -> dict[str, list[float]]:
    x = np.linspace(rows[:, j].min(), rows[:, j].max(), PLACES)
    places = np.tile(rows.mean(axis=0), (PLACES, 1))
    places[:, j] = x
    rows = type(X)(places, columns=X.columns) if hasattr(X, "iloc") else places
    mean, std = (np.asarray(part, float).ravel() for part in estimator.predict_latent(rows, return_std=True))
    half = float(ndtri(0.5 + 0.5 * COVERAGE)) * std
    ends = {"mean": mean, "low": mean - half, "high": mean + half}
    return {"x": x.tolist(), **{key: inverse(values).tolist() for key, values in ends.items()}}


def effects_section(curves: Sequence[Mapping[str, Any]], target: str, positive: str) -> str:
    """The pictures; nothing where there are none."""
    if not curves:
        return ""
    what = f"probability of {positive}" if positive else f"expected {target}"
    low, high = (edge(edge(curve[key]) for curve in curves) for edge, key in ((min, "low"), (max, "high")))
    drawn = []
    for curve in curves:
        ends = curve["mean"][0], curve["mean"][-1]
        alt = f"{what} by {curve['name']}: from {ends[0]:.3g} to {ends[1]:.3g}"
        chart = Chart((curve["x"][0], curve["x"][-1]), (low, high), curve["name"], what, alt)
        chart.line(list(zip(curve["x"], curve["mean"], strict=True)), "curve")
        for key in ("low", "high"):
            chart.line(list(zip(curve["x"], curve[key], strict=True)), "diagonal")
        drawn.append(figure(chart.render(), f"{what} by {curve['name']}."))
    said = (
        f"The {what} along the features with the largest effects, the others at their means, with the "
        f"{100 * COVERAGE:.0f} % interval of the curve; all pictures have one vertical axis."
    )
    return section("Effects of the main features", paragraph(said), f'<div class="pair">{"".join(drawn)}</div>')
