"""The page of a process classifier: how often it is right about rows it has not seen, and where it is sure."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from latlin.numerics.arrays import Array
from latlin.report.charts import Chart
from latlin.report.markup import figure, opening, page_of, section, table, text
from latlin.report.technical import technical_part
from latlin.version import __version__


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
    found = conclusion(model.classes_, labels, shares, target, folds)
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


def conclusion(classes: Any, labels: Any, shares: Array, target: str, folds: int) -> list[str]:
    """How often the most probable class is right, against the most frequent one.

    Examples
    --------
    >>> labels, shares = np.array(["a", "a", "b"]), np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
    >>> conclusion(np.array(["a", "b"]), labels, shares, "kind", 3)[0]
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
