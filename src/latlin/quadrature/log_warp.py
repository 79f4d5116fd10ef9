"""A Gaussian process on log f, for positive integrands of many magnitudes: peaks, likelihoods.

With g = log f ~ GP(m, C) given the evaluations,

    ⟨f(x)⟩ = exp(m(x) + ½C(x, x)),   cov(f(x), f(x′)) = ⟨f(x)⟩⟨f(x′)⟩(exp C(x, x′) − 1),

whose integrals have no closed form and are taken at nodes: low-discrepancy points of the measure, and of a Gaussian
where the surrogate says that f p is. The surrogate is cheap, so there are thousands; how far parts of them disagree is
counted in the variance.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

from latlin.numerics.arrays import Array
from latlin.quadrature.belief import Belief, fitted
from latlin.quadrature.kernels import HALF, Box, Kernel, Standard, normal_logpdf
from latlin.quadrature.result import ResultMoments, pooled
from latlin.quadrature.surrogate import Basis, Ensemble, HyperparameterFit, Surrogate, condition

#: nodes of the measure, and as many of the Gaussian at the peak
NODES = 4096
#: parts of the nodes, whose disagreement says how accurate they are; covariances are formed among one of them
PARTS = 8
#: least log f, counted from the largest, and the largest variance of log f that an exponential is trusted with
FLOOR, WIDEST = -700.0, 4.0
#: how much wider the Gaussian of nodes is than the peak
WIDER = 1.3


class PeakNodes(NamedTuple):
    """Points, and weights with which sums over them are integrals against the measure."""

    points: Array
    weights: Array


class LogWarped(NamedTuple):
    """A Gaussian process on log f."""

    kernel: Kernel
    basis: Basis
    measure: Standard
    fit: HyperparameterFit

    def __call__(self, points: Array, values: Array, previous: Belief | None) -> LogBelief:
        lowest, scale = float(values.min()), float(values.max())
        if lowest < 0.0 or not scale > 0.0:
            raise ValueError(f"warp='log' needs an integrand above zero, got values from {lowest:.6g} to {scale:.6g}")
        with np.errstate(divide="ignore"):
            g = np.maximum(np.log(values / scale), FLOOR)
        ensemble = fitted(self.fit, self.kernel, self.basis, points, g, previous)
        mode = condition(self.kernel, self.basis, points, g, ensemble.mode)
        nodes = peak_nodes(mode, self.measure)
        others = [condition(self.kernel, self.basis, points, g, h) for _, h in ensemble.members[1:]]
        parts = [mode, *others]
        integral = pooled(ensemble.weights, [log_moments(part, nodes) for part in parts]).times(scale)
        # of the values themselves: dg = df/f
        height = ensemble.log_posterior - float(g.sum())
        return LogBelief(ensemble._replace(log_posterior=height), mode, peak_shares(mode, nodes), scale, integral)


class LogBelief(NamedTuple):
    """Of `LogWarped`."""

    ensemble: Ensemble
    process: Surrogate  # of log(f / scale)
    peak: PeakNodes  # points with their shares of the integral
    scale: float
    integral: ResultMoments

    def mean(self, z: Array) -> Array:
        return self.scale * _expected(self.process, z)

    def variances(self, z: Array) -> Array:
        spread = np.minimum(self.process.variances(z), WIDEST)
        return self.mean(z) ** 2 * np.expm1(spread)

    def amplitude(self, z: Array) -> Array:
        return self.mean(z)

    def link(self, z: Array) -> Array:
        # ∫ C(x, x′)⟨f(x′)⟩p(x′) dx′
        return self.process.covariance(z, self.peak.points) @ self.peak.weights * self.integral.mean


def _expected(process: Surrogate, z: Array) -> Array:
    """⟨f⟩ at the rows of z."""
    return np.exp(process.mean(z) + 0.5 * np.minimum(process.variances(z), WIDEST))


class _Peak(NamedTuple):
    """A Gaussian, or in a box the product of normals cut off at its sides."""

    centre: Array
    cov: Array
    boxed: bool

    def place(self, v: Array) -> Array:
        """Points of it from uniform numbers."""
        if not self.boxed:
            return self.centre + ndtri(v) @ np.linalg.cholesky(self.cov).T
        low, high, sd = self._ends()
        return np.clip(self.centre + sd * ndtri(low + v * (high - low)), -HALF, HALF)

    def logpdf(self, z: Array) -> Array:
        """Its log density inside the box."""
        if not self.boxed:
            return normal_logpdf(z - self.centre, self.cov)
        low, high, sd = self._ends()
        return normal_logpdf(z - self.centre, np.diag(sd * sd)) - float(np.log(high - low).sum())

    def _ends(self) -> tuple[Array, Array, Array]:
        sd = np.sqrt(np.diagonal(self.cov))
        return ndtr((-HALF - self.centre) / sd), ndtr((HALF - self.centre) / sd), sd


def peak_nodes(process: Surrogate, measure: Standard) -> PeakNodes:
    """Half of the measure, half of a Gaussian with the moments of f p, both weighted as one mixture."""
    d = measure.dim
    u = np.clip(qmc.Sobol(d + 1, seed=np.random.default_rng(0)).random(NODES), 1e-9, 1.0 - 1e-9)
    v = np.clip(qmc.Sobol(d, seed=np.random.default_rng(1)).random(NODES), 1e-9, 1.0 - 1e-9)
    wide = measure.place(u)
    points, weights = wide, np.full(NODES, 1.0 / NODES)
    for _ in range(2):
        height = process.mean(points)
        share = weights * np.exp(height - height.max())
        share = share / share.sum()
        centre = share @ points
        away = points - centre
        peak = _Peak(centre, WIDER**2 * ((away.T * share) @ away + 1e-6 * np.eye(d)), isinstance(measure, Box))
        points = np.vstack([wide, peak.place(v)])
        density = np.exp(measure.logpdf(points))
        mixed = 0.5 * density + 0.5 * np.exp(peak.logpdf(points))
        weights = density / mixed / len(points)
    # in parts that have nodes of both kinds: each is a rule of its own
    order = np.arange(2 * NODES).reshape(2, PARTS, -1).transpose(1, 0, 2).ravel()
    return PeakNodes(points[order], weights[order])


def log_moments(process: Surrogate, nodes: PeakNodes) -> ResultMoments:
    """Mean and variance of ∫ exp(g) p."""
    terms = _terms(process, nodes)
    mean = float(terms.sum())
    rules = PARTS * terms.reshape(PARTS, -1).sum(axis=1)
    points, shares = peak_shares(process, nodes)
    spread = float(shares @ np.expm1(np.minimum(process.covariance(points, points), WIDEST)) @ shares)
    return ResultMoments.single(mean, mean**2 * max(spread, 1e-15) + rules.var(ddof=1) / PARTS, process.dof)


def peak_shares(process: Surrogate, nodes: PeakNodes) -> PeakNodes:
    """One part of the nodes, with their shares of the integral."""
    part = PeakNodes(*(values[: len(values) // PARTS] for values in nodes))
    terms = _terms(process, part)
    return PeakNodes(part.points, terms / terms.sum())


def _terms(process: Surrogate, nodes: PeakNodes) -> Array:
    """Weight times ⟨f⟩ at every node."""
    terms, inside = np.zeros(len(nodes.weights)), nodes.weights > 0.0
    terms[inside] = nodes.weights[inside] * _expected(process, nodes.points[inside])
    return terms
