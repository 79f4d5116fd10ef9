"""Measures in standard coordinates: a mixture of Gaussians of overall unit scale, or a centred cube.

Every measure of `latlin.quadrature.measures` is one of these two after an affine change of variables, so that
length scales are numbers near one and the closed forms are written once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp, ndtri

from latlin.numerics.arrays import LOG_2PI, Array

HALF = float(np.sqrt(3.0))  # the half width at which a uniform coordinate has variance one


class Components(NamedTuple):
    """Σ_a w_a N(m_a, S_a)."""

    weights: Array  # (M,)
    means: Array  # (M, d)
    covs: Array  # (M, d, d)

    @property
    def dim(self) -> int:
        return self.means.shape[1]

    @property
    def axis_aligned(self) -> bool:
        """Whether every S_a is diagonal, so that the measure is a mixture of products."""
        off_diagonal = self.covs * (1.0 - np.eye(self.dim))
        return bool(np.all(off_diagonal == 0.0))

    def logpdf(self, z: Array) -> Array:
        """log p at the rows of z."""
        parts = [
            np.log(w) + normal_logpdf(z - m, s) for w, m, s in zip(self.weights, self.means, self.covs, strict=True)
        ]
        return logsumexp(np.array(parts), axis=0)

    def place(self, u: Array) -> Array:
        """Points of the measure from uniform numbers u of shape (n, d + 1): component, then place in it."""
        edges = np.cumsum(self.weights)[:-1]
        component = np.searchsorted(edges, u[:, 0], side="right")
        factors = np.linalg.cholesky(self.covs)
        return self.means[component] + np.einsum("nij,nj->ni", factors[component], ndtri(u[:, 1:]))

    def clip(self, z: Array) -> Array:
        """The plane has no edge: z as it is."""
        return z

    def broaden(self, factor: float) -> Components:
        """The same centres with covariances `factor` times as large."""
        return Components(self.weights, self.means, self.covs * factor)


class Box(NamedTuple):
    """The uniform distribution on [−√3, √3]^d, of unit variance."""

    dim: int

    def logpdf(self, z: Array) -> Array:
        """log p at the rows of z; −inf outside."""
        inside = np.all(np.abs(z) <= HALF * (1.0 + 1e-12), axis=1)
        return np.where(inside, -self.dim * np.log(2.0 * HALF), -np.inf)

    def place(self, u: Array) -> Array:
        """Points of the measure from uniform numbers u of shape (n, d + 1); the first column is not used."""
        return HALF * (2.0 * u[:, 1:] - 1.0)

    def clip(self, z: Array) -> Array:
        """The nearest points inside."""
        return np.clip(z, -HALF, HALF)

    def broaden(self, factor: float) -> Box:
        """There is nothing outside a box: the same box."""
        return self


Standard = Components | Box


def normal_logpdf(r: Array, cov: Array) -> Array:
    """log N(r|0, cov) of the rows of r."""
    lower = np.linalg.cholesky(cov)
    white = np.linalg.solve(lower, r.T)
    return -0.5 * (np.einsum("dn,dn->n", white, white) + r.shape[1] * LOG_2PI) - np.log(np.diagonal(lower)).sum()
