"""Coordinates z in which the posterior of hyperparameters is about a standard normal.

    u = centre + E (s ∘ z),   E = eigenvectors of minus the inverse Hessian, times the roots of its eigenvalues

with one scale s per axis and direction, taken from how far the log density has fallen at ±√2 (Rue, Martino and Chopin,
2009, §6.5): a normal has fallen by one there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latlin.hyper.objective import Objective
from latlin.hyper.optimum import Optimum, hessian_at
from latlin.numerics.arrays import LOG_2PI, Array

#: largest and smallest sd of a coordinate that a Hessian may say
WIDEST, NARROWEST = 3.0, 1e-4
#: where skewness is measured, and ends of the scales that it may give
REACH = float(np.sqrt(2.0))
SCALES = (0.3, 3.0)


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
    """

    centre: Array
    basis: Array
    up: Array
    down: Array

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

    def standard(self, u: Array) -> Array:
        """z of rows of u, with a scale per direction."""
        t = np.linalg.solve(self.basis, (np.atleast_2d(u) - self.centre).T).T
        return t / np.where(t >= 0.0, self.up, self.down)

    def log_split_normal(self, u: Array) -> Array:
        """Log density at rows of u of independent split normals along the axes; it is continuous."""
        z = self.standard(u)
        # each axis has the constant of a normal with the mean of the two scales
        constant = -0.5 * len(self.centre) * LOG_2PI - float(np.log(self.even).sum()) - self.log_volume
        return constant - 0.5 * np.sum(z**2, axis=1)


def axes_at(objective: Objective, optimum: Optimum) -> Axes:
    """Axes from the Hessian at an optimum and the skewness along each of them."""
    curvature = _apart(-hessian_at(objective, optimum.u)[0], optimum)
    values, vectors = np.linalg.eigh(curvature)
    # a direction without curvature is as wide as a search may be
    spread = 1.0 / np.sqrt(np.clip(values, WIDEST**-2, NARROWEST**-2))
    basis = vectors * spread
    scales = np.ones((2, len(values)))
    for j in range(len(values)):
        for side, sign in enumerate((1.0, -1.0)):
            scales[side, j] = _scale(objective, optimum, sign * REACH * basis[:, j])
    return Axes(optimum.u, basis, scales[0], scales[1])


def _apart(curvature: Array, optimum: Optimum) -> Array:
    """The curvature with an axis of its own for each coordinate that stands at an end of its search.

    An axis that leans the least bit would leave the search on one side or the other by rounding alone. The density
    falls there like exp(−|slope|·distance), whose standard deviation is 1/|slope|.
    """
    inside = optimum.inside
    own = np.where(inside, 0.0, optimum.gradient**2)
    return np.asarray(curvature * np.outer(inside, inside) + np.diag(own))


def _scale(objective: Objective, optimum: Optimum, step: Array) -> float:
    u, box = optimum.u + step, objective.space.box
    if np.any(u < box[:, 0]) or np.any(u > box[:, 1]):
        return 1.0
    fall = optimum.point.log_density - objective.at(u).log_density
    # −½z²/s² = −fall at z = √2
    return float(np.clip(1.0 / np.sqrt(fall), *SCALES)) if fall > 0.0 else SCALES[1]
