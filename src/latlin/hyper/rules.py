"""Where to evaluate a density of hyperparameters, and the weights that make its integral a sum.

Up to three, a lattice: sums over the points of a grid have errors that fall like exp(−2π²/step²) for densities near a
normal (Poisson's summation), so that a step of one standard deviation is plenty; it is grown from the optimum until
the density has fallen by several nat in every direction, which follows skewed and banana-shaped ones. Up to eight, the
central composite design of Rue, Martino and Chopin (2009, §6.5): the centre and points on a sphere that integrate the
second moments of a normal. Beyond, importance sampling (`latlin.hyper.importance`).
"""

from __future__ import annotations

import heapq
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from latlin.hyper.axes import Axes
from latlin.hyper.objective import Objective, Point
from latlin.numerics.arrays import LOG_2PI, Array

#: per number of hyperparameters: step in standard deviations, fall in nat at which the lattice ends, most points
LATTICES = {1: (0.7, 10.0, 120), 2: (1.0, 8.0, 250), 3: (1.2, 7.5, 500)}
#: a neighbour whose density is foreseen to be lower than the end of the lattice by so many nat is not tried
HOPELESS = 1.0
#: radius of the sphere of the composite design, in units of √m
RADIUS = 1.15


class Rule(NamedTuple):
    """Points and log weights: ∫ p(u) du ≈ Σ exp(log_weights + log_density); `error` is that of the logarithm."""

    points: list[Point]
    log_weights: Array
    error: float
    message: str


def lattice(objective: Objective, axes: Axes, centre: Point) -> Rule:
    """Evaluate on a lattice in the eigenbasis, the best neighbours first."""
    m = len(axes.centre)
    step, fall, most = LATTICES[m]
    box = objective.space.box
    origin = (0,) * m
    known: dict[tuple[int, ...], Point] = {origin: centre}
    queue = [(-centre.log_density, origin)]
    top = centre.log_density
    while queue and len(known) < most:
        value, index = heapq.heappop(queue)
        if -value < top - fall:
            continue
        here = known[index]
        for neighbour in _neighbours(index):
            u = axes.plain(step * np.array(neighbour, float)[None])[0]
            if neighbour in known or np.any(u < box[:, 0]) or np.any(u > box[:, 1]):
                continue
            # what a split normal would lose on the way
            change = np.diff(axes.log_split_normal(np.stack([here.u, u])))[0]
            if here.log_density + change < top - fall - HOPELESS:
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


def composite(objective: Objective, axes: Axes, centre: Point) -> Rule:
    """Evaluate on a central composite design, stretched by the scale of each direction."""
    m = len(axes.centre)
    design = np.concatenate([np.eye(m) * np.sqrt(m), -np.eye(m) * np.sqrt(m), _corners(m)]) * RADIUS
    low, high = objective.space.box.T
    u = axes.split(design)
    beyond = np.any((u < low) | (u > high), axis=1)
    nowhere = Point(axes.centre, -np.inf, -np.inf, None)
    points = [centre, *(nowhere if out else objective.at(row) for row, out in zip(u, beyond, strict=True))]
    # under N(0, I): Σ weights = 1 and Σ weights z_j² = 1
    outer = 1.0 / (len(design) * RADIUS**2)
    weights = np.log(np.array([1.0 - 1.0 / RADIUS**2, *np.full(len(design), outer)]))
    z = np.concatenate([np.zeros((1, m)), design])
    # ∫ p du = ∫ N(z) [p(u(z)) |du/dz| / N(z)] dz; on an axis plane the two scales are averaged
    scales = np.where(z > 0.0, axes.up, np.where(z < 0.0, axes.down, axes.even))
    log_normal = -0.5 * m * LOG_2PI - 0.5 * np.sum(z**2, axis=1)
    log_weights = weights + np.log(scales).sum(axis=1) + axes.log_volume - log_normal
    # how far the sum has moved from the integral of the split normal with the height of the centre
    moved = logsumexp(log_weights + [p.log_density for p in points]) - centre.log_density
    error = float(abs(moved + axes.log_split_normal(axes.centre[None])[0]))
    return Rule(points, log_weights, error, f"a design of {len(points)} points")


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
