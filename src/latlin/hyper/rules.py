"""Where to evaluate a density of hyperparameters, and the weights that make its integral a sum.

Up to three, a lattice: sums over the points of a grid have errors that fall like exp(−2π²/step²) for densities near a
normal (Poisson's summation), so that a step of one standard deviation is plenty; it is grown from the optimum until
the density has fallen by several nat in every direction, which follows skewed and banana-shaped ones, and has wider
steps where the density falls as that of a normal along every axis. Up to eight, the central composite design of Rue,
Martino and Chopin (2009, §6.5): the centre and points on a sphere that integrate the second moments of a normal.
Between them the log density is interpolated (`latlin.hyper.surrogate`), which gives the integral and the moments of
skewed densities; where it is unsure, points are added whose values tell most about the others, and the weights of the
points are changed until they have these moments. Beyond, importance sampling.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls
from scipy.special import gammaln, logsumexp, stdtrit
from scipy.stats import qmc

from latlin.diagnostics.weights import LARGEST_K, smooth_log_weights
from latlin.hyper.optimum import TOLD, Optimum, hessian_at
from latlin.hyper.space import Objective, Point
from latlin.hyper.surrogate import LogDensity, log_density_from
from latlin.numerics.arrays import LOG_2PI, Array

# --- Coordinates z in which the posterior of hyperparameters is about a standard normal.
#
#     u = centre + E (s ∘ z),   E = eigenvectors of minus the inverse Hessian, times the roots of its eigenvalues
#
# with one scale s per axis and direction, taken from how far the log density has fallen at ±√2 (Rue, Martino and
# Chopin, 2009, §6.5): a normal has fallen by one there.


#: largest and smallest sd of a coordinate that a Hessian may say
WIDEST, NARROWEST = 3.0, 1e-4
#: where skewness is measured, and ends of the scales that it may give
REACH = float(np.sqrt(2.0))
SCALES = (0.3, 3.0)
#: factor by which curvature over the reach of an axis may differ from the one that a search has found out
AGREED = 1.6


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
    """

    centre: Array
    basis: Array
    up: Array
    down: Array
    tried: tuple[tuple[Point, Array | None], ...] = ()

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

    def log_split_normal(self, u: Array) -> Array:
        """Log density at rows of u of independent split normals along the axes; it is continuous."""
        z = self.standard(u)
        # each axis has the constant of a normal with the mean of the two scales
        constant = -0.5 * len(self.centre) * LOG_2PI - float(np.log(self.even).sum()) - self.log_volume
        return constant - 0.5 * np.sum(z**2, axis=1)


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
    if len(optimum.u) == 1 and optimum.pairs and abs(optimum.pairs[-1][0][0]) <= TOLD:
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


#: per number of hyperparameters: step in standard deviations, fall in nat at which the lattice ends, most points
LATTICES = {1: (0.7, 10.0, 120), 2: (1.0, 8.0, 250), 3: (1.2, 7.5, 500)}
#: the same for densities whose scales along the axes differ from those of a normal by less than `NORMAL`
WIDE_LATTICES = {1: (0.9, 8.0, 120), 2: (1.2, 7.0, 250), 3: (1.35, 7.0, 500)}
NORMAL = 0.1
#: a neighbour whose density is foreseen to be lower than the end of the lattice by so many nat is not tried
HOPELESS = 1.0
#: radius of the sphere of the composite design, in units of √m
RADIUS = 1.15
#: draws under an interpolated density, and levels of those at which its uncertainty is looked at
DRAWS, LOOKS = 2**12, (np.arange(256) + 0.5) / 256
#: a point of the sphere that is nearer than this to another one, in sd, is that one
CLOSE = 0.4
#: sd of an interpolated log density, in nat, down to which points are added, so many per hyperparameter at most, and
#: from which on its means may be off by more than a few hundredths of an sd
UNSURE, MORE, DOUBTFUL = 0.3, 20, 0.5
#: an interpolated log density falls at least so fast as z², where a normal has a half
FALL = 0.15
#: of squared differences between moments beside those of weights, and the least weight to start from
PENALTY, LEAST = 1e3, 1e-6


#: a point, and the gradient of its log density in u where that is known
KnownPoint = tuple[Point, Array | None]


class Rule(NamedTuple):
    """Points and log weights: ∫ p(u) du ≈ Σ exp(log_weights + log_density); `error` is that of the logarithm.

    `draws` are many weighted points u, where the rule has such: (N, m) and (N,).
    """

    points: list[Point]
    log_weights: Array
    error: float
    message: str
    draws: tuple[Array, Array] | None = None


def _is_normal(axes: Axes) -> bool:
    """Whether the density falls as that of a normal along every axis."""
    return float(np.abs(np.log([axes.up, axes.down])).max()) < NORMAL


def lattice(objective: Objective, axes: Axes, centre: Point) -> Rule:
    """Evaluate on a lattice in the eigenbasis, the best neighbours first."""
    m = len(axes.centre)
    step, fall, most = WIDE_LATTICES[m] if _is_normal(axes) else LATTICES[m]
    box = objective.space.box
    origin = (0,) * m

    def foreseen(index: tuple[int, ...]) -> float:
        """The log density that a split normal would have at a point of the lattice, without its constant."""
        z = step * np.array(index) * axes.even
        return -0.5 * float(np.sum((z / np.where(z >= 0.0, axes.up, axes.down)) ** 2))

    known: dict[tuple[int, ...], Point] = {origin: centre}
    queue = [(-centre.log_density, origin)]
    top = centre.log_density
    while queue and len(known) < most:
        value, index = heapq.heappop(queue)
        if -value < top - fall:
            continue
        rest = known[index].log_density - foreseen(index)
        for neighbour in _neighbours(index):
            # what a split normal would lose on the way
            if neighbour in known or rest + foreseen(neighbour) < top - fall - HOPELESS:
                continue
            u = axes.plain(step * np.array(neighbour, float)[None])[0]
            if np.any(u < box[:, 0]) or np.any(u > box[:, 1]):
                continue
            known[neighbour] = point = objective.at(u)
            top = max(top, point.log_density)
            heapq.heappush(queue, (-point.log_density, neighbour))
    cell = m * np.log(step) + float(np.log(axes.even).sum()) + axes.log_volume
    points = list(known.values())
    error = _lattice_error(known, fall, top)
    message = f"a lattice of {len(points)} points"
    if len(known) >= most:
        message += f", which is all that is allowed although the density has not fallen by {fall:g} nat everywhere"
    return Rule(points, np.full(len(points), cell), error, message)


def _neighbours(index: tuple[int, ...]) -> list[tuple[int, ...]]:
    moves = [tuple(sign * int(i == j) for i in range(len(index))) for j in range(len(index)) for sign in (1, -1)]
    return [tuple(a + b for a, b in zip(index, move, strict=True)) for move in moves]


def _lattice_error(known: dict[tuple[int, ...], Point], fall: float, top: float) -> float:
    """How much the integral changes when every other point is left out, and what the edge may have cut off."""
    density = np.exp(np.array([point.log_density for point in known.values()]) - top)
    even = np.array([sum(index) % 2 == 0 for index in known])
    total = float(density.sum())
    halved = 2.0 * float(density[even].sum()) if len(known) > 1 else total
    edge = float(density[density < np.exp(-fall + 1.0)].sum()) / total
    return float(abs(np.log(halved / total)) + edge)


def composite(objective: Objective, axes: Axes, optimum: Optimum) -> Rule:
    """Evaluate on a central composite design, stretched by the scale of each direction, and interpolate.

    Where the interpolation is unsure, more points are added that tell most about the others.
    """
    centre = (optimum.point, optimum.gradient)
    sphere, others = _sphere(objective, axes)
    design = [centre, *sphere]
    limit, found = len(design) + len(others) + MORE * len(axes.centre), None
    while True:
        found = _interpolated(axes, [*design, *others], optimum.gradient, found)
        u, logs = _draws(objective, axes, found)
        total = float(logsumexp(logs))
        share = np.exp(logs - total)
        looks = u[np.searchsorted(np.cumsum(share), LOOKS * (1.0 - 1e-12))]
        unsure = found.covariance(axes.unscaled(looks))
        typical = float(np.sqrt(max(float(np.diagonal(unsure).mean()), 0.0)))
        if typical <= UNSURE or not found.sloped or len(design) + len(others) >= limit:
            break
        tried = [objective.with_slope(looks[k]) for k in _telling(unsure, len(axes.centre))]
        design += [(point, slope) for point, slope in tried if np.isfinite(point.log_density)]
    # where the interpolation is unsure, and what the draws leave open
    open_part = max(float(unsure.mean()), 0.0) + max(float(np.sum(share**2)) - 1.0 / DRAWS, 0.0)
    points = [point for point, _ in design]
    weights = _with_moments(axes.unscaled(np.stack([point.u for point in points])), axes.unscaled(u), share)
    with np.errstate(divide="ignore"):
        log_share = np.log(weights)
    density = np.array([point.log_density for point in points])
    log_weights = log_share + total - np.log(DRAWS) + optimum.point.log_density - density
    message = f"a design of {len(design) + len(others)} points"
    if typical > DOUBTFUL:
        message += f" (their log density is known between these points to {typical:.1g} nat: their means may be off)"
    return Rule(points, log_weights, 2.0 * float(np.sqrt(open_part)), message, (u, share))


def _sphere(objective: Objective, axes: Axes) -> tuple[list[KnownPoint], list[KnownPoint]]:
    """Points of the sphere of the design with their gradients, and those that were tried before and are not among them.

    A point of the sphere that is close to one tried before is that one.
    """
    m = len(axes.centre)
    z = np.concatenate([np.eye(m) * np.sqrt(m), -np.eye(m) * np.sqrt(m), _corners(m)]) * RADIUS
    low, high = objective.space.box.T
    places = axes.split(z)
    places = places[np.all((places >= low) & (places <= high), axis=1)]
    before = [pair for pair in axes.tried if np.isfinite(pair[0].log_density)]
    sphere: list[KnownPoint] = []
    for u in places:
        apart = [float(np.linalg.norm(axes.unscaled(u) - axes.unscaled(point.u))) for point, _ in before]
        close = bool(apart) and min(apart) < CLOSE
        sphere.append(before.pop(int(np.argmin(apart))) if close else objective.with_slope(u))
    return [pair for pair in sphere if np.isfinite(pair[0].log_density)], before


def _draws(objective: Objective, axes: Axes, found: LogDensity) -> tuple[Array, Array]:
    """Many points u, and log weights under which they are draws from the interpolated density."""
    low, high = objective.space.box.T
    proposal = SplitProposal(axes)
    u = proposal.draw(DRAWS, 0)
    logs = np.where(np.all((u >= low) & (u <= high), axis=1), _capped(found, axes, u), -np.inf)
    return u, logs - proposal.log_density(u)


def _telling(covariance: Array, count: int) -> list[int]:
    """Indices whose values, once known, leave the least variance to all: Σ_j cov_ij²/cov_ii is largest, one by one."""
    left, chosen = covariance.copy(), []
    for _ in range(count):
        own = np.maximum(np.diagonal(left), 1e-12)
        k = int(np.argmax(np.sum(left**2, axis=0) / own))
        chosen.append(k)
        left = left - np.outer(left[:, k], left[k]) / own[k]
    return chosen


def _interpolated(axes: Axes, known: list[KnownPoint], slope: Array, before: LogDensity | None) -> LogDensity:
    """The log density in t, less that of the first of the known points, which is the centre."""
    t = axes.unscaled(np.stack([point.u for point, _ in known]))
    density = np.array([point.log_density for point, _ in known])
    given = [gradient for _, gradient in known if gradient is not None]
    slopes = np.stack(given) @ axes.basis if len(given) == len(known) else None
    return log_density_from(t, density - density[0], slopes, slope @ axes.basis, before)


def _capped(found: LogDensity, axes: Axes, u: Array) -> Array:
    """The interpolated log density, held below one that falls more slowly than the split normal."""
    z = axes.standard(u)
    return np.minimum(found(axes.unscaled(u)), -FALL * np.sum(z**2, axis=1))


def _with_moments(t: Array, draws: Array, share: Array) -> Array:
    """Weights of points under which 1, t and ttᵀ have the means that they have over the draws.

    min Σ (w − w₀)²/w₀ subject to w ≥ 0, the moments by a large penalty; w₀ is the share of the draws that are nearest
    to a point.
    """
    nearest = np.argmin(np.sum(t**2, axis=1) - 2.0 * draws @ t.T, axis=1)
    start = np.maximum(np.bincount(nearest, share, len(t)), LEAST)

    def moments(x: Array) -> Array:
        i, j = np.triu_indices(x.shape[1])
        return np.concatenate([np.ones((len(x), 1)), x, x[:, i] * x[:, j]], axis=1)

    root = np.sqrt(start / start.sum())
    A = PENALTY * moments(t).T * root
    b = PENALTY * (share @ moments(draws))
    w = root * nnls(np.concatenate([A, np.eye(len(t))]), np.concatenate([b, root]))[0]
    return np.asarray(w / w.sum())


def _corners(m: int) -> Array:
    """±1 corners of a cube: a half, quarter, … of them in which second moments and their products do not mix."""
    # generators of two-level designs of resolution V (Box, Hunter and Hunter, 2005); m: (free factors, products)
    generators: dict[int, tuple[int, list[tuple[int, ...]]]] = {
        4: (4, []),
        5: (4, [(0, 1, 2, 3)]),
        6: (5, [(0, 1, 2, 3, 4)]),
        7: (6, [(0, 1, 2, 3, 4, 5)]),
        8: (6, [(0, 1, 2, 3), (0, 1, 4, 5)]),
    }
    free, rest = generators.get(m, (m, []))
    base = np.array(list(product((-1.0, 1.0), repeat=free)))
    return np.column_stack([base, *(base[:, list(columns)].prod(axis=1) for columns in rest)])


# --- Importance sampling of many hyperparameters, from a proposal that is adapted once to what it found.
#
# Points are quasi-random (Owen, 1998) under products of Student t along the axes of the optimum's curvature; after a
# first round the axes are those of the weighted points, and both rounds together are weighed against the mixture of
# their proposals (Veach and Guibas, 1995). k̂ and the effective number say what the weights are worth.


#: degrees of freedom of the proposals, and how much wider than the curvature says they are
DF, WIDER = 6.0, 1.15
#: points per round: at least, and per hyperparameter
FEWEST, EACH = 64, 12


@dataclass(frozen=True)
class SplitProposal:
    """A product of split Student t along axes."""

    axes: Axes

    def draw(self, count: int, seed: int) -> Array:
        uniform = qmc.Sobol(len(self.axes.centre), seed=seed).random(count)
        z = WIDER * stdtrit(DF, np.clip(uniform, 1e-9, 1.0 - 1e-9))
        return self.axes.split(z)

    def log_density(self, u: Array) -> Array:
        z = self.axes.standard(u) / WIDER
        constant = gammaln(0.5 * (DF + 1.0)) - gammaln(0.5 * DF) - 0.5 * np.log(DF * np.pi)
        scales = np.where(z >= 0.0, self.axes.up, self.axes.down) * WIDER
        each = constant - 0.5 * (DF + 1.0) * np.log1p(z**2 / DF) - np.log(scales)
        return np.asarray(each.sum(axis=1) - self.axes.log_volume)


def importance(objective: Objective, axes: Axes, seed: int = 0) -> Rule:
    """Two rounds of points with their weights."""
    m = len(axes.centre)
    count = 2 ** int(np.ceil(np.log2(max(FEWEST, EACH * m))))
    first = SplitProposal(axes)
    points = _evaluated(objective, first.draw(count, seed))
    proposals = [first, SplitProposal(_adapted(axes, first, points))]
    points += _evaluated(objective, proposals[1].draw(count, seed + 1))
    density, u = np.array([point.log_density for point in points]), np.stack([point.u for point in points])
    mixed = logsumexp([proposal.log_density(u) for proposal in proposals], axis=0) - np.log(2.0)
    smoothed, k_hat = smooth_log_weights(density - mixed)
    effective = float(1.0 / np.sum(np.exp(2.0 * smoothed)))
    # the smoothed weights add up to the integral that the raw ones give, points of no density counted
    total = logsumexp(density - mixed) - np.log(2.0 * count)
    log_weights = smoothed + total - density
    message = f"importance sampling with {len(points)} points, {effective:.0f} of them effective, k̂ = {k_hat:.2f}"
    if k_hat > LARGEST_K:
        message += f", which is above {LARGEST_K}: do not trust it; learn fewer hyperparameters or maximise"
    error = float(1.0 / np.sqrt(effective)) if k_hat <= LARGEST_K else np.inf
    return Rule(points, log_weights, error, message)


def _evaluated(objective: Objective, u: Array) -> list[Point]:
    """Those of the points that have any density."""
    low, high = objective.space.box.T
    points = [objective.at(row) for row in u if np.all((row >= low) & (row <= high))]
    return [point for point in points if np.isfinite(point.log_density)]


def _adapted(axes: Axes, proposal: SplitProposal, points: list[Point]) -> Axes:
    """Axes of the weighted points of a first round, drawn half-way towards those that it had."""
    u = np.stack([point.u for point in points])
    raw = np.array([point.log_density for point in points]) - proposal.log_density(u)
    weight = np.exp(smooth_log_weights(raw).log_weights)
    centre = weight @ u
    apart = (u - centre) * np.sqrt(weight)[:, None]
    before = (axes.basis * axes.even) @ (axes.basis * axes.even).T
    spread = 0.5 * (apart.T @ apart) + 0.5 * before
    values, vectors = np.linalg.eigh(spread)
    ones = np.ones(len(centre))
    return Axes(0.5 * (centre + axes.centre), vectors * np.sqrt(np.maximum(values, 1e-12)), ones, ones)
