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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

from latlin.diagnostics.weights import LARGEST_K, smooth_log_weights
from latlin.hyper.axes import Axes
from latlin.hyper.optimum import Optimum
from latlin.hyper.space import Objective, Point
from latlin.hyper.surrogate import LogDensity, corners, log_density_from, match_moments
from latlin.numerics.arrays import Array
from latlin.numerics.rng import quasi_random_t
from latlin.numerics.threads import one_blas_thread

#: per number of hyperparameters: step in standard deviations, fall in nat at which the lattice ends, most points
LATTICES = {1: (0.7, 10.0, 120), 2: (1.0, 8.0, 250), 3: (1.2, 7.5, 500)}
#: the same for densities whose scales along the axes differ from those of a normal by less than `NORMAL`
WIDE_LATTICES = {1: (0.9, 8.0, 120), 2: (1.2, 7.0, 250), 3: (1.35, 7.0, 500)}
NORMAL = 0.1
#: a neighbour whose density is foreseen to be lower than the end of the lattice by so many nat is not tried
HOPELESS = 1.0
#: long tails and arms that bend away from the axes, which a split normal does not foresee, are followed down to so many
#: nat
FOLLOWED = 5.0
#: radius of the sphere of the composite design, in units of √m
RADIUS = 1.15
#: draws under an interpolated density, and levels of those at which its uncertainty is looked at
DRAWS, LOOKS = 2**12, (np.arange(256) + 0.5) / 256
#: a point of the sphere that is nearer than this to another one, in sd, is that one
CLOSE = 0.4
#: sd of an interpolated log density, in nat, down to which points along the axes are enough, down to which others are
#: added, so many per hyperparameter at most, and from which on means may be off by more than a few hundredths of an sd
SURE, UNSURE, MORE, DOUBTFUL = 0.05, 0.3, 20, 0.5
#: share of a number's variance beyond all points and so many sd for which there is one more point, and rounds of such
#: points at most; a normal has a thousandth of its variance there
OUTSIDE, FAR_OUT, ROUNDS = 0.05, 4.0, 2
#: nat below the optimum from which on a point is left out of an interpolation: it has no weight, and the rest is lost
#: in the rounding of its density (all times censored: −5e198 where the shape is large)
LOST = 1e4
#: an interpolated log density falls at least so fast as z², where a normal has a half
FALL = 0.15


#: a point, and the gradient of its log density in u where that is known
KnownPoint = tuple[Point, Array | None]


class Rule(NamedTuple):
    """Points and log weights: ∫ p(u) du ≈ Σ exp(log_weights + log_density); `error` is that of the logarithm.

    `draws` are many weighted points u, where the rule has such: (N, m) and (N,). `step` is that of a lattice. `stopped`
    is where it had to end before the density had fallen, in words.
    """

    points: list[Point]
    log_weights: Array
    error: float
    message: str
    draws: tuple[Array, Array] | None = None
    step: float = 0.0
    stopped: str = ""


def _is_normal(axes: Axes) -> bool:
    """Whether the density falls as that of a normal along every axis."""
    return float(np.abs(np.log([axes.up, axes.down])).max()) < NORMAL


def lattice_rule(objective: Objective, axes: Axes, centre: Point) -> Rule:
    """Evaluate on a lattice in the eigenbasis, the best neighbours first."""
    m = len(axes.centre)
    step, fall, most = WIDE_LATTICES[m] if _is_normal(axes) else LATTICES[m]
    box = objective.space.box
    origin = (0,) * m

    def foreseen(index: tuple[int, ...]) -> float:
        """The log density that a split normal would have at a point of the lattice, without its constant."""
        z = step * np.array(index) * axes.even
        return -0.5 * float(np.sum((z / np.where(z >= 0.0, axes.up, axes.down)) ** 2))

    def ahead(here: tuple[int, ...], then: tuple[int, ...]) -> float:
        """The log density at a point by those of the two before it in line, bent as a split normal is."""
        before = tuple(2 * a - b for a, b in zip(here, then, strict=True))
        if before not in known:
            return known[here].log_density
        bend = foreseen(then) - 2.0 * foreseen(here) + foreseen(before)
        return 2.0 * known[here].log_density - known[before].log_density + bend

    known: dict[tuple[int, ...], Point] = {origin: centre}
    queue = [(-centre.log_density, origin)]
    top = centre.log_density
    while queue and len(known) < most:
        value, index = heapq.heappop(queue)
        if -value < top - fall:
            continue
        rest = known[index].log_density - foreseen(index)
        for neighbour in _neighbours(index):
            # what a split normal would lose on the way, and what is in line with the last two points
            low = rest + foreseen(neighbour) < top - fall - HOPELESS
            if neighbour in known or (low and ahead(index, neighbour) < top - FOLLOWED):
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
    message, stopped = f"a lattice of {len(points)} points", ""
    if len(known) >= most:
        stopped = f"which is all that is allowed although the density has not fallen by {fall:g} nat everywhere"
        message = f"{message}, {stopped}"
    return Rule(points, np.full(len(points), cell), error, message, step=step, stopped=stopped)


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


class DesignState(NamedTuple):
    """What some points of a design tell.

    Attributes
    ----------
    axes : Axes
    found : LogDensity
    u, share : ndarray of shape (N, m) and (N,)
        Draws from the interpolated density.
    total : float
        Logarithm of the sum of their weights.
    numbers : ndarray of shape (N, m)
        The hyperparameters at u.
    other : ndarray of bool of shape (m,)
        Which of them are not their own coordinates; the others have no longer tails than these.
    looks : ndarray of shape (L, m)
        Some u at which the uncertainty is looked at, more of them far out than draws are.
    ratio : ndarray of shape (L,)
        Weights under which they are draws.
    unsure : ndarray of shape (L, L)
        Covariance of the log density there.
    """

    axes: Axes
    found: LogDensity
    u: Array
    share: Array
    total: float
    numbers: Array
    other: Array
    looks: Array
    ratio: Array
    unsure: Array

    @property
    def typical(self) -> float:
        """Typical sd of the interpolated log density."""
        return float(np.sqrt(max(float(np.diagonal(self.unsure).mean()), 0.0)))


def composite_rule(objective: Objective, axes: Axes, optimum: Optimum) -> Rule:
    """Evaluate on a central composite design, stretched by the scale of each direction, and interpolate.

    Points along the axes are enough where their gradients leave nothing open. Where the interpolation is unsure, more
    points are added that tell most about the others.
    """
    design = [(optimum.point, optimum.gradient), *_within_reach(optimum, axes.tried)]
    others: list[KnownPoint] = []
    state = _summarise_design(objective, _following_tails(axes, design), design, None)
    if not (state.found.sloped and state.typical <= SURE):
        sphere, others = (_within_reach(optimum, pairs) for pairs in _sphere(objective, axes))
        design = [design[0], *sphere]
        axes = _following_tails(axes, [*design, *others])
        state = _summarise_design(objective, axes, [*design, *others], None)
    left, rounds = MORE * len(axes.centre), 0
    while state.found.sloped and left > 0:
        more = _beyond(objective, [point for point, _ in design], state) if rounds < ROUNDS else []
        rounds += 1
        if not more and state.typical > UNSURE:
            more = [state.looks[k] for k in _choose_informative(state.unsure, len(axes.centre))]
        if not more:
            break
        left -= len(more)
        known = _within_reach(optimum, [objective.with_slope(one) for one in more])
        if not known:
            break
        design += known
        state = _summarise_design(objective, state.axes, [*design, *others], state.found)
    message = f"a design of {len(design) + len(others)} points"
    if state.typical > DOUBTFUL:
        message += (
            f" (their log density is known between these points to {state.typical:.1g} nat: their means may be off)"
        )
    return _weighed(objective, [point for point, _ in design], state, message)


def _within_reach(optimum: Optimum, pairs: Sequence[KnownPoint]) -> list[KnownPoint]:
    """Those that are numbers and not so far below the optimum that they hide what the others say."""
    return [pair for pair in pairs if pair[0].log_density > optimum.point.log_density - LOST]


@one_blas_thread()
def _summarise_design(
    objective: Objective, axes: Axes, known: list[KnownPoint], before: LogDensity | None
) -> DesignState:
    found = _interpolated(axes, known, before)
    u, logs = _draws(objective, axes, found)
    total = float(logsumexp(logs))
    share = np.exp(logs - total)
    numbers = objective.space.natural(u)
    other = ~np.all(numbers == u, axis=0)
    tilted = _with_tails(numbers[:, other], share)
    chosen = np.searchsorted(np.cumsum(tilted), LOOKS * (1.0 - 1e-12))
    ratio = share[chosen] / tilted[chosen] / len(LOOKS)
    unsure = found.covariance(axes.drawn_in(u[chosen]))
    return DesignState(axes, found, u, share, total, numbers, other, u[chosen], ratio, unsure)


def _weighed(objective: Objective, points: list[Point], state: DesignState, message: str) -> Rule:
    """The points with the weights that give them the moments of the interpolated density; the first is the centre."""
    axes, share, other = state.axes, state.share, state.other
    # where the interpolation is unsure, and what the draws leave open
    open_part = max(float(state.ratio @ state.unsure @ state.ratio), 0.0)
    open_part += max(float(np.sum(share**2)) - 1.0 / DRAWS, 0.0)
    at = np.stack([point.u for point in points])
    x = objective.space.natural(at)[:, other]
    weights = match_moments(axes.unscaled(at), x, (axes.unscaled(state.u), state.numbers[:, other]), share)
    with np.errstate(divide="ignore"):
        log_share = np.log(weights)
    density = np.array([point.log_density for point in points])
    log_weights = log_share + state.total - np.log(DRAWS) + density[0] - density
    return Rule(points, log_weights, 2.0 * float(np.sqrt(open_part)), message, (state.u, share))


def _sphere(objective: Objective, axes: Axes) -> tuple[list[KnownPoint], list[KnownPoint]]:
    """Points of the sphere of the design with their gradients, and those that were tried before and are not among them.

    A point of the sphere that is close to one tried before is that one.
    """
    m = len(axes.centre)
    z = np.concatenate([np.eye(m) * np.sqrt(m), -np.eye(m) * np.sqrt(m), corners(m)]) * RADIUS
    low, high = objective.space.box.T
    places = axes.split(z)
    places = places[np.all((places >= low) & (places <= high), axis=1)]
    before = [pair for pair in axes.tried if np.isfinite(pair[0].log_density)]
    sphere: list[KnownPoint] = []
    for u in places:
        apart = [float(np.linalg.norm(axes.unscaled(u) - axes.unscaled(point.u))) for point, _ in before]
        close = bool(apart) and min(apart) < CLOSE
        sphere.append(before.pop(int(np.argmin(apart))) if close else objective.with_slope(u))
    return sphere, before


def _draws(objective: Objective, axes: Axes, found: LogDensity) -> tuple[Array, Array]:
    """Many points u, and log weights under which they are draws from the interpolated density.

    The interpolated density is held below one that falls more slowly than that of a normal in z.
    """
    low, high = objective.space.box.T
    proposal = SplitProposal(axes)
    u = proposal.draw(DRAWS, 0)
    z = axes.drawn_in(u)
    capped = np.minimum(found(z), -FALL * np.sum(z**2, axis=1))
    logs = np.where(np.all((u >= low) & (u <= high), axis=1), capped, -np.inf)
    return u, logs - proposal.log_density(u)


def _beyond(objective: Objective, points: list[Point], state: DesignState) -> list[Array]:
    """Means of u where much of a number's variance lies, if that is far out and beyond all points."""
    x, share, reached = state.numbers, state.share, objective.space.natural(np.stack([point.u for point in points]))
    mean = share @ x
    parts = np.where(state.other, share[:, None] * (x - mean) ** 2, 0.0)
    far = FAR_OUT * np.sqrt(parts.sum(axis=0))
    high, low = np.maximum(reached.max(axis=0), mean + far), np.minimum(reached.min(axis=0), mean - far)
    outside = parts * ((x > high) | (x < low))
    total = outside.sum(axis=0)
    return [outside[:, j] @ state.u / total[j] for j in np.flatnonzero(total > OUTSIDE * parts.sum(axis=0))]


def _with_tails(x: Array, share: Array) -> Array:
    """Shares of draws of numbers x, half of them as they are, half as the numbers' variances are made of them."""
    if not x.shape[1]:
        return share
    away = (x - share @ x) ** 2
    relative = away / np.maximum(share @ away, 1e-300)
    return np.asarray(share * 0.5 * (1.0 + relative.mean(axis=1)))


def _choose_informative(covariance: Array, count: int) -> list[int]:
    """Indices whose values, once known, leave the least variance to all: Σ_j cov_ij²/cov_ii is largest, one by one."""
    left, chosen = covariance.copy(), []
    for _ in range(count):
        own = np.maximum(np.diagonal(left), 1e-12)
        k = int(np.argmax(np.sum(left**2, axis=0) / own))
        chosen.append(k)
        left = left - np.outer(left[:, k], left[k]) / own[k]
    return chosen


def _following_tails(axes: Axes, known: list[KnownPoint]) -> Axes:
    """Axes with long tails drawn in, where there are gradients to follow them by."""
    return replace(axes, long_tails=all(gradient is not None for _, gradient in known))


def _interpolated(axes: Axes, known: list[KnownPoint], before: LogDensity | None) -> LogDensity:
    """The log density in z, less that of the first of the known points, which is the centre."""
    u = np.stack([point.u for point, _ in known])
    density = np.array([point.log_density for point, _ in known])
    given = [gradient for _, gradient in known if gradient is not None]
    z = axes.drawn_in(u)
    slopes = (np.stack(given) @ axes.basis) * axes.stretch(z) if len(given) == len(known) else None
    return log_density_from(z, density - density[0], slopes, given[0] @ axes.basis, before)


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
        return self.axes.split(WIDER * quasi_random_t(len(self.axes.centre), count, DF, seed))

    def log_density(self, u: Array) -> Array:
        z = self.axes.standard(u) / WIDER
        constant = gammaln(0.5 * (DF + 1.0)) - gammaln(0.5 * DF) - 0.5 * np.log(DF * np.pi)
        scales = np.where(z >= 0.0, self.axes.up, self.axes.down) * WIDER
        each = constant - 0.5 * (DF + 1.0) * np.log1p(z**2 / DF) - np.log(scales)
        return np.asarray(each.sum(axis=1) - self.axes.log_volume)


def importance_rule(objective: Objective, axes: Axes, seed: int = 0) -> Rule:
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
