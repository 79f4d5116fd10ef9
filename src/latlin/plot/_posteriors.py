"""Coefficients with their intervals, one per line (the forest plot), and terms of additive models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from latlin.inference.posterior import Posterior
from latlin.numerics.options import check_choice, check_table_rows, float_array
from latlin.plot._axes import BLUE, GREY, PALETTE, VERMILION, Axes, check_arguments, take_axes


@check_arguments()
def forest(
    coefficients: Any,
    ax: Axes | None = None,
    *,
    coverage: float = 0.9,
    most: int = 30,
    sort: bool = True,
    intercept: bool = False,
    color: str = BLUE,
    label: str | None = None,
    shift: float = 0.0,
) -> Axes:
    """Mean and central interval of each coefficient; those whose interval holds zero are hollow.

    Parameters
    ----------
    coefficients : fitted estimator, its `summary()`, or rows
        Rows are dicts with name, mean, low and high.
    ax : matplotlib Axes, optional
    coverage : float
        Of the intervals, where an estimator is given.
    most : int
        Coefficients at most: the largest in absolute mean.
    sort : bool
        Largest on top; else in the order given.
    intercept : bool
        Show the intercept too.
    color, label, shift :
        Of the marks; a shift (in lines) sets several models beside each other.

    Returns
    -------
    matplotlib Axes
    """
    rows = [row for row in _rows(coefficients, coverage) if intercept or row["name"].lower() != "intercept"]
    order = np.argsort([-abs(row["mean"]) for row in rows], kind="stable")[:most]
    chosen = [rows[i] for i in (order if sort else np.sort(order))]
    ax = take_axes(ax, 6.0, 1.2 + 0.28 * len(chosen))
    mean, low, high = (np.array([row[key] for row in chosen]) for key in ("mean", "low", "high"))
    place = np.arange(len(chosen)) + shift
    is_clear = (low > 0.0) | (high < 0.0)
    ax.hlines(place, low, high, color=color, lw=1.6, label=label)
    ax.scatter(mean, place, s=26, zorder=3, edgecolors=color, facecolors=np.where(is_clear, color, "white"))
    ax.axvline(0.0, color=GREY, lw=0.8, zorder=0)
    ax.set_yticks(np.arange(len(chosen)), [row["name"] for row in chosen])
    ax.set_ylim(len(chosen) - 0.5, -0.5)
    ax.set_xlabel("coefficient")
    return ax


def _rows(coefficients: Any, coverage: float) -> Sequence[Mapping[str, Any]]:
    table = coefficients.summary(coverage) if hasattr(coefficients, "summary") else coefficients
    return check_table_rows("coefficients", table, ("name", "mean", "low", "high"))


# --- Posterior densities of single coefficients.


@check_arguments(posterior="density")
def marginals(
    posterior: Posterior,
    coordinates: Sequence[int] | None = None,
    ax: Axes | None = None,
    *,
    names: Sequence[str] | None = None,
    points: int = 401,
) -> Axes:
    """The marginal density of some coordinates of w, as the posterior has it: skewed where it is skewed.

    Parameters
    ----------
    posterior : Posterior
        One with a density; a point estimate has none.
    coordinates : sequence of int, optional
        The first six by default.
    ax : matplotlib Axes, optional
    names : sequence of str, optional
        Names of all coordinates.
    points : int
        Abscissae a curve.

    Returns
    -------
    matplotlib Axes
    """
    chosen = list(range(min(6, len(posterior.mean)))) if coordinates is None else list(coordinates)
    outside = [index for index in chosen if not -len(posterior.mean) <= index < len(posterior.mean)]
    if outside:
        raise ValueError(f"coordinates must be below {len(posterior.mean)}, the length of w, got {outside[0]}")
    if not chosen:
        raise ValueError("coordinates must name at least one coordinate of w")
    if names is not None and len(names) != len(posterior.mean):
        raise ValueError(f"names must be those of all {len(posterior.mean)} coordinates, got {len(names)}")
    if not np.all(posterior.variance[chosen] > 0.0):
        raise ValueError(f"a {posterior.engine!r} posterior is a point and has no density; choose another engine")
    ax = take_axes(ax)
    density = posterior.project(np.eye(len(posterior.mean))[chosen])
    # four standard deviations either side, and a little more where the tail is long
    grid = density.mean + np.sqrt(density.variance) * np.linspace(-4.5, 4.5, points)[:, None]
    height = density.pdf(grid)
    for place, index in enumerate(chosen):
        color = PALETTE[place % len(PALETTE)]
        label = names[index] if names is not None else f"w[{index}]"
        ax.plot(grid[:, place], height[:, place], color=color, lw=1.6, label=label)
        ax.fill_between(grid[:, place], height[:, place], color=color, alpha=0.12, lw=0.0)
    ax.set_ylim(bottom=0.0)
    ax.set_xlabel("coefficient")
    ax.set_ylabel("posterior density")
    ax.legend(frameon=False)
    return ax


# --- Predictive intervals beside what was observed.


@check_arguments()
def intervals(
    y: ArrayLike,
    interval: ArrayLike,
    ax: Axes | None = None,
    *,
    coverage: float | None = None,
    most: int = 200,
) -> Axes:
    """One line per row, from low to high, in rising order of its middle; the observed value on it, or off it.

    Parameters
    ----------
    y : array of shape (n,)
    interval : array of shape (n, 2)
        As `predict_interval` returns it.
    ax : matplotlib Axes, optional
    coverage : float, optional
        What the intervals promise; the title then sets it beside what they hold.
    most : int
        Rows drawn at most, evenly spread; the coverage in the title is that of all rows.

    Returns
    -------
    matplotlib Axes
    """
    seen, ends = np.asarray(y, float), np.asarray(interval, float)
    if ends.shape != (*seen.shape, 2) or seen.ndim != 1:
        raise ValueError(f"interval must have shape (n, 2) for y of length n, got {ends.shape} for {seen.shape}")
    is_inside = (ends[:, 0] <= seen) & (seen <= ends[:, 1])
    order = np.argsort(ends.mean(axis=1), kind="stable")
    order = order[np.unique(np.linspace(0, len(order) - 1, min(most, len(order))).astype(int))]
    ax = take_axes(ax)
    place = np.arange(len(order))
    ax.vlines(place, ends[order, 0], ends[order, 1], color=BLUE, lw=1.0, alpha=0.5)
    for part, color, mark, label in ((is_inside, BLUE, "o", "inside"), (~is_inside, VERMILION, "x", "outside")):
        ax.scatter(place[part[order]], seen[order][part[order]], s=14, color=color, marker=mark, label=label, zorder=3)
    promised = "" if coverage is None else f" (promised {100 * coverage:.0f} %)"
    ax.set_title(f"{100 * is_inside.mean():.0f} % of {len(seen)} rows inside{promised}")
    ax.set_xlabel("row, in order of its prediction")
    ax.set_ylabel("observed")
    ax.legend(frameon=False)
    return ax


# --- Terms of additive models: curves with bands, shrinkage of groups, maps, densities of hyperparameters, PIT.


@check_arguments(model="curve")
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
    ax = take_axes(ax)
    ax.fill_between(x, table.column("low"), table.column("high"), color=color, alpha=0.25, lw=0)
    ax.plot(x, table.column("mean"), color=color, lw=1.8)
    ax.axhline(0.0, color=GREY, lw=0.8, zorder=0)
    ax.set_xlabel(term.partition("(")[2].rstrip(")") or term)
    ax.set_ylabel(term)
    return ax


@check_arguments(model="effects")
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
    ax = take_axes(ax, 6.0, 1.2 + 0.22 * len(order))
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


@check_arguments(model="hyperparameters_")
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


@check_arguments(model="effects")
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
    values = table.column(check_choice("column", column, ("mean", "sd", "low", "high", "p_positive")))
    labels = [name.partition("[")[2].rstrip("]") for name in table.names]
    ax = take_axes(ax, 5.5, 4.5)
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
        if not seen:
            raise ValueError(f"places must hold (x, y) of areas such as {labels[0]!r}, got {places!r:.80}")
        spots = np.array([float_array("places", known[labels[k]]) for k in seen])
        if spots.shape != (len(seen), 2):
            raise ValueError(f"places must hold (x, y) of each area, got {places!r:.80}")
        drawn = ax.scatter(spots[:, 0], spots[:, 1], c=values[seen], s=40, cmap="viridis")
        ax.set_aspect("equal")
    ax.figure.colorbar(drawn, ax=ax, label=f"{term}, {column}")
    return ax
