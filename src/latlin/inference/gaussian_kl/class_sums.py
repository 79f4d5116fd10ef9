"""Gaussian KL for several classes with one Gaussian each: P(y | f) by a link of `class_links`, f_k = hᵀw_k.

Coordinates are whitened, w_k ~ N(0, I). `latlin.inference.gaussian_kl.classes` has one Gaussian of all classes; here
they are independent in q, which costs K matrices instead of one of K times the size. The link bounds ⟨log P(y | f)⟩
from below, so that the whole is a lower bound. Steps are natural gradients, the means of all classes together, since
they move against each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from latlin.inference.forms.sites import SiteParameters
from latlin.inference.gaussian_kl.ascent import HALF, Reached, maximise_bound, reached
from latlin.inference.gaussian_kl.class_rows import ClassBound, climb_to_mode
from latlin.inference.gaussian_kl.sums import definite, packed, unpacked
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Ascent, Rules
from latlin.numerics.linalg import Cholesky, cholesky, symmetrise
from latlin.potentials.softmax import ClassExpectation

#: how well the joint step of the means is solved for, and in how many products at most
SOLVED, MOST = 1e-3, 100


class ClassSumsPlace(NamedTuple):
    """One Gaussian N(m_k, P_k⁻¹) per class, the bound's slopes in the means, P̂_k, and the curvatures W of every row."""

    m: Array
    precision: Array
    slope: Array
    precision_hat: Array
    curvature: Array


@dataclass(frozen=True)
class ClassSums(ClassBound):
    """The bound of one Gaussian per class in coordinates whitened by the prior, as the ascent asks for it.

    Parameters
    ----------
    units : tuple of ndarray of shape (dim, dim)
        U_k with U_kᵀU_k the first precision of a class.
    """

    units: tuple[Array, ...] = ()
    first: float = HALF

    def at(self, m: Array, precision: Array) -> Reached[ClassSumsPlace] | None:
        """The Gaussians of some means and precisions; None where one is improper."""
        chols = [chol for chol in map(definite, precision) if chol is not None]
        if len(chols) < len(precision):
            return None
        found = self.expected(m, self.covariances([chol.factor for chol in chols]))
        bound = self.energy(found)
        for each, chol in zip(m, chols, strict=True):
            # −KL(q ‖ N(0, I))
            bound -= 0.5 * float(each @ each + np.trace(chol.inverse()) - len(each) + chol.log_det)
        if not np.isfinite(bound):
            return None
        slope, hat = self.pulled(found.slope) - m, self._precisions(found.curvature)
        gradient = float(np.abs(slope).max(initial=0.0))
        for chol, now, then in zip(chols, precision, hat, strict=True):
            gradient = max(gradient, float(np.abs(chol.whiten(symmetrise(now - then))).max(initial=0.0)))
        size = len(m) * m.shape[1] * (m.shape[1] + 3) // 2
        return reached(ClassSumsPlace(m, precision, slope, hat, found.curvature), bound, gradient, size)

    def covariances(self, factors: list[Array]) -> Array:
        """Covariances of f, (n, K, K), diagonal, from the factors of the precisions."""
        v = np.stack([self.projections.variances(factor) for factor in factors], axis=1) + self.data.extra
        return v[:, :, None] * np.eye(self.count)

    def _precision(self, gamma: Array) -> Array:
        total = np.triu(self.projections.gram(gamma))
        total[np.diag_indices(len(total))] += 1.0
        return np.asfortranarray(total)

    def near_mode(self) -> tuple[Array, Array]:
        """Means near the mode, by Newton's method, and the precisions there."""

        def step(m: Array, found: ClassExpectation) -> Array:
            hat = self._precisions(found.curvature)
            place = ClassSumsPlace(m, hat, self.pulled(found.slope) - m, hat, found.curvature)
            return self._joint_step(place, [cholesky(p) for p in hat])

        def expand(m: Array) -> tuple[float, ClassExpectation]:
            found = self.expected_at(m)
            return self.energy(found), found

        m, found = climb_to_mode(expand, step, np.zeros((self.count, self.projections.shape[1])))
        return m, self._precisions(found.curvature)

    def _precisions(self, curvature: Array) -> Array:
        """P̂_k = I + Σ_n W_nkk h̃_n h̃_nᵀ of every class."""
        own = self.data.weight * np.einsum("nkk->nk", curvature)
        return np.stack([self._precision(np.ascontiguousarray(g)) for g in own.T])

    def evaluate(self, place: ClassSumsPlace) -> Reached[ClassSumsPlace] | None:
        return self.at(place.m, place.precision)

    def encode(self, place: ClassSumsPlace) -> tuple[Array, Array] | None:
        targets = [definite(hat) for hat in place.precision_hat]
        known = [target for target in targets if target is not None]
        if len(known) < len(targets):
            return None
        m_hat = place.m + self._joint_step(place, known)
        here = [packed(*each) for each in zip(self.units, place.m, place.precision, strict=True)]
        there = [packed(*each) for each in zip(self.units, m_hat, place.precision_hat, strict=True)]
        return np.concatenate(here), np.concatenate(there)

    def _joint_step(self, place: ClassSumsPlace, targets: list[Cholesky]) -> Array:
        """A⁻¹ slope for all means together, A = I + Σ_n W_n ⊗ h̃_n h̃_nᵀ."""
        shape, projections = place.m.shape, self.projections

        def times(flat: Array) -> Array:
            d = flat.reshape(shape)
            x = np.stack([projections.times(each) for each in d], axis=1)
            return (d + self.pulled(np.einsum("nkj,nj->nk", place.curvature, x))).ravel()

        def solve(flat: Array) -> Array:
            return np.concatenate([t.solve(part) for t, part in zip(targets, flat.reshape(shape), strict=True)])

        size = place.m.size
        operator, preconditioner = (
            LinearOperator((size, size), matvec=product, dtype=float) for product in (times, solve)
        )
        step = cg(operator, place.slope.ravel(), rtol=SOLVED, maxiter=MOST, M=preconditioner)[0]
        return np.asarray(step.reshape(shape))

    def decode(self, point: Array) -> Reached[ClassSumsPlace] | None:
        parts = [unpacked(*pair) for pair in zip(self.units, np.split(point, len(self.units)), strict=True)]
        return self.at(np.stack([m for m, _ in parts]), np.stack([precision for _, precision in parts]))

    def move(self, place: ClassSumsPlace, length: float) -> Reached[ClassSumsPlace] | None:
        precision = place.precision + length * (place.precision_hat - place.precision)
        chols = [chol for chol in (definite(p) for p in precision) if chol is not None]
        if len(chols) < len(precision):
            return None
        return self.at(place.m + length * self._joint_step(place, chols), precision)

    def newton(self, now: Reached[ClassSumsPlace]) -> None:
        return None

    def deviation(self, place: ClassSumsPlace) -> float:
        shifts = [cholesky(p).whiten(g) for p, g in zip(place.precision, place.slope, strict=True)]
        return max(float(np.abs(shift).max(initial=0.0)) for shift in shifts)


def climb_classes(
    bound: ClassSums, first: Reached[ClassSumsPlace] | None, rules: Rules, verbose: bool = False
) -> tuple[ClassSums, Ascent[Reached[ClassSumsPlace]]]:
    """The ascent from a first place, and the bound in its units."""
    if first is None:
        raise ValueError("the coefficients of the classes have no finite bound; rescale the columns of X")
    bound = replace(bound, units=tuple(cholesky(p).factor for p in first.place.precision))
    return bound, maximise_bound(bound, first, rules, verbose)


def stand_ins_at(bound: ClassSums, place: ClassSumsPlace) -> tuple[SiteParameters, ...]:
    """γ and ν of each class with respect to x = hᵀw."""
    factors = [cholesky(p).factor for p in place.precision]
    return bound.stand_ins(place.m, bound.expected(place.m, bound.covariances(factors)))
