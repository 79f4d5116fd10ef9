"""The optimum of log evidence + log prior, its curvature, and whether it stands at an end of the search."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from latlin.hyper.space import NEAR, Objective, Point, Space
from latlin.numerics.arrays import Array

#: evaluations of a search at most
MOST = 200
#: most hyperparameters whose curvature is looked for
CURVED = 8
#: longest step in a coordinate, and the longest one from which curvature is learnt
LONGEST, LOCAL = 1.0, 0.5
#: most steps to the optimum of a held fit, and the step after which it is near enough where some nat more are not worth
#: a fit: in coordinates, or as a share of the way
INNER, HELD, NEAR_SHARE = 8, 0.02, 0.2
#: least share that a step by three slopes has of one by two
NEARBY = 0.5
#: least share of the rise that the slope promises, and most shorter trials of a step
RISE, HALVINGS = 1e-4, 20
#: nearer to an end of the search than this, in coordinates, is at the end
TOUCHING = 1e-3
#: curvature, in nat, below which a log density is level
LEVEL = 1e-2
#: most steps of Newton's method after a search, and the longest one
NEWTON, WITHIN = 3, 0.1
#: what Newton's step would gain, in nat, at an optimum
REACHED = 1e-8
#: steps of the differences of gradients, in coordinates, on both sides and on one
STEP, ONE_SIDED = 0.02, 0.01
#: error of an evidence, in nat, from which on differences on one side are as good as on both
NOISY = 1e-2
#: longest and shortest last step of a search along one coordinate that tells the curvature there
RELIABLE, SHORT = 0.06, 2e-3


@dataclass(frozen=True)
class Optimum:
    """Where a search ended.

    Attributes
    ----------
    point : Point
        The coordinates with what was fitted there.
    gradient : ndarray of shape (m,)
        Of the log density in the coordinates.
    at_bound : ndarray of shape (m,)
        −1 or +1 where a coordinate stands at its lower or upper end, else 0.
    converged : bool
    n_fits : int
    pairs : tuple of pairs of ndarray
        Steps near the end, and by how much the gradient fell along each.
    curvature : ndarray of shape (m, m) or None
        About minus the Hessian there, as far as the search has found out.
    """

    point: Point
    gradient: Array
    at_bound: Array
    converged: bool
    n_fits: int
    pairs: tuple[tuple[Array, Array], ...] = ()
    curvature: Array | None = None

    @property
    def u(self) -> Array:
        return self.point.u

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Which coordinates are not at an end."""
        return np.asarray(self.at_bound == 0)


def find_optimum(
    objective: Objective,
    start: Array | None = None,
    *,
    gradient: float = 1e-3,
    gain: float = 1e-10,
    worth: float = 0.0,
    pairs: Iterable[tuple[Array, Array]] = (),
) -> Optimum:
    """Climb within the box of the space: by steps with the curvature of held fits where there is one, else by L-BFGS.

    Parameters
    ----------
    objective : Objective
    start : ndarray of shape (m,), optional
    gradient : float
        Largest derivative at the end, in nat.
    gain : float
        Least relative gain that is worth another step.
    worth : float
        Least gain in nat that is worth another step, where Newton's steps follow or a centre is enough.
    pairs : iterable of pairs of ndarray
        Steps and falls of the gradient from an earlier search near by.
    """
    box = objective.space.box
    u = np.clip(objective.space.start if start is None else start, box[:, 0], box[:, 1])
    first = objective.with_gradient(u)
    _refuse_coarse(first[0].log_evidence)
    known, curvature = deque(pairs, maxlen=len(u) + 2), None
    if len(u) <= CURVED and first[0].held is not None:
        point, slope, arrived, held = _climb_curved(objective, first, known, gradient, gain, worth)
        curvature = None if held is None else _corrected(held, known)
    else:
        point, slope, arrived = _climb_flat(objective, first, gradient, gain, worth)
    sides = find_ends(objective.space, point.u)
    return Optimum(point, slope, sides, arrived, objective.n_fits, tuple(known), curvature)


def _refuse_coarse(log_evidence: float) -> None:
    """Refuse an evidence so large that rounding alone is more than a nat."""
    if abs(log_evidence) * np.finfo(float).eps > 1.0:
        raise ValueError(
            f"hyperparameters cannot be learnt where the log evidence is {log_evidence:.3g}, as rounding hides what "
            "they change: look for responses, offsets, weights, a prior_mean or a prior_scale far too large or small, "
            "or fix the hyperparameters"
        )


def _climb_curved(
    objective: Objective,
    first: tuple[Point, Array],
    pairs: deque[tuple[Array, Array]],
    gradient: float,
    gain: float,
    worth: float,
) -> tuple[Point, Array, bool, Array | None]:
    """Quasi-Newton steps: the curvature of the held fit, corrected by the changes of the gradient near by.

    The first step, of a search without such pairs, goes to where the held fit has its optimum; `pairs` is filled. The
    last of what is returned is the curvature of a held fit, without corrections.
    """
    point, slope = first
    held: Array | None = None
    ahead: Array | None = None
    while objective.n_fits < MOST:
        if np.abs(slope[_inside(objective.space, point.u, slope)]).max(initial=0.0) <= gradient:
            return point, slope, True, held
        if pairs and len(slope) == 1:
            # in one dimension a pair says all
            held = np.eye(1)
        elif held is None or not pairs:
            held = objective.held_curvature(point, point.u, slope)
        step = _step(objective.space, _corrected(held, pairs), point.u, slope)
        if len(slope) == 1:
            step = _interpolated(pairs, slope, step) if ahead is None else _step(objective.space, ahead, point.u, slope)
        if pairs and 0.5 * (slope @ step) <= worth + gain * (1.0 + abs(point.log_density)):
            return point, slope, True, held
        bent: Array | None = None
        if not pairs:
            top, bent = _held_optimum(objective, point, held, slope, step, gradient, HELD * (worth > 0.0))
            step = top - point.u
        moved = _risen(objective, point, slope, step)
        if moved is None:
            # nothing better within rounding: arrived
            return point, slope, True, held
        move, fall = moved[0].u - point.u, slope - moved[1]
        if np.abs(move).max() <= LOCAL and move @ fall > 1e-8 * np.linalg.norm(move) * np.linalg.norm(fall):
            pairs.append((move, fall))
        ahead = _foreseen(bent, slope, fall) if pairs and np.array_equal(move, step) else None
        gained = moved[0].log_density - point.log_density
        point, slope = moved
        if gained <= max(worth, gain * (1.0 + abs(point.log_density))):
            return point, slope, True, held
    return point, slope, False, held


def _inside(space: Space, u: Array, slope: Array) -> NDArray[np.intp]:
    """Coordinates that may move along a slope without leaving the box."""
    low, high = space.box.T
    return np.flatnonzero(~((u <= low) & (slope < 0.0)) & ~((u >= high) & (slope > 0.0)))


def _step(space: Space, curvature: Array, u: Array, slope: Array) -> Array:
    """B⁻¹ slope within the coordinates that may move, of limited length."""
    step, free = np.zeros(len(u)), _inside(space, u, slope)
    if len(free):
        step[free] = np.linalg.solve(curvature[np.ix_(free, free)], slope[free])
        step /= max(1.0, np.abs(step).max() / LONGEST)
    return step


def _interpolated(pairs: Sequence[tuple[Array, Array]], slope: Array, step: Array) -> Array:
    """In one dimension, the step by the last three slopes: inverse quadratic interpolation, which is near Newton's.

    `step` is that by the last two; it stays where the slopes do not fall in order or the other is far from it.
    """
    if len(pairs) < 2 or not step[0]:
        return step
    (before, fell), (last, fall) = ((float(move[0]), float(fall[0])) for move, fall in list(pairs)[-2:])
    # the two points before, seen from here, and the slopes there
    g, u1, u2 = float(slope[0]), -last, -last - before
    g1, g2 = g + fall, g + fall + fell
    if max((g1 - g) * u1, (g2 - g) * u2, (g2 - g1) * (u2 - u1)) >= 0.0:
        return step
    found = g * (u1 * g2 / (g1 - g) - u2 * g1 / (g2 - g)) / (g1 - g2)
    return np.array([found]) if NEARBY <= found / float(step[0]) <= 1.0 / NEARBY else step


def _held_optimum(
    objective: Objective, point: Point, curvature: Array, slope: Array, step: Array, gradient: float, near: float
) -> tuple[Array, Array]:
    """Where the fit of a point, held, has its optimum, or near it, and the curvature there.

    Some quasi-Newton steps that need no fits.
    """
    low, high = objective.space.box.T
    low, high = np.maximum(low, point.u - NEAR), np.minimum(high, point.u + NEAR)
    u, pairs = point.u, deque[tuple[Array, Array]](maxlen=2)
    for _ in range(INNER):
        ahead = np.clip(u + step, low, high)
        found = objective.held_gradient(point, ahead)
        move, fall = ahead - u, slope - found
        u = ahead
        enough = max(near, NEAR_SHARE * float(np.abs(u - point.u).max())) if near else 0.0
        if not np.all(np.isfinite(found)):
            break
        if move @ fall > 1e-8 * np.linalg.norm(move) * np.linalg.norm(fall):
            curvature = _corrected(curvature, [(move, fall)])
            pairs.append((move, fall))
        if np.abs(found).max() <= gradient or np.abs(move).max() <= enough:
            break
        slope = found
        step = _step(objective.space, curvature, u, slope)
        if len(u) == 1:
            step = _interpolated(pairs, slope, step)
    return u, curvature


def _foreseen(held: Array | None, slope: Array, fall: Array) -> Array | None:
    """In one dimension, the curvature at the optimum of a held fit: the held one, less what holding leaves out.

    The slope was to fall to nothing there; the share by which it did fall is about that of the curvatures.
    """
    share = float(fall[0] / slope[0]) if held is not None and len(slope) == 1 else 0.0
    return held * share if held is not None and NEARBY <= share <= 1.0 / NEARBY else None


def _corrected(curvature: Array, pairs: Iterable[tuple[Array, Array]]) -> Array:
    """B after the updates of Broyden, Fletcher, Goldfarb and Shanno with pairs of steps and falls of the gradient."""
    for move, fall in pairs:
        ahead = curvature @ move
        curvature = curvature - np.outer(ahead, ahead) / (move @ ahead) + np.outer(fall, fall) / (move @ fall)
    return curvature


def _risen(objective: Objective, point: Point, slope: Array, step: Array) -> tuple[Point, Array] | None:
    """The step within the box, shortened until the density rises; None where it does not."""
    low, high = objective.space.box.T
    for _ in range(HALVINGS):
        u = np.clip(point.u + step, low, high)
        found = objective.with_gradient(u)
        expected = slope @ (u - point.u)
        gained = found[0].log_density - point.log_density
        if gained >= RISE * expected:
            return found
        if expected <= 1e-10 * (1.0 + abs(point.log_density)):
            return None
        # the top of the parabola through both densities with the slope at the first
        share = 0.5 * expected / (expected - gained) if np.isfinite(gained) else 0.25
        step = step * float(np.clip(share, 0.1, 0.5))
    return None


def _climb_flat(
    objective: Objective, first: tuple[Point, Array], gradient: float, gain: float, worth: float
) -> tuple[Point, Array, bool]:
    """L-BFGS, which finds out about the curvature as it goes."""
    best = [first]
    # a first step of at most one in the coordinates
    unit = max(1.0, float(np.abs(first[1]).max()))

    def falling(u: Array) -> tuple[float, Array]:
        point, slope = first if np.array_equal(u, first[0].u) else objective.with_gradient(u)
        if point.log_density > best[0][0].log_density:
            best[:] = [(point, slope)]
        if np.isfinite(point.log_density):
            return -point.log_density / unit, -slope / unit
        # a wall: higher than anything seen, so that a line search turns back
        top = best[0][0].log_density
        return (1e3 * (1.0 + abs(top)) - top) / unit, np.zeros(len(u))

    least = max(gain, worth / max(abs(first[0].log_density), unit))
    options = {"maxfun": MOST, "gtol": gradient / unit, "ftol": least}
    found = minimize(falling, first[0].u, jac=True, method="L-BFGS-B", bounds=objective.space.box, options=options)
    # a line search that finds nothing better within rounding has arrived too
    return *best[0], bool(found.success) or found.status == 2


def find_ends(space: Space, u: Array) -> Array:
    """−1 or +1 where a coordinate stands at an end of the search."""
    low, high = space.box.T
    return np.where(u <= low + TOUCHING, -1, np.where(u >= high - TOUCHING, 1, 0))


def find_unbounded(objective: Objective, optimum: Optimum, hessian: Array) -> Optimum:
    """The optimum with those coordinates at an end whose density does not fall towards it: a scale that runs to zero.

    The density of such a coordinate has no curvature where the search gave up and is as high at the end, or Newton's
    step is still a long one and it is higher there. A scale that runs to zero is taken there.
    """
    sides, box = optimum.at_bound.copy(), objective.space.box
    level = -np.diagonal(hessian) < LEVEL
    on_the_way = np.abs(optimum.gradient) > WITHIN * np.abs(np.diagonal(hessian))
    for j in np.flatnonzero(optimum.inside & (level | on_the_way) & np.all(np.isfinite(box), axis=1)):
        for side, end in ((-1, box[j, 0]), (1, box[j, 1])):
            u = optimum.u.copy()
            u[j] = end
            there = objective.at(u).log_density
            if there > optimum.point.log_density - (LEVEL if level[j] else 0.0):
                sides[j] = side
            if side < 0 and there > optimum.point.log_density:
                point, gradient = objective.with_gradient(u)
                optimum = replace(optimum, point=point, gradient=gradient)
    return replace(optimum, at_bound=sides)


def polish(objective: Objective, optimum: Optimum, hessian: Array) -> Optimum:
    """The optimum after Newton's steps with the Hessian at hand, as long as they make the gradient smaller."""
    inside = np.flatnonzero(optimum.inside)
    curvature = -hessian[np.ix_(inside, inside)]
    if not len(inside) or np.linalg.eigvalsh(curvature)[0] < LEVEL:
        return optimum
    for _ in range(NEWTON):
        step = np.linalg.solve(curvature, optimum.gradient[inside])
        if np.abs(step).max() > WITHIN or step @ optimum.gradient[inside] < REACHED:
            break
        u = optimum.u.copy()
        u[inside] += step
        point, gradient = objective.with_gradient(u)
        if not np.abs(gradient[inside]).max() < 0.5 * np.abs(optimum.gradient[inside]).max():
            break
        optimum = replace(optimum, point=point, gradient=gradient)
    return optimum


def find_hessian(objective: Objective, optimum: Optimum) -> tuple[Array, list[tuple[Point, Point]]]:
    """The Hessian at an optimum: from the search, else by differences, on one side if evidences have errors.

    Also two points near the optimum along every axis, where there were differences.
    """
    found = hessian_from_search(optimum)
    if found is not None:
        return found, []
    if getattr(optimum.point.fit, "bound_error", 0.0) > NOISY:
        return one_sided_hessian(objective, optimum)
    return hessian_at(objective, optimum.u)


def hessian_at(objective: Objective, u: Array) -> tuple[Array, list[tuple[Point, Point]]]:
    """The Hessian of the log density by differences of gradients, and the points on either side of every axis."""
    box = objective.space.box
    rows, sides = [], []
    for j in range(len(u)):
        ends = [_moved(u, j, step, box) for step in (STEP, -STEP)]
        (ahead, slope_ahead), (behind, slope_behind) = (objective.with_gradient(end) for end in ends)
        rows.append((slope_ahead - slope_behind) / (ends[0][j] - ends[1][j]))
        sides.append((ahead, behind))
    matrix = np.array(rows)
    return 0.5 * (matrix + matrix.T), sides


def one_sided_hessian(objective: Objective, optimum: Optimum) -> tuple[Array, list[tuple[Point, Point]]]:
    """As `hessian_at`, by one point per axis beside the optimum: good to some per cent, for evidences with errors."""
    rows, sides = [], []
    for j, (slope, side) in enumerate(zip(optimum.gradient, optimum.at_bound, strict=True)):
        # towards where the gradient vanishes, or into the box
        step = -ONE_SIDED * side if side else np.copysign(ONE_SIDED, slope)
        point, ahead = objective.with_gradient(_moved(optimum.u, j, step, objective.space.box))
        rows.append((ahead - optimum.gradient) / (point.u[j] - optimum.u[j]))
        sides.append((point, optimum.point))
    matrix = np.array(rows)
    return 0.5 * (matrix + matrix.T), sides


def hessian_from_search(optimum: Optimum) -> Array | None:
    """The Hessian of one coordinate by the last three slopes of a search; None where they do not tell it.

    It is the slope, at the newest point, of the parabola through them.
    """
    if len(optimum.u) > 1 or len(optimum.pairs) < 2 or not optimum.inside.all():
        return None
    (before, fell), (last, fall) = ((float(move[0]), float(fall[0])) for move, fall in optimum.pairs[-2:])
    if not SHORT <= abs(last) <= RELIABLE or abs(last + before) < SHORT:
        return None
    near, far = -fall / last, -fell / before
    found = near + last * (near - far) / (last + before)
    # a parabola that bends much between the points is not to be trusted
    return np.array([[found]]) if near < 0.0 and 0.5 < found / near < 2.0 else None


def nearest_point(objective: Objective, optimum: Optimum) -> list[tuple[Point, Point]]:
    """The optimum of one coordinate and the point of its search next to it; empty where there is none."""
    others = [point for point in objective.points if point.fit is not None and not np.array_equal(point.u, optimum.u)]
    nearest = min(others, key=lambda point: abs(float(point.u[0] - optimum.u[0])), default=None)
    return [] if nearest is None else [(optimum.point, nearest)]


def _moved(u: Array, j: int, step: float, box: Array) -> Array:
    moved = u.copy()
    moved[j] = np.clip(u[j] + step, *box[j])
    return moved


#: hyperparameters that are named at most
NAMED = 3


def bound_message(space: Space, at_bound: Array, values: dict[str, Any], instead: str) -> str:
    """What to say of an optimum at an end of its search; empty where it is inside."""
    said = []
    for member, side in zip(space.members, at_bound, strict=True):
        if side:
            end = "lower" if side < 0 else "upper"
            said.append(f"{member.name} runs to the {end} end of its search (it is {values[member.name]:.3g})")
    if not said:
        return ""
    more = f"; and so do {len(said) - NAMED} more" if len(said) > NAMED else ""
    few = "; ".join(said[:NAMED])
    return f"{few}{more}: the data and the prior have no optimum inside, so do not trust this fit; {instead}"
