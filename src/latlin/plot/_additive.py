"""Terms of additive models: curves with bands, shrinkage of groups, maps, densities of hyperparameters, PIT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from latlin.numerics.options import one_of
from latlin.plot._axes import BLUE, GREY, VERMILION, Axes, checked, given_or_new


@checked(model="curve")
def curve(model: Any, term: str, ax: Axes | None = None, *, coverage: float = 0.9, color: str = BLUE) -> Axes:
    """A smooth term, walk or series of an `AdditiveModel`: its mean and a band, on the scale of the linear predictor.

    Parameters
    ----------
    model : AdditiveModel
    term : str
        Such as "s(t)" or "rw1(week)".
    ax : matplotlib Axes, optional
    coverage : float
        Of the band at each place.
    color : str
    """
    x, table = model.curve(term, coverage=coverage)
    ax = given_or_new(ax)
    ax.fill_between(x, table.column("low"), table.column("high"), color=color, alpha=0.25, lw=0)
    ax.plot(x, table.column("mean"), color=color, lw=1.8)
    ax.axhline(0.0, color=GREY, lw=0.8, zorder=0)
    ax.set_xlabel(term.partition("(")[2].rstrip(")") or term)
    ax.set_ylabel(term)
    return ax


@checked(model="effects")
def shrinkage(model: Any, group: str, raw: ArrayLike, ax: Axes | None = None, *, coverage: float = 0.9) -> Axes:
    """Effects of groups beside what each group says alone: the arrows show how far the others pull.

    Parameters
    ----------
    model : AdditiveModel
    group : str
        A group with one effect per level.
    raw : array
        One number per level on the same scale, such as group means less the overall mean.
    ax : matplotlib Axes, optional
    coverage : float
    """
    try:
        table = model.effects(group, coverage=coverage)
    except ValueError as error:
        raise ValueError(f"group must be a group of the model: {error}") from error
    alone = np.asarray(raw, float)
    if alone.shape != (len(table),):
        raise ValueError(f"raw must hold one number for each of the {len(table)} levels, got shape {alone.shape}")
    order = np.argsort(table.column("mean"), kind="stable")
    place = np.arange(len(order))
    ax = given_or_new(ax, 6.0, 1.2 + 0.22 * len(order))
    mean, low, high = (table.column(name)[order] for name in ("mean", "low", "high"))
    ax.hlines(place, low, high, color=BLUE, lw=1.4)
    ax.scatter(mean, place, s=24, color=BLUE, zorder=3, label="estimate, all groups together")
    ax.scatter(alone[order], place, s=20, color=VERMILION, marker="x", zorder=3, label="each group alone")
    ax.hlines(place, alone[order], mean, color=VERMILION, lw=0.6, alpha=0.6)
    ax.axvline(0.0, color=GREY, lw=0.8, zorder=0)
    names = [table.names[k].partition("[")[2].rstrip("]") for k in order]
    ax.set_yticks(place, names)
    ax.set_xlabel(f"effect of {group}")
    ax.legend(frameon=False)
    return ax


@checked(model="hyperparameters_")
def densities(model: Any, names: list[str] | None = None, axes: Any = None) -> Any:
    """Posterior densities of hyperparameters that were learnt, one panel each.

    Parameters
    ----------
    model : fitted estimator with `hyperparameters_`
    names : list of str, optional
        All of them unless given.
    axes : array of matplotlib Axes, optional

    Returns
    -------
    array of matplotlib Axes
    """
    marginals = model.hyperparameters_.marginals
    chosen = list(marginals) if names is None else list(names)
    if not chosen or any(name not in marginals for name in chosen):
        raise ValueError(
            f"names must be hyperparameters with a density ({', '.join(marginals) or 'none'}), got {names}"
        )
    if axes is None:
        from matplotlib import pyplot

        size = (3.2 * len(chosen), 2.8)
        axes = pyplot.subplots(1, len(chosen), figsize=size, layout="constrained", squeeze=False)[1][0]
    if np.size(axes) != len(chosen):
        raise ValueError(f"axes must be one for each of {len(chosen)} hyperparameters, got {np.size(axes)}")
    for ax, name in zip(np.ravel(axes), chosen, strict=True):
        marginal = marginals[name]
        ax.fill_between(marginal.x, marginal.density, color=BLUE, alpha=0.25, lw=0)
        ax.plot(marginal.x, marginal.density, color=BLUE, lw=1.6)
        ax.axvline(marginal.mean, color=GREY, lw=0.8)
        ax.set_xlabel(name)
        ax.set_yticks([])
        ax.set_ylim(0.0, None)
    return axes


@checked(model="effects")
def field(
    model: Any,
    term: str,
    places: Mapping[Any, tuple[float, float]] | None = None,
    ax: Axes | None = None,
    *,
    column: str = "mean",
) -> Axes:
    """A map of a `Lattice`, or of the areas of a `Besag` or `BYM2` term at given places.

    Parameters
    ----------
    model : AdditiveModel
    term : str
        Such as "lattice(row, column)" or "besag(region)".
    places : mapping, optional
        Area → (x, y), for terms on graphs.
    ax : matplotlib Axes, optional
    column : {"mean", "sd", "low", "high", "p_positive"}
        What the colours show.
    """
    table = model.effects(term)
    values = table.column(one_of("column", column, ("mean", "sd", "low", "high", "p_positive")))
    labels = [name.partition("[")[2].rstrip("]") for name in table.names]
    ax = given_or_new(ax, 5.5, 4.5)
    if places is None:
        pairs = np.array([label.split(",") for label in labels if "," in label], dtype=int)
        if len(pairs) != len(labels):
            raise ValueError(f"{term} is not a lattice: places= says where its areas are")
        grid = np.full(pairs.max(axis=0) + 1, np.nan)
        grid[pairs[:, 0], pairs[:, 1]] = values
        drawn = ax.imshow(grid, cmap="viridis")
    else:
        known = {str(label): place for label, place in places.items()}
        seen = [k for k, name in enumerate(table.names) if ":spatial[" not in name and labels[k] in known]
        spots = np.array([known[labels[k]] for k in seen])
        drawn = ax.scatter(spots[:, 0], spots[:, 1], c=values[seen], s=40, cmap="viridis")
        ax.set_aspect("equal")
    ax.figure.colorbar(drawn, ax=ax, label=f"{term}, {column}")
    return ax
