"""The page of a mixture: how many clusters there are, what sets each apart, and how sure the rows are of theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from latlin.numerics.arrays import Array
from latlin.report.charts import Chart
from latlin.report.markup import figure, number, opening, page_of, section, table, text
from latlin.report.words import technical_part
from latlin.version import __version__

#: clusters that have a colour of their own, rows drawn, and features listed per cluster, at most
COLOURS, MOST_ROWS, MOST_FEATURES = 6, 1500, 4
#: probability from which on a row is sure of its cluster
SURE = 0.9


def render_clusters(model: Any, X: Any, names: list[str], title: str = "Clusters") -> str:
    """The page of a fitted `BayesianGaussianMixture`, as text.

    Parameters
    ----------
    model : BayesianGaussianMixture
    X : array of shape (n, n_features)
        The rows it was fitted to; NaN where a value is missing.
    names : list of str
        Of the features.
    title : str
    """
    X = np.asarray(X, float)
    shares = np.asarray(model.predict_proba(X))
    label, size = rank_labels(shares)
    apart = differences(X, label, len(size))
    parts = [
        _head(model, title, X, size, conclusion(size, shares, apart, names)),
        section("The clusters", _table(X, label, size, apart, names), _picture(X, label, apart, names)),
        section("How sure the rows are", figure(_certainty(shares), "Rows by the probability of their own cluster.")),
        technical_part(model),
    ]
    return page_of(title, "".join(parts), __version__)


def rank_labels(shares: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The cluster of every row, numbered from the largest cluster on, and how many rows each has."""
    raw = shares.argmax(axis=1)
    counts = np.bincount(raw, minlength=shares.shape[1])
    order = np.argsort(-counts, kind="stable")
    rank = np.argsort(order)
    return rank[raw], counts[order][counts[order] > 0]


def differences(X: Array, label: NDArray[np.intp], count: int) -> Array:
    """(clusters, features): how far the mean of a cluster is from that of all rows, in standard deviations."""
    spread = np.nanstd(X, axis=0)
    centre = np.nanmean(X, axis=0)
    means = np.array([_mean(X[label == k]) for k in range(count)])
    return np.nan_to_num((means - centre) / np.where(spread > 0.0, spread, 1.0))


def conclusion(size: NDArray[np.intp], shares: Array, apart: Array, names: list[str]) -> list[str]:
    """What the clusters are, in sentences.

    Examples
    --------
    >>> conclusion(np.array([3, 1]), np.eye(2)[[0, 0, 0, 1]], np.array([[-0.6, 0.0], [1.7, 0.1]]), ["size", "age"])[0]
    'The rows fall into 2 clusters. Cluster 1 has 75 % of the rows: low size. Cluster 2 has 25 % ...: high size.'
    """
    total = int(size.sum())
    if len(size) == 1:
        return ["One cluster describes all rows: more clusters do not describe them better."]
    said = [f"The rows fall into {len(size)} clusters."]
    for k, count in enumerate(size):
        said.append(f"Cluster {k + 1} has {100 * count / total:.0f} % of the rows: {_traits(apart[k], names)}.")
    sure = float(np.mean(shares.max(axis=1) >= SURE))
    careful = (
        "Few rows or none are between clusters."
        if sure > SURE
        else "Many rows are between clusters: do not read labels as facts."
    )
    return [" ".join(said), f"{100 * sure:.0f} % of the rows have a cluster with at least 90 % probability. {careful}"]


def _traits(apart: Array, names: list[str]) -> str:
    order = np.argsort(-np.abs(apart))[:MOST_FEATURES]
    found = [f"{'high' if apart[j] > 0 else 'low'} {names[j]}" for j in order if abs(apart[j]) > 0.5]
    return ", ".join(found) if found else "near the mean of all rows in every feature"


def _mean(rows: Array) -> Array:
    seen = np.maximum((~np.isnan(rows)).sum(axis=0), 1)
    return np.asarray(np.nansum(rows, axis=0) / seen)


def _head(model: Any, title: str, X: Array, size: NDArray[np.intp], found: list[str]) -> str:
    entries = [
        ("Clusters", str(len(size)), f"of at most {model.n_components}"),
        ("Rows", str(len(X)), f"{X.shape[1]} features"),
        ("Fit", "converged" if model.converged_ else "not converged", f"{model.n_iter_} steps"),
    ]
    lead = f"A Bayesian Gaussian mixture by latlin {__version__}."
    return opening(title, lead, found, entries)


def _table(X: Array, label: NDArray[np.intp], size: NDArray[np.intp], apart: Array, names: list[str]) -> str:
    headings = [("feature", ""), *((f"cluster {k + 1}", "num") for k in range(len(size))), ("all rows", "num")]
    means = np.array([_mean(X[label == k]) for k in range(len(size))])
    order = np.argsort(-np.abs(apart).max(axis=0), kind="stable")
    rows = [[text("rows"), *(str(count) for count in size), str(len(X))]]
    rows += [
        [text(names[j]), *(number(float(m)) for m in means[:, j]), number(float(_mean(X[:, [j]])[0]))] for j in order
    ]
    return table("clusters", headings, rows)


def _picture(X: Array, label: NDArray[np.intp], apart: Array, names: list[str]) -> str:
    """The rows by the two features that set clusters apart most."""
    if X.shape[1] < 2:
        return ""
    first, second = np.argsort(-np.abs(apart).max(axis=0), kind="stable")[:2]
    kept = np.flatnonzero(~np.isnan(X[:, [first, second]]).any(axis=1))
    kept = kept[np.unique(np.linspace(0, len(kept) - 1, min(len(kept), MOST_ROWS)).astype(int))]
    x, y = X[kept, first], X[kept, second]
    alt = f"{names[second]} against {names[first]}, one colour per cluster."
    chart = Chart((x.min(), x.max()), (y.min(), y.max()), names[first], names[second], alt)
    for k in range(int(label.max()) + 1):
        part = label[kept] == k
        chart.marks(list(zip(x[part].tolist(), y[part].tolist(), strict=True)), f"dot c{min(k, COLOURS - 1)}", 2.4)
    shown = ", ".join(f"{k + 1}" for k in range(min(int(label.max()) + 1, COLOURS)))
    caption = f"The two features that set the clusters apart most; colours are clusters {shown}."
    return figure(chart.render(), caption)


def _certainty(shares: Array) -> str:
    best = shares.max(axis=1)
    edges = np.linspace(min(0.5, best.min()), 1.0, 11)
    counts = np.histogram(best, edges)[0] / len(best)
    chart = Chart(
        (edges[0], 1.0), (0.0, float(counts.max())), "probability of the row's cluster", "share of rows",
        alt=f"{100 * np.mean(best >= SURE):.0f} % of the rows have at least 90 % probability.",
    )  # fmt: skip
    steps = [(float(edge), float(share)) for k, share in enumerate(counts) for edge in edges[k : k + 2]]
    chart.line([(float(edges[0]), 0.0), *steps, (1.0, 0.0)], "curve")
    return chart.render()
