"""Posterior densities of single coefficients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from latlin.inference.posterior import Posterior
from latlin.plot._axes import PALETTE, Axes, given_or_new


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
        The first six unless told.
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
    if not np.all(posterior.variance[chosen] > 0.0):
        raise ValueError(f"a {posterior.engine!r} posterior is a point and has no density; choose another engine")
    ax = given_or_new(ax)
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
