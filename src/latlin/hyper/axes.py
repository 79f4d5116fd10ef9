"""Axes of the posterior of hyperparameters: coordinates z in which it is about a standard normal.

    u = centre + E (s ∘ z),   E = eigenvectors of minus the inverse Hessian, times the roots of its eigenvalues

with one scale s per axis and direction, taken from how far the log density has fallen at ±√2 (Rue, Martino and Chopin,
2009, §6.5): a normal has fallen by one there.

Tails of logarithms of scales fall like exp(−a t), slowly where a group has few levels. With

    t = z + κ (z √(z² + 1) − z) + δ z²,

which is near (κ ± δ) z² far out, such a tail is that of a normal, −½z² = −t/(2(κ ± δ)), and what is left to a smooth
interpolation is little. κ and δ of an axis are those with which both falls are ½z².
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from latlin.hyper.optimum import RELIABLE, Optimum, hessian_at
from latlin.hyper.space import Objective, Point
from latlin.numerics.arrays import LOG_2PI, Array

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
