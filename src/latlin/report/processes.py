"""The pages of Gaussian processes: curves with their bands; classes, how often they are right and how sure."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from latlin.numerics.arrays import Array
from latlin.report.charts import Chart
from latlin.report.markup import figure, number, opening, page_of, section, table, text
from latlin.report.words import technical_part
from latlin.version import __version__

#: places of a curve, rows drawn at most, and coverage of the band
PLACES, MOST_ROWS, COVERAGE = 160, 1500, 0.9


class Curve(NamedTuple):
    """The mean of y along one feature, others at their medians, with the ends of a central interval."""

    name: str
    x: Array
    mean: Array
    low: Array
    high: Array


def render_curves(
    curves: list[Curve], rows: tuple[Array, Array] | None, model: Any, target: str, title: str | None = None
) -> str:
    """The page of a smooth model, as text.

    Parameters
    ----------
    curves : list of Curve
        One per feature.
    rows : (x, y) or None
        Observations, drawn where there is one feature.
    model : fitted estimator
        With `log_evidence_`, `evidence_kind_` and `hyperparameters_`.
    target, title : str
    """
    heading = title or f"{target} along {', '.join(curve.name for curve in curves)}"
    parts = [_head(model, heading, rows, [conclude_curve(curve, target) for curve in curves])]
    for curve in curves:
        drawn = figure(_chart(curve, rows if len(curves) == 1 else None, target), _caption(len(curves)))
        parts.append(section(f"{target} by {curve.name}", drawn))
    parts.append(technical_part(model))
    return page_of(heading, "".join(parts), __version__)


def curves_of_process(model: Any, X: Any, names: list[str]) -> list[Curve]:
    """One curve per input of a Gaussian process regressor, the others at their medians."""
    rows = np.asarray(X, float)
    found = []
    for j, name in enumerate(names):
        x = np.linspace(rows[:, j].min(), rows[:, j].max(), PLACES)
        places = np.tile(np.median(rows, axis=0), (PLACES, 1))
        places[:, j] = x
        # a model of a data frame wants one
        rows = type(X)(places, columns=X.columns) if hasattr(X, "iloc") else places
        found.append(Curve(name, x, *band(*model.predict_latent(rows, return_std=True))))
    return found


def band(mean: Array, std: Array) -> tuple[Array, Array, Array]:
    """Mean, and the ends of the central interval of a Gaussian."""
    half = float(ndtri(0.5 + 0.5 * COVERAGE)) * std
    return mean, mean - half, mean + half


def conclude_curve(curve: Curve, target: str) -> str:
    """Where a curve goes, in words.

    Examples
    --------
    >>> x = np.linspace(0, 10, 11)
    >>> print(conclude_curve(Curve("day", x, x, x - 1, x + 1), "weight"))
    Between day 0 and 10.0, weight goes from 0 (−1.00 to 1.00) to 10.0 (9.00 to 11.0). It is highest near 10.0 and
    lowest near 0.
    """
    top, bottom = int(np.argmax(curve.mean)), int(np.argmin(curve.mean))
    ends = [
        f"{number(curve.mean[k].item(), 3)} ({number(curve.low[k].item(), 3)} to {number(curve.high[k].item(), 3)})"
        for k in (0, -1)
    ]
    first, last = number(curve.x[0].item(), 3), number(curve.x[-1].item(), 3)
    said = f"Between {curve.name} {first} and {last}, {target} goes from {ends[0]} to {ends[1]}."
    if np.max(curve.low) <= np.min(curve.high):
        return f"{said} A level line lies within the band: the data do not show clearly that {target} changes."
    high, low = (number(curve.x[k].item(), 3) for k in (top, bottom))
    return f"{said} It is highest near {high} and lowest near {low}."


def _caption(count: int) -> str:
    others = "" if count == 1 else " Other inputs are at their medians."
    return f"Mean and {100 * COVERAGE:.0f} % interval of the curve itself, at each place; dots are rows.{others}"


def _head(model: Any, title: str, rows: tuple[Array, Array] | None, found: list[str]) -> str:
    entries = [
        ("Rows", str(len(rows[1])) if rows is not None else "–", ""),
        ("Fit", "converged" if getattr(model, "converged_", True) else "not converged", ""),
    ]
    lead = f"A smooth curve by latlin {__version__}."
    return opening(title, lead, found, entries)


def _chart(curve: Curve, rows: tuple[Array, Array] | None, target: str) -> str:
    low, high = float(curve.low.min()), float(curve.high.max())
    if rows is not None:
        low, high = min(low, float(np.min(rows[1]))), max(high, float(np.max(rows[1])))
    alt = f"{target} by {curve.name}: {conclude_curve(curve, target)}"
    chart = Chart((float(curve.x[0]), float(curve.x[-1])), (low, high), curve.name, target, alt)
    if rows is not None:
        kept = np.unique(np.linspace(0, len(rows[0]) - 1, min(len(rows[0]), MOST_ROWS)).astype(int))
        chart.marks(list(zip(rows[0][kept].tolist(), rows[1][kept].tolist(), strict=True)), "dot", 2.0)
    chart.line(list(zip(curve.x.tolist(), curve.mean.tolist(), strict=True)), "curve")
    for edge in (curve.low, curve.high):
        chart.line(list(zip(curve.x.tolist(), edge.tolist(), strict=True)), "diagonal")
    return chart.render()


# --- The page of a process classifier: how often it is right about rows it has not seen, and where it is sure.


def render_classes(model: Any, X: Any, y: Any, target: str, title: str | None = None, folds: int = 5) -> str:
    """The page of a fitted `GaussianProcessClassifier`, as text; its kernel is kept for the folds.

    Parameters
    ----------
    model : GaussianProcessClassifier
    X, y : arrays
        The rows it was fitted to.
    target, title : str
    folds : int
        Of held-out rows, at most as many as the rarest class has rows; fewer than two hold nothing out.
    """
    labels = np.asarray(y)
    folds = min(folds, int(np.unique(labels, return_counts=True)[1].min()))
    shares = np.asarray(model.predict_proba(X)) if folds < 2 else _held_out(model, X, labels, folds)
    found = conclude_classes(model.classes_, labels, shares, target, folds)
    heading = title or f"{target}: {len(model.classes_)} classes"
    entries = [("Rows", str(len(labels)), ""), ("Classes", str(len(model.classes_)), "")]
    entries.append(("Fit", "converged" if model.converged_ else "not converged", ""))
    parts = [
        opening(heading, f"A Gaussian process classifier by latlin {__version__}.", found, entries),
        section("Observed and predicted", _table(model.classes_, labels, shares)),
        section("How sure the predictions are", figure(_certainty(shares), "Rows by the probability of their class.")),
        technical_part(model),
    ]
    return page_of(heading, "".join(parts), __version__)


def _held_out(model: Any, X: Any, labels: Any, folds: int) -> Array:
    """Probabilities of rows by fits to the other folds, with the kernel as it was learnt."""
    fixed = clone(model).set_params(optimizer=None)
    if hasattr(model, "kernel_"):
        fixed.set_params(kernel=model.kernel_)
    split = StratifiedKFold(folds, shuffle=True, random_state=0)
    return np.asarray(cross_val_predict(fixed, X, labels, cv=split, method="predict_proba"))


def conclude_classes(classes: Any, labels: Any, shares: Array, target: str, folds: int) -> list[str]:
    """How often the most probable class is right, against the most frequent one.

    Examples
    --------
    >>> labels, shares = np.array(["a", "a", "b"]), np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
    >>> conclude_classes(np.array(["a", "b"]), labels, shares, "kind", 3)[0]
    'The most probable class of kind is right in 100 % of 3 held-out rows; always the most frequent one, a, in 67 %.'
    """
    right = float(np.mean(classes[shares.argmax(axis=1)] == labels))
    names, counts = np.unique(labels, return_counts=True)
    common, share = names[counts.argmax()], float(counts.max() / len(labels))
    error = float(np.sqrt(max(share * (1.0 - share), 1e-12) / len(labels)))
    where = f"{len(labels)} held-out rows" if folds >= 2 else f"the {len(labels)} rows of the fit (none were held out)"
    said = [
        f"The most probable class of {target} is right in {100 * right:.0f} % of {where}; always the most frequent "
        f"one, {common}, in {100 * share:.0f} %."
    ]
    if right < share + 2.0 * error:
        said.append("That is not clearly better than no model: do not rely on its classes.")
    sure = float(np.mean(shares.max(axis=1) >= 0.9))
    said.append(f"{100 * sure:.0f} % of the rows have a class with at least 90 % probability.")
    return said


def _table(classes: Any, labels: Any, shares: Array) -> str:
    chosen = classes[shares.argmax(axis=1)]
    headings = [("observed", ""), *((f"predicted {name}", "num") for name in classes)]
    rows = [
        [text(name), *(str(int(np.sum((labels == name) & (chosen == other)))) for other in classes)] for name in classes
    ]
    return table("classes", headings, rows)


def _certainty(shares: Array) -> str:
    best = np.sort(shares.max(axis=1))
    below = (np.arange(len(best)) + 0.5) / len(best)
    chart = Chart(
        (float(best[0]), 1.0), (0.0, 1.0), "probability of the class", "share of rows below", alt="Certainty."
    )
    chart.line(list(zip(best.tolist(), below.tolist(), strict=True)), "curve")
    return chart.render()
