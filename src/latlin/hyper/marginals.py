"""Marginal densities of hyperparameters, from the points at which their joint density was evaluated.

The log density is a split normal plus a smooth remainder, which is interpolated between the points by cubic radial
functions; many quasi-random draws, weighed by that, give the marginals. They follow the points where these are a
lattice, which may be bent far out of the shape of a normal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import RBFInterpolator
from scipy.special import gammaln
from scipy.stats import qmc

from latlin.hyper.axes import NARROWEST, WIDEST, Axes
from latlin.hyper.space import Hyperparameter, Space
from latlin.numerics.arrays import Array
from latlin.numerics.rng import quasi_random_t
from latlin.numerics.stored import storable

#: draws, points of a stored density, degrees of freedom of the draws
DRAWS, GRID, DF = 2**12, 201, 5.0
#: points whose density is lower than the best by more nat do not help to interpolate
DEEP = 14.0
#: width of the kernel of a density, in standard deviations, and draws on either side that say how far they are apart
WIDTH, NEAR = 0.08, 4


@storable
@dataclass(frozen=True)
class Marginal:
    """The posterior of one hyperparameter.

    Attributes
    ----------
    x, density : ndarray
        Points in rising order and the density there, to plot.
    levels : ndarray
        P(below x).
    mean, sd : float
    """

    x: Array
    density: Array
    levels: Array
    mean: float
    sd: float

    def pdf(self, x: ArrayLike) -> Array:
        """The density, interpolated; zero beyond the tabulated points."""
        return np.interp(np.asarray(x, float), self.x, self.density, left=0.0, right=0.0)

    def cdf(self, x: ArrayLike) -> Array:
        """P(below x)."""
        return np.interp(np.asarray(x, float), self.x, self.levels, left=0.0, right=1.0)

    def quantile(self, q: ArrayLike) -> Array:
        """x with P(below x) = q."""
        return np.interp(np.asarray(q, float), self.levels, self.x)


def marginals_of(
    space: Space, axes: Axes, u: Array, log_density: Array, share: Array, step: float = 0.0
) -> dict[str, Marginal]:
    """One marginal per hyperparameter.

    Parameters
    ----------
    space : Space
    axes : Axes
    u : ndarray of shape (K, m)
        Points.
    log_density : ndarray of shape (K,)
        Of the coordinates, up to a constant.
    share : ndarray of shape (K,)
        Shares of the points in the integral; mean and sd are by these.
    step : float
        Of a lattice whose points these are, in standard deviations; zero where they are none.
    """
    draws, proposed = _draws_about(axes) if not step else _draws_in_cells(space, axes, u, share, step)
    weight = _weights(space, axes, u, log_density, draws, proposed)
    natural = space.natural(u)
    found = {}
    for j, member in enumerate(space.members):
        mean = float(share @ natural[:, j])
        sd = float(np.sqrt(share @ (natural[:, j] - mean) ** 2))
        found[member.name] = _tabulated(member, draws[:, j], weight, mean, sd)
    return found


def marginals_from(space: Space, u: Array, weight: Array) -> dict[str, Marginal]:
    """One marginal per hyperparameter from many weighted points u."""
    natural = space.natural(u)
    mean = weight @ natural
    sd = np.sqrt(weight @ (natural - mean) ** 2)
    return {
        member.name: _tabulated(member, u[:, j], weight, float(mean[j]), float(sd[j]))
        for j, member in enumerate(space.members)
    }


def spread_of(hessian: Array) -> Array:
    """The covariance of the coordinates at an optimum; a direction without curvature is as wide as a search may be."""
    values, vectors = np.linalg.eigh(-hessian)
    return np.asarray((vectors / np.clip(values, WIDEST**-2, NARROWEST**-2)) @ vectors.T)


def normal_marginal(member: Hyperparameter, u: float, sd: float) -> Marginal:
    """The marginal when the coordinate is normal about an optimum."""
    z = np.linspace(-5.0, 5.0, 401)
    weight = np.exp(-0.5 * z**2)
    weight /= weight.sum()
    x = np.asarray(member.value(u + sd * z))
    mean = float(weight @ x)
    return _tabulated(member, u + sd * z, weight, mean, float(np.sqrt(weight @ (x - mean) ** 2)))


def _draws_about(axes: Axes) -> tuple[Array, Array]:
    """Draws about the optimum, and their log density."""
    z = quasi_random_t(len(axes.centre), DRAWS, DF, seed=0)
    each = gammaln(0.5 * (DF + 1.0)) - gammaln(0.5 * DF) - 0.5 * (DF + 1.0) * np.log1p(z**2 / DF)
    return axes.split(z), (each - np.log(np.where(z >= 0.0, axes.up, axes.down))).sum(axis=1)


def _draws_in_cells(space: Space, axes: Axes, u: Array, share: Array, step: float) -> tuple[Array, Array]:
    """Draws from the cells of a lattice, more of them where its points have larger shares, and their log density.

    Where the lattice ends because its next point lies beyond an end of the search, that cell is among them.
    """
    (low, high), moves = space.box.T, step * axes.even * axes.basis
    beyond = np.concatenate([u + move for move in np.concatenate([moves.T, -moves.T])])
    outside = np.any((beyond < low) | (beyond > high), axis=1)
    middles = np.concatenate([u, beyond[outside]])
    often = np.sqrt(np.concatenate([share, np.tile(share, 2 * u.shape[1])[outside]]))
    places = np.round(axes.unscaled(middles) / (axes.even * step)).astype(np.int64)
    _, first = np.unique(places, axis=0, return_index=True)
    middles, often = middles[first], often[first] / often[first].sum()
    levels = (np.arange(DRAWS) + 0.5) / DRAWS
    chosen = np.minimum(np.searchsorted(np.cumsum(often), levels), len(often) - 1)
    within = qmc.Sobol(u.shape[1], seed=0).random(DRAWS) - 0.5
    return middles[chosen] + within @ moves.T, np.log(often[chosen])


def _weights(space: Space, axes: Axes, u: Array, log_density: Array, draws: Array, proposed: Array) -> Array:
    """Shares of draws under the density that is interpolated between the points u."""
    known = log_density > log_density.max() - DEEP
    remainder = log_density[known] - axes.log_split_normal(u[known])
    surrogate = axes.log_split_normal(draws) + _interpolated(axes.standard(u[known]), remainder, axes.standard(draws))
    low, high = space.box.T
    surrogate[np.any((draws < low) | (draws > high), axis=1)] = -np.inf
    logs = surrogate - proposed
    weight = np.exp(logs - logs.max())
    return np.asarray(weight / weight.sum())


def _interpolated(at: Array, values: Array, z: Array) -> Array:
    """A smooth function through values, never beyond them."""
    if len(at) <= at.shape[1] + 1 or np.ptp(values) == 0.0:
        return np.full(len(z), float(np.mean(values)))
    smooth = RBFInterpolator(at, values, kernel="cubic", degree=1)(z)
    return np.clip(smooth, values.min(), values.max())


def _tabulated(member: Hyperparameter, u: Array, weight: Array, mean: float, sd: float) -> Marginal:
    order = np.argsort(u)
    order = order[weight[order] > 0.0]
    u, weight = u[order], weight[order]
    below = np.cumsum(weight) - 0.5 * weight
    low, high = np.interp([1e-4, 1.0 - 1e-4], below, u)
    grid = np.linspace(low, high, GRID)
    centre = float(weight @ u)
    width = WIDTH * float(np.sqrt(weight @ (u - centre) ** 2)) or 1.0
    step = (high - low) / (GRID - 1) or 1.0
    # densities of cells, averaged by a normal kernel, in the unit of the number itself, in which scales end flat at 0.
    # Cells go on as far as the first and the last draw stand for.
    apart = _distances(u, grid)
    ends = np.maximum([low - u[0], u[-1] - high], 0.0) + (np.diff(u)[[0, -1]] if len(u) > 1 else 0.0)
    pad = np.minimum(ends / step, GRID).astype(int)
    cells = low + step * np.arange(-pad[0], GRID + pad[1])
    masses = np.histogram(u, np.append(cells - 0.5 * step, cells[-1] + 0.5 * step), weights=weight)[0]
    slope = np.abs(member.slope(cells))
    kernel = np.exp(-0.5 * ((grid[:, None] - cells) / np.maximum(width, 2.0 * apart)[:, None]) ** 2)
    density = kernel @ (masses / np.maximum(slope, np.finfo(float).tiny)) / (kernel.sum(axis=1) * step)
    return Marginal(np.asarray(member.value(grid)), density, np.interp(grid, u, below), mean, sd)


#: what lies beyond an end of the search, as a share of what lies within, from which on a fit is not to be trusted
LOST = 0.03
#: width, in standard deviations of a coordinate, of the two slices at an end that tell how fast its density falls there
SLICE = 0.35
#: mass of the last slice below which nothing is said: so few draws are there that they do not tell how it goes on
SLIGHT = 1e-2


def share_beyond(member: Hyperparameter, marginal: Marginal, side: int) -> float:
    """How much lies beyond an end of the search, as a share of what lies within: as if slices went on as the last two.

    Infinite where the density does not fall towards the end.
    """
    end = (member.bounds or (-np.inf, np.inf))[0 if side < 0 else 1]
    if not np.isfinite(end):
        return 0.0
    known = np.array([member.coordinate(float(x)) for x in marginal.x])
    mass = np.diff(marginal.levels, prepend=0.0)
    middle = mass @ known / mass.sum()
    width = SLICE * float(np.sqrt(mass @ (known - middle) ** 2 / mass.sum()))
    at = member.coordinate(end) - side * width * np.arange(3)
    last, before = np.abs(np.diff(np.interp(at, known, marginal.levels, left=0.0, right=1.0)))
    if last < SLIGHT:
        return 0.0
    return float(last / (before / last - 1.0)) if before > last else np.inf


def find_cut_off(space: Space, marginals: dict[str, Marginal], instead: str) -> tuple[Array, str]:
    """−1 or +1 where some of the posterior lies beyond an end of the search, and words."""
    sides, said = np.zeros(len(space), int), []
    for j, member in enumerate(space.members):
        shares = {side: share_beyond(member, marginals[member.name], side) for side in (-1, 1)}
        side = max(shares, key=lambda side: shares[side])
        if shares[side] < LOST:
            continue
        sides[j], beyond = side, shares[side]
        end, place = "lower" if side < 0 else "upper", (member.bounds or (np.nan, np.nan))[0 if side < 0 else 1]
        much = f"about {100.0 * beyond / (1.0 + beyond):.0f} % of its posterior lies beyond"
        much = much if np.isfinite(beyond) else "its posterior is still high there"
        said.append(f"{member.name} runs to the {end} end of its search ({place:.3g}): {much}")
    return sides, f"{'; '.join(said)}; do not trust this fit: {instead}" if said else ""


def _distances(u: Array, grid: Array) -> Array:
    """How far neighbours among sorted draws are apart about the points of a grid."""
    behind = np.searchsorted(u, grid)
    first, last = np.maximum(behind - NEAR, 0), np.minimum(behind + NEAR, len(u) - 1)
    return np.asarray((u[last] - u[first]) / np.maximum(last - first, 1))


# --- The table of hyperparameters that a fit leaves: what each is, how sure, under which prior, and whether at an end.


Manner = Literal["integrated", "maximised", "fixed"]
#: probabilities of the quantiles
LEVELS = (0.05, 0.5, 0.95)
COLUMNS = ("name", "mean", "sd", "5%", "50%", "95%", "at_bound", "prior")


@storable
@dataclass(frozen=True)
class HyperparameterTable:
    """Hyperparameters of a fit; prints as a table in a terminal and in a notebook.

    Attributes
    ----------
    rows : list of dict
        name, mean, sd, quantiles 5%, 50% and 95%, at_bound ("", "lower" or "upper"), prior (as text). When maximised,
        the mean is the penalised optimum, and sd and quantiles are those of a normal in its coordinate, where known.
    manner : {"integrated", "maximised", "fixed"}
    marginals : dict
        Name → Marginal with a density to plot, where there is one.
    note : str
        How the numbers came about.
    """

    rows: list[dict[str, Any]]
    manner: Manner
    marginals: dict[str, Marginal] = field(default_factory=dict, repr=False)
    note: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(row["name"] for row in self.rows)

    @property
    def at_bound(self) -> tuple[str, ...]:
        """Names of those at an end of their search."""
        return tuple(row["name"] for row in self.rows if row["at_bound"])

    def __getitem__(self, name: str) -> dict[str, Any]:
        for row in self.rows:
            if row["name"] == name:
                return row
        raise KeyError(f"no hyperparameter {name!r}; there are {', '.join(self.names)}")

    def __len__(self) -> int:
        return len(self.rows)

    def to_frame(self) -> Any:
        """A data frame with one row per hyperparameter, indexed by name."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_frame() needs pandas: install latlin[cli]") from error
        return pandas.DataFrame(self.rows, columns=list(COLUMNS)).set_index("name")

    def _shown(self) -> list[str]:
        """The columns that are printed: whether one is at an end of its search, only where one is."""
        return [column for column in COLUMNS if column != "at_bound" or self.at_bound]

    def _cells(self) -> list[list[str]]:
        return [[_cell(row[column]) for column in self._shown()] for row in self.rows]

    def __repr__(self) -> str:
        table = [self._shown(), *self._cells()]
        widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in table]
        title = f"hyperparameters, {self.manner}" + (f": {self.note}" if self.note else "")
        return "\n".join([title, *lines])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in self._shown())
        body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in line) + "</tr>" for line in self._cells())
        caption = f"<caption>hyperparameters, {escape(self.manner)}<br>{escape(self.note)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def row_of(name: str, mean: float, marginal: Marginal | None, side: int, prior: str) -> dict[str, Any]:
    """A row; without a marginal the spread is not known."""
    at_bound = "" if not side else "lower" if side < 0 else "upper"
    levels = [np.nan] * len(LEVELS) if marginal is None else marginal.quantile(np.array(LEVELS)).tolist()
    spread = np.nan if marginal is None else marginal.sd
    quantiles = dict(zip(("5%", "50%", "95%"), levels, strict=True))
    return {"name": name, "mean": float(mean), "sd": float(spread), **quantiles, "at_bound": at_bound, "prior": prior}


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
