"""Gaussian KL for several classes at once: P(y = k | x) = e^{f_k} / Σ_j e^{f_j}, f_k = hᵀw_k, w_k ~ N(μ, LLᵀ).

q has one full Gaussian per class, and the tilted bound of `latlin.potentials.softmax` keeps a lower bound on the
evidence. Steps are natural gradients, the means of all classes together, since they move against each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import logsumexp

from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import PrecisionCovariance
from latlin.densities.whitening import DiagonalWhitening
from latlin.inference.forms.projections import Projections, whitened_projections
from latlin.inference.forms.sites import SiteParameters
from latlin.inference.gaussian_kl.ascent import HALF, Reached, maximise_bound, reached
from latlin.inference.gaussian_kl.sums import definite, packed, unpacked
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Ascent, Rules
from latlin.numerics.linalg import Cholesky, cholesky, symmetrise
from latlin.numerics.quasi_newton import backtrack
from latlin.potentials.softmax import shares, tilted_log_sum

#: how well the joint step of the means is solved for, and in how many products at most
SOLVED, MOST = 1e-3, 100
#: steps towards the mode at most, and the gain per unknown, in nat, at which it is near
NEWTON, NEAR = 30, 0.01


class Classes(NamedTuple):
    """Rows with their classes.

    Parameters
    ----------
    rows : array or sparse matrix of shape (n, dim)
    label : bool ndarray of shape (n, K)
        Which class a row has.
    weight : ndarray of shape (n, 1)
    offset : ndarray of shape (n, K)
    extra : ndarray of shape (n, 1) or float
        Variance of what the rows leave out of every latent function.
    """

    rows: Any
    label: Array
    weight: Array
    offset: Array
    extra: Array | float = 0.0


class ClassPlace(NamedTuple):
    """One Gaussian N(m_k, P_k⁻¹) per class, the bound's slopes in the means, P̂_k, and the shares p of every row."""

    m: Array
    precision: Array
    slope: Array
    precision_hat: Array
    share: Array


class SoftmaxFit(NamedTuple):
    """The ascent, the Gaussians of the classes over w, the stand-ins of their sites, and the scales of the prior."""

    ascent: Ascent[Any]
    densities: tuple[Gaussian, ...]
    sites: tuple[SiteParameters, ...]
    scale: Array


@dataclass(frozen=True)
class SoftmaxBound:
    """The bound in coordinates whitened by the prior, as the ascent asks for it.

    Parameters
    ----------
    data : Classes
        Offsets hold the prior mean as well.
    projections : Projections
        Whitened rows.
    units : tuple of ndarray of shape (dim, dim)
        U_k with U_kᵀU_k the first precision of a class.
    """

    data: Classes
    projections: Projections
    units: tuple[Array, ...] = ()
    first: float = HALF

    def at(self, m: Array, precision: Array) -> Reached[ClassPlace] | None:
        """The Gaussians of some means and precisions; None where one is improper."""
        found = [definite(p) for p in precision]
        chols = [chol for chol in found if chol is not None]
        if len(chols) < len(found):
            return None
        label, weight, projections = self.data.label, self.data.weight, self.projections
        x = np.stack([projections.times(each) for each in m], axis=1) + self.data.offset
        v = np.stack([projections.variances(chol.factor) for chol in chols], axis=1) + self.data.extra
        total, share, curvature = tilted_log_sum(x, v)
        bound = float(np.sum(weight[:, 0] * (np.sum(label * x, axis=1) - total)))
        for each, chol in zip(m, chols, strict=True):
            # −KL(q ‖ N(0, I))
            bound -= 0.5 * float(each @ each + np.trace(chol.inverse()) - len(each) + chol.log_det)
        if not np.isfinite(bound):
            return None
        pull = weight * (label - share)
        slope = np.stack([projections.transposed_times(np.ascontiguousarray(g)) for g in pull.T]) - m
        hat = self._precisions(2.0 * curvature)
        gradient = float(np.abs(slope).max(initial=0.0))
        for chol, now, then in zip(chols, precision, hat, strict=True):
            gradient = max(gradient, float(np.abs(chol.whiten(symmetrise(now - then))).max(initial=0.0)))
        size = len(m) * m.shape[1] * (m.shape[1] + 3) // 2
        return reached(ClassPlace(m, precision, slope, hat, share), bound, gradient, size)

    def _precision(self, gamma: Array) -> Array:
        total = np.triu(self.projections.gram(gamma))
        total[np.diag_indices(len(total))] += 1.0
        return np.asfortranarray(total)

    def near_mode(self, count: int) -> tuple[Array, Array]:
        """Means near the mode, by Newton's method, and the precisions there."""
        m = np.zeros((count, self.projections.shape[1]))
        label, weight = self.data.label, self.data.weight

        def joint(m: Array) -> tuple[float, Array]:
            x = np.stack([self.projections.times(each) for each in m], axis=1) + self.data.offset
            value = np.sum(weight[:, 0] * (np.sum(label * x, axis=1) - logsumexp(x, axis=1)))
            return float(value) - 0.5 * float(np.sum(m * m)), shares(x)

        value, share = joint(m)
        hat = self._precisions(share * (1.0 - share))
        for _ in range(NEWTON):
            pull = weight * (label - share)
            slope = np.stack([self.projections.transposed_times(np.ascontiguousarray(g)) for g in pull.T]) - m
            step = self._joint_step(ClassPlace(m, hat, slope, hat, share), [cholesky(p) for p in hat])
            found = backtrack(lambda t, m=m, step=step: joint(m + t * step), value, 0.0, max_halvings=30)  # type: ignore[misc]
            if found is None:
                break
            m, gained = m + found[0] * step, found[1] - value
            value, share = found[1], found[2]
            hat = self._precisions(share * (1.0 - share))
            if gained < NEAR * m.size:
                break
        return m, hat

    def _precisions(self, curvature: Array) -> Array:
        return np.stack([self._precision(np.ascontiguousarray(g)) for g in (self.data.weight * curvature).T])

    def evaluate(self, place: ClassPlace) -> Reached[ClassPlace] | None:
        return self.at(place.m, place.precision)

    def encode(self, place: ClassPlace) -> tuple[Array, Array] | None:
        targets = [definite(hat) for hat in place.precision_hat]
        known = [target for target in targets if target is not None]
        if len(known) < len(targets):
            return None
        m_hat = place.m + self._joint_step(place, known)
        here = [packed(*each) for each in zip(self.units, place.m, place.precision, strict=True)]
        there = [packed(*each) for each in zip(self.units, m_hat, place.precision_hat, strict=True)]
        return np.concatenate(here), np.concatenate(there)

    def _joint_step(self, place: ClassPlace, targets: list[Cholesky]) -> Array:
        """A⁻¹ slope for all means together, A = I + Σ_n w_n (diag p_n − p_n p_nᵀ) ⊗ h̃_n h̃_nᵀ."""
        shape, weight, projections = place.m.shape, self.data.weight, self.projections

        def times(flat: Array) -> Array:
            d = flat.reshape(shape)
            x = np.stack([projections.times(each) for each in d], axis=1)
            pull = weight * place.share * (x - np.sum(place.share * x, axis=1, keepdims=True))
            return (d + np.stack([projections.transposed_times(np.ascontiguousarray(g)) for g in pull.T])).ravel()

        def solve(flat: Array) -> Array:
            return np.concatenate([t.solve(part) for t, part in zip(targets, flat.reshape(shape), strict=True)])

        size = place.m.size
        operator, preconditioner = (
            LinearOperator((size, size), matvec=product, dtype=float) for product in (times, solve)
        )
        step = cg(operator, place.slope.ravel(), rtol=SOLVED, maxiter=MOST, M=preconditioner)[0]
        return np.asarray(step.reshape(shape))

    def decode(self, point: Array) -> Reached[ClassPlace] | None:
        parts = [unpacked(*pair) for pair in zip(self.units, np.split(point, len(self.units)), strict=True)]
        return self.at(np.stack([m for m, _ in parts]), np.stack([precision for _, precision in parts]))

    def move(self, place: ClassPlace, length: float) -> Reached[ClassPlace] | None:
        precision = place.precision + length * (place.precision_hat - place.precision)
        chols = [chol for chol in (definite(p) for p in precision) if chol is not None]
        if len(chols) < len(precision):
            return None
        return self.at(place.m + length * self._joint_step(place, chols), precision)

    def newton(self, now: Reached[ClassPlace]) -> None:
        return None

    def deviation(self, place: ClassPlace) -> float:
        shifts = [cholesky(p).whiten(g) for p, g in zip(place.precision, place.slope, strict=True)]
        return max(float(np.abs(shift).max(initial=0.0)) for shift in shifts)


def fit_softmax(
    data: Classes, mean: Array, scale: Array, rules: Rules, start: SoftmaxFit | None = None, verbose: bool = False
) -> SoftmaxFit:
    """The Gaussians of the classes under the prior N(mean, diag(scale²)) for the coefficients of each.

    Parameters
    ----------
    data : Classes
    mean, scale : ndarray of shape (dim,)
    rules : Rules
    start : SoftmaxFit, optional
        Under another scale; the stand-ins of its sites are kept.
    """
    whitening, count = DiagonalWhitening(scale), data.label.shape[1]
    shifted = data._replace(offset=data.offset + np.asarray(data.rows @ mean)[:, None])
    bound = SoftmaxBound(shifted, whitened_projections(data.rows, whitening))
    if start is None:
        first = bound.at(*bound.near_mode(count))
    else:
        old, ratio, one = start.ascent.state.place, scale / start.scale, np.eye(len(scale))
        first = bound.at(old.m / ratio, one + (old.precision - one) * np.outer(ratio, ratio))
    bound, ascent = climb_softmax(bound, first, rules, verbose)
    place = ascent.state.place
    densities = tuple(
        Gaussian(mean + scale * each, PrecisionCovariance(whitening, cholesky(p)))
        for each, p in zip(place.m, place.precision, strict=True)
    )
    return SoftmaxFit(ascent, densities, stand_ins_at(bound, place), scale)


def climb_softmax(
    bound: SoftmaxBound, first: Reached[ClassPlace] | None, rules: Rules, verbose: bool = False
) -> tuple[SoftmaxBound, Ascent[Reached[ClassPlace]]]:
    """The ascent from a first place, and the bound in its units."""
    if first is None:
        raise ValueError("the coefficients of the classes have no finite bound; rescale the columns of X")
    bound = SoftmaxBound(bound.data, bound.projections, tuple(cholesky(p).factor for p in first.place.precision))
    return bound, maximise_bound(bound, first, rules, verbose)


def stand_ins_at(bound: SoftmaxBound, place: ClassPlace) -> tuple[SiteParameters, ...]:
    """γ and ν of each class with respect to x = hᵀ(w − prior mean)."""
    own = np.stack([bound.projections.times(each) for each in place.m], axis=1)
    v = np.stack([bound.projections.variances(cholesky(p).factor) for p in place.precision], axis=1) + bound.data.extra
    _, share, curvature = tilted_log_sum(own + bound.data.offset, v)
    gamma = 2.0 * bound.data.weight * curvature
    nu = bound.data.weight * (bound.data.label - share) + gamma * own
    return tuple(SiteParameters(*pair) for pair in zip(gamma.T, nu.T, strict=True))
