"""Marginal densities of hyperparameters, from the points at which their joint density was evaluated.

The log density is a split normal plus a smooth remainder, which is interpolated between the points by cubic radial
functions; many quasi-random draws, weighed by that, give the marginals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import RBFInterpolator
from scipy.special import gammaln

from latlin.hyper.optimum import RELIABLE, Optimum, hessian_at
from latlin.hyper.space import Hyperparameter, Objective, Point, Space
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.rng import quasi_random_t
from latlin.numerics.stored import storable

# --- Coordinates z in which the posterior of hyperparameters is about a standard normal.
#
#     u = centre + E (s ∘ z),   E = eigenvectors of minus the inverse Hessian, times the roots of its eigenvalues
#
# with one scale s per axis and direction, taken from how far the log density has fallen at ±√2 (Rue, Martino and
# Chopin, 2009, §6.5): a normal has fallen by one there.
#
# Tails of logarithms of scales fall like exp(−a t), slowly where a group has few levels. With
#
#     t = z + κ (z √(z² + 1) − z) + δ z²,
#
# which is near (κ ± δ) z² far out, such a tail is that of a normal, −½z² = −t/(2(κ ± δ)), and what is left to a smooth
# interpolation is little. κ and δ of an axis are those with which both falls are ½z².

#: largest and smallest sd of a coordinate that a Hessian may say
WIDEST, NARROWEST = 3.0, 1e-4
#: where skewness is measured, and ends of the scales that it may give
REACH = float(np.sqrt(2.0))
SCALES = (0.3, 3.0)
#: factor by which curvature over the reach of an axis may differ from the one that a search has found out
AGREED = 1.6
#: a longer tail than this is drawn in; that of the logarithm of a gamma variable of shape 2 is 0.16, those of the
#: logarithms of the scales of groups that hardly differ are 0.4 to 0.5
SHORTEST_TAIL = 0.25
#: largest κ, with which t rises by at least half of z, and steps of Newton's method from t to z
LONGEST_TAIL, INVERTED = 0.5, 12


@dataclass(frozen=True)
class Axes:
    """The map between z and u.

    Parameters
    ----------
    centre : ndarray of shape (m,)
    basis : ndarray of shape (m, m)
        Columns are axes, as long as one standard deviation.
    up, down : ndarray of shape (m,)
        Scales for z above and below zero.
    tried : tuple of pairs
        Points at which the scales were measured, with gradients of the log density in u where these are known.
    long_tails : bool
        Whether long tails are drawn in.
    """

    centre: Array
    basis: Array
    up: Array
    down: Array
    tried: tuple[tuple[Point, Array | None], ...] = ()
    long_tails: bool = False

    @cached_property
    def _tails(self) -> tuple[Array, Array]:
        """κ and δ of every axis; κ ± δ are not negative."""
        if not self.long_tails:
            return np.zeros_like(self.up), np.zeros_like(self.up)
        # ½z² is the fall at t = ±√2
        up, down = REACH / self.up, REACH / self.down
        (a, b), (c, d) = (_tail_terms(up), _tail_terms(-down))
        right, left = REACH - up, down - REACH
        kappa, delta = (right * d - left * b) / (a * d - c * b), (a * left - c * right) / (a * d - c * b)
        above, below = np.maximum(kappa + delta, 0.0), np.maximum(kappa - delta, 0.0)
        kappa, delta = 0.5 * (above + below), 0.5 * (above - below)
        less = np.minimum(1.0, LONGEST_TAIL / np.maximum(kappa, 1e-300))
        less[np.maximum(above, below) < SHORTEST_TAIL] = 0.0
        return kappa * less, delta * less

    @property
    def log_volume(self) -> float:
        """log |det E|."""
        return float(np.linalg.slogdet(self.basis)[1])

    @property
    def even(self) -> Array:
        """One scale per axis, for both directions."""
        return 0.5 * (self.up + self.down)

    def split(self, z: Array) -> Array:
        """u at rows of z, with a scale per direction."""
        return self.centre + (z * np.where(z >= 0.0, self.up, self.down)) @ self.basis.T

    def plain(self, z: Array) -> Array:
        """u at rows of z, with one scale per axis."""
        return self.centre + (z * self.even) @ self.basis.T

    def unscaled(self, u: Array) -> Array:
        """t of rows of u, with u = centre + E t."""
        return np.asarray(np.linalg.solve(self.basis, (np.atleast_2d(u) - self.centre).T).T)

    def standard(self, u: Array) -> Array:
        """z of rows of u, with a scale per direction."""
        t = self.unscaled(u)
        return t / np.where(t >= 0.0, self.up, self.down)

    def drawn_in(self, u: Array) -> Array:
        """z of rows of u, in which exponential tails are those of a normal."""
        t = self.unscaled(u)
        kappa, delta = self._tails
        if not (kappa.any() or delta.any()):
            return t
        far = np.where(t >= 0.0, kappa + delta, kappa - delta)
        z = t * np.sqrt(2.0 / (1.0 + np.sqrt(1.0 + 4.0 * (far * t) ** 2)))
        for _ in range(INVERTED):
            z = z - (self._far(z) - t) / self.stretch(z)
        return np.asarray(z)

    def _far(self, z: Array) -> Array:
        """t at z."""
        (kappa, delta), (odd, even) = self._tails, _tail_terms(z)
        return np.asarray(z + kappa * odd + delta * even)

    def stretch(self, z: Array) -> Array:
        """dt/dz."""
        kappa, delta = self._tails
        return np.asarray(1.0 + kappa * ((2.0 * z**2 + 1.0) / np.sqrt(z**2 + 1.0) - 1.0) + 2.0 * delta * z)

    def log_split_normal(self, u: Array) -> Array:
        """Log density at rows of u of independent split normals along the axes; it is continuous."""
        z = self.standard(u)
        # each axis has the constant of a normal with the mean of the two scales
        constant = -0.5 * len(self.centre) * LOG_2PI - float(np.log(self.even).sum()) - self.log_volume
        return constant - 0.5 * np.sum(z**2, axis=1)


def _tail_terms(z: Array) -> tuple[Array, Array]:
    """z√(z² + 1) − z and z²."""
    return z * (np.sqrt(z**2 + 1.0) - 1.0), z**2


def axes_at(objective: Objective, optimum: Optimum, *, sloped: bool = False) -> Axes:
    """Axes from the curvature at an optimum and the skewness along each of them, with gradients there if `sloped`.

    With gradients, what the search has found out about the curvature serves, where they go together with it; otherwise
    it is that of the Hessian.
    """
    if sloped and optimum.curvature is not None:
        axes = _axes(objective, optimum, optimum.curvature, sloped)
        if _confirmed(axes):
            return axes
    return _axes(objective, optimum, _curvature(objective, optimum), sloped)


def _axes(objective: Objective, optimum: Optimum, curvature: Array, sloped: bool) -> Axes:
    values, vectors = np.linalg.eigh(_apart(curvature, optimum))
    # a direction without curvature is as wide as a search may be
    spread = 1.0 / np.sqrt(np.clip(values, WIDEST**-2, NARROWEST**-2))
    basis = vectors * spread
    scales = np.ones((2, len(values)))
    tried = []
    for j in range(len(values)):
        for side, sign in enumerate((1.0, -1.0)):
            u, box = optimum.u + sign * REACH * basis[:, j], objective.space.box
            if np.any(u < box[:, 0]) or np.any(u > box[:, 1]):
                continue
            tried.append(objective.with_slope(u) if sloped else (objective.at(u), None))
            scales[side, j] = _scale(optimum.point.log_density - tried[-1][0].log_density)
    return Axes(optimum.u, basis, scales[0], scales[1], tuple(tried))


def _confirmed(axes: Axes) -> bool:
    """Whether gradients on either side of every axis fall as those of a standard normal in t, about."""
    m = len(axes.centre)
    slopes = [slope for point, slope in axes.tried if slope is not None and np.isfinite(point.log_density)]
    if len(slopes) < 2 * m:
        return False
    behind_less_ahead = (np.stack(slopes[1::2]) - np.stack(slopes[::2])) @ axes.basis
    fall = behind_less_ahead / (2.0 * REACH)
    values = np.linalg.eigvalsh(0.5 * (fall + fall.T))
    return bool(np.all(values > 1.0 / AGREED) and np.all(values < AGREED))


def _curvature(objective: Objective, optimum: Optimum) -> Array:
    """Minus the Hessian; of one coordinate, what the last short step of the search has told."""
    if len(optimum.u) == 1 and optimum.pairs and abs(optimum.pairs[-1][0][0]) <= RELIABLE:
        (move,), (fall,) = optimum.pairs[-1]
        return np.array([[fall / move]])
    return -hessian_at(objective, optimum.u)[0]


def _apart(curvature: Array, optimum: Optimum) -> Array:
    """The curvature with an axis of its own for each coordinate that stands at an end of its search.

    An axis that leans the least bit would leave the search on one side or the other by rounding alone. The density
    falls there like exp(−|slope|·distance), whose standard deviation is 1/|slope|.
    """
    inside = optimum.inside
    own = np.where(inside, 0.0, optimum.gradient**2)
    return np.asarray(curvature * np.outer(inside, inside) + np.diag(own))


def _scale(fall: float) -> float:
    # −½z²/s² = −fall at z = √2
    return float(np.clip(1.0 / np.sqrt(fall), *SCALES)) if fall > 0.0 else SCALES[1]


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


def marginals_of(space: Space, axes: Axes, u: Array, log_density: Array, share: Array) -> dict[str, Marginal]:
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
    """
    draws, weight = _weighted_draws(space, axes, u, log_density)
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


def _weighted_draws(space: Space, axes: Axes, u: Array, log_density: Array) -> tuple[Array, Array]:
    z = quasi_random_t(len(space), DRAWS, DF, seed=0)
    draws = axes.split(z)
    each = gammaln(0.5 * (DF + 1.0)) - gammaln(0.5 * DF) - 0.5 * (DF + 1.0) * np.log1p(z**2 / DF)
    proposal = (each - np.log(np.where(z >= 0.0, axes.up, axes.down))).sum(axis=1)
    known = log_density > log_density.max() - DEEP
    remainder = log_density[known] - axes.log_split_normal(u[known])
    surrogate = axes.log_split_normal(draws) + _interpolated(axes.standard(u[known]), remainder, z)
    low, high = space.box.T
    surrogate[np.any((draws < low) | (draws > high), axis=1)] = -np.inf
    logs = surrogate - proposal
    weight = np.exp(logs - logs.max())
    return draws, weight / weight.sum()


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

    def _cells(self) -> list[list[str]]:
        return [[_cell(row[column]) for column in COLUMNS] for row in self.rows]

    def __repr__(self) -> str:
        table = [list(COLUMNS), *self._cells()]
        widths = [max(len(line[i]) for line in table) for i in range(len(COLUMNS))]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in table]
        title = f"hyperparameters, {self.manner}" + (f": {self.note}" if self.note else "")
        return "\n".join([title, *lines])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in COLUMNS)
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
