"""Mixtures, factors and processes: clusters with their ellipses, loadings, curves with their bands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from latlin.plot._axes import BLUE, GREY, PALETTE, Axes, check_arguments, take_axes


@check_arguments(mixture="means_")
def clusters(
    mixture: Any,
    X: ArrayLike,
    features: tuple[int, int] = (0, 1),
    ax: Axes | None = None,
    *,
    coverage: float = 0.9,
    names: Sequence[str] | None = None,
) -> Axes:
    """Rows by two features, coloured by their cluster, and the ellipse that holds a share of each cluster.

    Parameters
    ----------
    mixture : BayesianGaussianMixture
    X : array of shape (n, n_features)
    features : pair of int
        Which features are drawn.
    ax : matplotlib Axes, optional
    coverage : float
        Probability inside an ellipse.
    names : sequence of str, optional
        Of all features.

    Returns
    -------
    matplotlib Axes
    """
    rows, pair = np.asarray(X, float), list(features)
    if len(pair) != 2 or not all(0 <= j < rows.shape[1] for j in pair):
        raise ValueError(f"features must be two columns below {rows.shape[1]}, got {features!r}")
    if names is not None and len(names) != rows.shape[1]:
        raise ValueError(f"names must be those of all {rows.shape[1]} features, got {len(names)}")
    label = np.asarray(mixture.predict(rows))
    ax = take_axes(ax, 5.5, 4.5)
    # a Gaussian in two dimensions has probability 1 − exp(−r²/2) within r standard deviations
    radius = np.sqrt(-2.0 * np.log1p(-coverage))
    turn = np.linspace(0.0, 2.0 * np.pi, 121)
    circle = radius * np.vstack([np.cos(turn), np.sin(turn)])
    shown = sorted(set(label.tolist()), key=lambda k: -int(np.sum(label == k)))
    for place, k in enumerate(shown):
        color = PALETTE[place % len(PALETTE)]
        part = label == k
        ax.scatter(rows[part, pair[0]], rows[part, pair[1]], s=9, alpha=0.55, color=color, lw=0)
        spread = _full_covariance(mixture, k, rows.shape[1])[np.ix_(pair, pair)]
        edge = np.asarray(mixture.means_)[k, pair][:, None] + np.linalg.cholesky(spread) @ circle
        ax.plot(edge[0], edge[1], color=color, lw=1.5, label=f"{int(part.sum())} rows")
    called = [f"x{j}" for j in range(rows.shape[1])] if names is None else list(names)
    ax.set_xlabel(called[pair[0]])
    ax.set_ylabel(called[pair[1]])
    ax.legend(frameon=False)
    return ax


def _full_covariance(mixture: Any, k: int, dim: int) -> Any:
    """The covariance of one component as a matrix, whatever its own shape is."""
    held = np.asarray(mixture.covariances_)
    if mixture.covariance in ("tied", "fixed"):
        return np.eye(dim) * held if held.ndim < 2 else held
    own = held[k]
    return own if np.ndim(own) == 2 else np.eye(dim) * own


@check_arguments(model="components_")
def loadings(model: Any, ax: Axes | None = None, *, names: Sequence[str] | None = None) -> Axes:
    """Loadings of a factor model as a picture: one column per factor, one line per feature, blue for negative ones.

    Parameters
    ----------
    model : fitted estimator with `components_` of shape (factors, features)
    ax : matplotlib Axes, optional
    names : sequence of str, optional
        Of the features; those of the fit unless given.

    Returns
    -------
    matplotlib Axes
    """
    table = np.asarray(model.components_, float).T
    held = names if names is not None else getattr(model, "feature_names_in_", None)
    called = [f"x{j}" for j in range(len(table))] if held is None or len(held) != len(table) else list(map(str, held))
    order = np.lexsort((-np.abs(table).max(axis=1), np.abs(table).argmax(axis=1)))
    ax = take_axes(ax, 1.8 + 0.9 * table.shape[1], 1.2 + 0.24 * len(table))
    top = float(np.abs(table).max()) or 1.0
    drawn = ax.imshow(table[order], cmap="RdBu_r", vmin=-top, vmax=top, aspect="auto")
    ax.set_yticks(np.arange(len(table)), [called[j] for j in order])
    ax.set_xticks(np.arange(table.shape[1]), [str(k + 1) for k in range(table.shape[1])])
    ax.set_xlabel("factor")
    ax.figure.colorbar(drawn, ax=ax, label="loading")
    return ax


@check_arguments(model="predict_latent")
def process(
    model: Any,
    X: ArrayLike,
    y: ArrayLike | None = None,
    feature: int = 0,
    ax: Axes | None = None,
    *,
    coverage: float = 0.9,
    noise: bool = False,
    points: int = 200,
) -> Axes:
    """A Gaussian process along one input: mean, band and, if given, the observations.

    Parameters
    ----------
    model : GaussianProcessRegressor
    X : array of shape (n, n_features)
        Inputs that say from where to where the curve goes; other inputs are at their medians.
    y : array of shape (n,), optional
        Observations to draw.
    feature : int
        Which input.
    ax : matplotlib Axes, optional
    coverage : float
        Of the band at each place.
    noise : bool
        The band of new observations instead of that of the latent function.
    points : int
        Places of the curve.

    Returns
    -------
    matplotlib Axes
    """
    rows = np.asarray(X, float)
    if not 0 <= feature < rows.shape[1]:
        raise ValueError(f"feature must be below {rows.shape[1]}, the number of inputs, got {feature}")
    x = np.linspace(rows[:, feature].min(), rows[:, feature].max(), points)
    places = np.tile(np.median(rows, axis=0), (points, 1))
    places[:, feature] = x
    if noise:
        low, mean, high = model.predict_quantiles(places, [0.5 - 0.5 * coverage, 0.5, 0.5 + 0.5 * coverage]).T
    else:
        mean, std = model.predict_latent(places, return_std=True)
        half = float(ndtri(0.5 + 0.5 * coverage)) * std
        low, high = mean - half, mean + half
    ax = take_axes(ax)
    if y is not None:
        ax.scatter(rows[:, feature], np.asarray(y, float), s=10, color=GREY, alpha=0.6, lw=0)
    ax.fill_between(x, low, high, color=BLUE, alpha=0.25, lw=0)
    ax.plot(x, mean, color=BLUE, lw=1.8)
    ax.set_xlabel(f"x{feature}" if not hasattr(model, "feature_names_in_") else str(model.feature_names_in_[feature]))
    ax.set_ylabel("y" if noise else "latent function")
    return ax
