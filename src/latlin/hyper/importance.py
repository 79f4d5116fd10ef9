"""Importance sampling of many hyperparameters, from a proposal that is adapted once to what it found.

Points are quasi-random (Owen, 1998) under products of Student t along the axes of the optimum's curvature; after a
first round the axes are those of the weighted points, and both rounds together are weighed against the mixture of
their proposals (Veach and Guibas, 1995). k̂ and the effective number say what the weights are worth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, logsumexp, stdtrit
from scipy.stats import qmc

from latlin.diagnostics.pareto import LARGEST_K, smooth_log_weights
from latlin.hyper.axes import Axes
from latlin.hyper.objective import Objective, Point
from latlin.hyper.rules import Rule
from latlin.numerics.arrays import Array

#: degrees of freedom of the proposals, and how much wider than the curvature says they are
DF, WIDER = 6.0, 1.15
#: points per round: at least, and per hyperparameter
FEWEST, EACH = 64, 12


@dataclass(frozen=True)
class Proposal:
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


def sample(objective: Objective, axes: Axes, seed: int = 0) -> Rule:
    """Two rounds of points with their weights."""
    m = len(axes.centre)
    count = 2 ** int(np.ceil(np.log2(max(FEWEST, EACH * m))))
    first = Proposal(axes)
    points = _evaluated(objective, first.draw(count, seed))
    proposals = [first, Proposal(_adapted(axes, first, points))]
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


def _adapted(axes: Axes, proposal: Proposal, points: list[Point]) -> Axes:
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
