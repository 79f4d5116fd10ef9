"""The optimum of log evidence + log prior, its curvature, and whether it stands at an end of the search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from latlin.hyper.space import Objective, Point, Space
from latlin.numerics.arrays import Array

#: evaluations of a search at most
MOST = 200
#: nearer to an end of the search than this, in coordinates, is at the end
TOUCHING = 1e-3
#: curvature, in nat, below which a log density is level
LEVEL = 1e-2
#: most steps of Newton's method after a search
NEWTON = 3
#: step of the differences of gradients, in coordinates
STEP = 0.02


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
    """

    point: Point
    gradient: Array
    at_bound: Array
    converged: bool
    n_fits: int

    @property
    def u(self) -> Array:
        return self.point.u

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Which coordinates are not at an end."""
        return np.asarray(self.at_bound == 0)


def find_optimum(
    objective: Objective, start: Array | None = None, *, gradient: float = 1e-3, gain: float = 1e-10
) -> Optimum:
    """Climb by L-BFGS within the box of the space.

    Parameters
    ----------
    objective : Objective
    start : ndarray of shape (m,), optional
    gradient : float
        Largest derivative at the end, in nat.
    gain : float
        Least relative gain that is worth another step.
    """
    first = objective.space.start if start is None else start
    box = objective.space.box
    first = np.clip(first, box[:, 0], box[:, 1])
    best: list[tuple[Point, Array]] = []

    def falling(u: Array) -> tuple[float, Array]:
        point, slope = objective.with_gradient(u)
        if not best or point.log_density > best[0][0].log_density:
            best[:] = [(point, slope)]
        if np.isfinite(point.log_density):
            return -point.log_density / unit, -slope / unit
        # a wall: higher than anything seen, so that a line search turns back
        top = best[0][0].log_density
        return (1e3 * (1.0 + abs(top)) - top) / unit, np.zeros(len(u))

    unit = 1.0
    # a first step of at most one in the coordinates
    unit = max(1.0, float(np.abs(falling(first)[1]).max()))
    options = {"maxfun": MOST, "gtol": gradient / unit, "ftol": gain}
    found = minimize(falling, first, jac=True, method="L-BFGS-B", bounds=box, options=options)
    point, slope = best[0]
    # a line search that finds nothing better within rounding has arrived too
    arrived = bool(found.success) or found.status == 2
    return Optimum(point, slope, touching(objective.space, point.u), arrived, objective.n_fits)


def touching(space: Space, u: Array) -> Array:
    """−1 or +1 where a coordinate stands at an end of the search."""
    low, high = space.box.T
    return np.where(u <= low + TOUCHING, -1, np.where(u >= high - TOUCHING, 1, 0))


def running_away(objective: Objective, optimum: Optimum, hessian: Array) -> Array:
    """`at_bound`, with coordinates whose density does not fall towards an end: a scale that runs to zero, for one.

    The density of such a coordinate has no curvature where the search gave up, and is as high at the end.
    """
    sides, box = optimum.at_bound.copy(), objective.space.box
    for j in np.flatnonzero(optimum.inside & (-np.diagonal(hessian) < LEVEL) & np.all(np.isfinite(box), axis=1)):
        for side, end in ((-1, box[j, 0]), (1, box[j, 1])):
            u = optimum.u.copy()
            u[j] = end
            if objective.at(u).log_density > optimum.point.log_density - LEVEL:
                sides[j] = side
    return sides


def polished(objective: Objective, optimum: Optimum, hessian: Array) -> Optimum:
    """The optimum after Newton's steps with the Hessian at hand, as long as they make the gradient smaller."""
    inside = np.flatnonzero(optimum.inside)
    curvature = -hessian[np.ix_(inside, inside)]
    if not len(inside) or np.linalg.eigvalsh(curvature)[0] < LEVEL:
        return optimum
    for _ in range(NEWTON):
        step = np.linalg.solve(curvature, optimum.gradient[inside])
        if np.abs(step).max() > STEP:
            break
        u = optimum.u.copy()
        u[inside] += step
        point, gradient = objective.with_gradient(u)
        if not np.abs(gradient[inside]).max() < 0.5 * np.abs(optimum.gradient[inside]).max():
            break
        optimum = replace(optimum, point=point, gradient=gradient)
    return optimum


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


def _moved(u: Array, j: int, step: float, box: Array) -> Array:
    moved = u.copy()
    moved[j] = np.clip(u[j] + step, *box[j])
    return moved


def bound_message(space: Space, at_bound: Array, values: dict[str, Any], instead: str) -> str:
    """What to say of an optimum at an end of its search; empty where it is inside."""
    said = []
    for member, side in zip(space.members, at_bound, strict=True):
        if side:
            end = "lower" if side < 0 else "upper"
            said.append(f"{member.name} runs to the {end} end of its search (it is {values[member.name]:.3g})")
    if not said:
        return ""
    return f"{'; '.join(said)}: the data and the prior have no optimum inside, so do not trust this fit; {instead}"
