"""The page of a factor analysis: what the factors are, how much they explain, and where the rows lie."""

from __future__ import annotations

from typing import Any

import numpy as np

from latlin.factor import (
    BinaryFactorAnalysis,
    FactorAnalysis,
    GroupFactorAnalysis,
    MatrixFactorization,
    MixedFactorAnalysis,
    NoisyICA,
)
from latlin.numerics.arrays import Array
from latlin.report.charts import Chart, strip
from latlin.report.markup import figure, number, opening, page_of, paragraph, section, table, text
from latlin.report.words import technical_part
from latlin.version import __version__

#: rows drawn, and columns named per factor, at most; correlation from which on a column belongs to a factor
MOST_ROWS, MOST_NAMED, CLEAR = 1500, 5, 0.4

FACTORS = (
    FactorAnalysis,
    MixedFactorAnalysis,
    GroupFactorAnalysis,
    BinaryFactorAnalysis,
    NoisyICA,
    MatrixFactorization,
)


def render_factors(model: Any, X: Any, title: str = "Factors") -> str:
    """The page of a fitted estimator of `latlin.factor`, as text.

    Parameters
    ----------
    model : fitted estimator of `latlin.factor`
    X : array or data frame
        The rows it was fitted to.
    title : str
    """
    scores = np.asarray(model.transform(X))
    names, loadings = correlations(model, scores)
    parts = [
        _head(title, len(scores), loadings, conclusion(names, loadings)),
        section("Loadings", _loadings(names, loadings)),
        section("The rows", _rows(scores)),
        technical_part(model, _meaning(model)),
    ]
    return page_of(title, "".join(parts), __version__)


def correlations(model: Any, scores: Array | None = None) -> tuple[list[str], Array]:
    """Names of the columns, and their correlations with the factors, (columns, factors).

    Of a measured column with loadings f and noise ψ they are f / √(|f|² + ψ). Columns of other kinds have the variance
    of their link beside |f|²: π²/3 for a logistic one, 1 for a count. Factors that are not standard normal, things that
    are on or off and independent components, are measured by the standard deviations of their `scores`.
    """
    loadings = np.asarray(model.components_).T if hasattr(model, "components_") else np.asarray(model.mixing_)
    if isinstance(model, BinaryFactorAnalysis | NoisyICA) and scores is not None:
        loadings = loadings * scores.std(axis=0)
    if hasattr(model, "table_"):
        names, noise = _mixed(model)
    else:
        held = getattr(model, "feature_names_in_", [f"x{j}" for j in range(len(loadings))])
        names, noise = [str(name) for name in held], np.broadcast_to(_noise(model), len(loadings))
    return names, loadings / np.sqrt(np.sum(loadings**2, axis=1) + noise)[:, None]


def _noise(model: Any) -> Any:
    """Variances beside what factors explain; of the cells of a matrix they are one number, which is the link's."""
    if hasattr(model, "noise_variance_"):
        return model.noise_variance_
    scale = model.parameters_.get("scale")
    return (np.pi**2 / 3.0 if model.family == "logit" else 1.0) if scale is None else scale**2


def _mixed(model: Any) -> tuple[list[str], Array]:
    names: list[str] = []
    for column in (column for column in model.table_.columns if column.width):
        levels = column.levels if column.kind == "categorical" else ()
        names += [f"{column.name}={level}" for level in levels] or [str(column.name)]
    kinds = [c.kind for c in model.table_.columns for _ in range(c.width)]
    noise = np.asarray(model.noise_variance_, float)
    other = np.array([1.0 if kind == "count" else np.pi**2 / 3.0 for kind in kinds])
    return names, np.where(np.isnan(noise), other, noise)


def conclusion(names: list[str], loadings: Array) -> list[str]:
    """What each factor is, in a sentence; first the one that explains most.

    Examples
    --------
    >>> conclusion(["algebra", "analysis", "sport"], np.array([[0.1, 0.9], [0.2, 0.8], [0.7, 0.1]]))[0]
    'Factor 2 explains 49 % of the variance of the columns: it rises with algebra (0.90) and analysis (0.80).'
    """
    said = []
    shares = 100.0 * np.mean(loadings**2, axis=0)
    for k in np.argsort(-shares, kind="stable"):
        column, share = loadings[:, k], shares[k]
        order = np.argsort(-np.abs(column), kind="stable")
        clear = [j for j in order if abs(column[j]) >= CLEAR][:MOST_NAMED]
        up, down = ([j for j in clear if (column[j] > 0) == side] for side in (True, False))
        parts = [
            f"{verb} {_listed(names, column, part)}"
            for verb, part in (("rises with", up), ("falls with", down))
            if part
        ]
        what = f"it {' and '.join(parts)}" if parts else "no column has a clear share of it"
        said.append(f"Factor {k + 1} explains {share:.0f} % of the variance of the columns: {what}.")
    left = [names[j] for j in np.flatnonzero(np.sum(loadings**2, axis=1) < 0.1)]
    if left:
        shown = ", ".join(left[:8]) + (f" and {len(left) - 8} more" if len(left) > 8 else "")
        said.append(f"Hardly explained by the factors (less than 10 % of their variance): {shown}.")
    return said


def _listed(names: list[str], column: Array, places: list[Any]) -> str:
    shown = [f"{names[j]} ({column[j]:.2f})".replace("-", "−") for j in places]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _head(title: str, rows: int, loadings: Array, found: list[str]) -> str:
    entries = [
        ("Factors", str(loadings.shape[1]), f"of {len(loadings)} columns"),
        ("Rows", str(rows), ""),
        ("Explained", f"{100 * np.mean(np.sum(loadings**2, axis=1)):.0f} %", "of the variance of the columns"),
    ]
    lead = f"A factor analysis by latlin {__version__}."
    return opening(title, lead, found, entries)


def _meaning(model: Any) -> str | None:
    """Of plain factor analysis: its loadings are a point estimate, so that the number is no marginal likelihood."""
    if not isinstance(model, FactorAnalysis):
        return None
    return (
        "The number is the log likelihood of the rows at the fitted loadings and noise, the factors integrated out: "
        "compare numbers of factors by BIC or held-out rows, not by this number alone."
    )


def _loadings(names: list[str], loadings: Array) -> str:
    """Correlations of columns with factors, each with a bar, columns of one factor together."""
    count = loadings.shape[1]
    headings = [
        ("column", ""),
        *((f"factor {k + 1}", "num") for k in range(count)),
        ("strongest", "bar"),
        ("explained", "num"),
    ]
    order = np.lexsort((-np.abs(loadings).max(axis=1), np.abs(loadings).argmax(axis=1)))
    lines = []
    for j in order:
        row = loadings[j]
        best = float(row[np.abs(row).argmax()])
        bar = strip(min(best, 0.0), best, max(best, 0.0), (-1.0, 1.0), f"{names[j]} {best:.2f}")
        lines.append([text(names[j]), *(number(float(r), 2) for r in row), bar, f"{100 * np.sum(row**2):.0f} %"])
    note = "Correlations of the columns with the factors; the last number is what all factors explain of a column."
    return table("loadings", headings, lines) + paragraph(note)


def _rows(scores: Array) -> str:
    """The rows by their first two factors, or the histogram of one."""
    kept = np.unique(np.linspace(0, len(scores) - 1, min(len(scores), MOST_ROWS)).astype(int))
    if scores.shape[1] == 1:
        values = np.sort(scores[kept, 0])
        share = (np.arange(len(values)) + 0.5) / len(values)
        chart = Chart((values[0], values[-1]), (0.0, 1.0), "factor 1", "share of rows below", alt="Rows by factor 1.")
        chart.line(list(zip(values.tolist(), share.tolist(), strict=True)), "curve")
        return figure(chart.render(), "Posterior means of the factor, from the lowest row to the highest.")
    x, y = scores[kept, 0], scores[kept, 1]
    chart = Chart((x.min(), x.max()), (y.min(), y.max()), "factor 1", "factor 2", alt="Rows by the first two factors.")
    chart.marks(list(zip(x.tolist(), y.tolist(), strict=True)), "dot", 2.4)
    return figure(chart.render(), "Posterior means of the first two factors, one dot per row.")
