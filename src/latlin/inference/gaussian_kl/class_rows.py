"""What bounds of several classes ask of the rows: in memory, or in blocks by sums over them.

The latent numbers of a row are f_k = hᵀw_k, w_k ~ N(μ, diag(scale²)), and h̃ is a row in units of that prior.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from latlin.densities.precision import DiagonalWhitening
from latlin.distributed.blocks import Block, Blocks, add
from latlin.inference.blocks import read_pieces
from latlin.inference.forms.projections import PIECE, Projections, whitened_projections
from latlin.inference.forms.sites import SiteParameters
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import backtrack
from latlin.numerics.linalg import symmetrise
from latlin.potentials.class_links import ClassLink
from latlin.potentials.softmax import ClassExpectation

#: steps towards the mode at most, and the gain per unknown, in nat, at which it is near
NEWTON, NEAR = 30, 0.01
#: columns up to which all products of pairs of a row's entries are made
NARROW = 16
T = TypeVar("T")


class Classes(NamedTuple):
    """Rows with their classes.

    Parameters
    ----------
    rows : array or sparse matrix of shape (n, dim)
    label : ndarray of shape (n, K)
        One where a row has a class, else zero.
    weight : ndarray of shape (n, 1)
    offset : ndarray of shape (n, K)
    extra : ndarray of shape (n, 1) or float
        Variance of what the rows leave out of every latent number.
    """

    rows: Any
    label: Array
    weight: Array
    offset: Array
    extra: Array | float = 0.0


@dataclass(frozen=True)
class ClassBound:
    """What bounds of several classes ask of the rows: with one Gaussian of all coefficients, or with one per class.

    Parameters
    ----------
    link : ClassLink
    data : Classes
        Offsets hold the prior mean as well.
    projections : Projections
        Rows whitened by the prior.
    """

    link: ClassLink
    data: Classes
    projections: Projections

    @property
    def count(self) -> int:
        """Number of classes K."""
        return int(self.data.label.shape[1])

    def latents(self, means: Array) -> Array:
        """Means of f, (n, K), from the means of the coefficients of every class, (K, dim)."""
        return np.stack([self.projections.times(each) for each in means], axis=1) + self.data.offset

    def expected(self, means: Array, covariances: Array) -> ClassExpectation:
        """What the link makes of the latents with covariances (n, K, K)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.link.expected_log(self.latents(means), covariances, self.data.label)

    def energy(self, found: ClassExpectation) -> float:
        """The weighted sum of the link's values."""
        return float(np.sum(self.data.weight[:, 0] * found.value))

    def pulled(self, slope: Array) -> Array:
        """Σ_n weight_n g_n ⊗ h̃_n, (K, dim)."""
        pull = (self.data.weight * slope).T
        return np.stack([self.projections.transposed_times(np.ascontiguousarray(g)) for g in pull])

    def expected_at(self, means: Array) -> ClassExpectation:
        """What the link makes of latents that are known."""
        return self.expected(means, np.zeros((self.projections.shape[0], self.count, self.count)))

    def stand_ins(self, means: Array, found: ClassExpectation) -> tuple[SiteParameters, ...]:
        """γ and ν of each class with respect to x = hᵀ(w − prior mean)."""
        gamma = self.data.weight * np.einsum("nkk->nk", found.curvature)
        nu = self.data.weight * found.slope + gamma * (self.latents(means) - self.data.offset)
        return tuple(SiteParameters(*pair) for pair in zip(gamma.T, nu.T, strict=True))


class ClassTerms(NamedTuple):
    """Sums over rows: the link's values, Σ_n g_n ⊗ h̃_n of shape (K, dim), and Σ_n W_n ⊗ h̃_n h̃_nᵀ, upper triangle."""

    value: float
    pull: Array
    bend: Array


class ClassRows(Protocol):
    """Rows with their classes, wherever they are."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of classes, and of coefficients of each."""
        ...

    def terms(self, means: Array, covariance: Array | None) -> ClassTerms:
        """At the means (K, dim) and the covariance (K dim, K dim) of the coefficients, or at known ones."""
        ...


class HeldClasses(ClassBound):
    """Rows in memory."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.count, self.projections.shape[1]

    def terms(self, means: Array, covariance: Array | None) -> ClassTerms:
        found = self.expected_at(means) if covariance is None else self.expected(means, self.covariances(covariance))
        return ClassTerms(self.energy(found), self.pulled(found.slope), self._bend(found.curvature))

    def covariances(self, covariance: Array) -> Array:
        """Covariances of f, (n, K, K)."""
        (n, dim), count = self.projections.shape, self.count
        out, by_class = np.empty((n, count, count)), covariance.reshape(count, dim, count * dim)
        for start in range(0, n, PIECE):
            rows = self.projections.block(slice(start, min(start + PIECE, n)))
            for k in range(count):
                moved = (rows @ by_class[k]).reshape(len(rows), count, dim)
                out[start : start + len(rows), k] = np.einsum("njd,nd->nj", moved, rows)
        left_out = np.broadcast_to(self.data.extra, (n, 1))[:, :, None] * np.eye(count)
        return 0.5 * (out + np.swapaxes(out, 1, 2)) + left_out

    def _bend(self, curvature: Array) -> Array:
        """Σ_n weight_n W_n ⊗ h̃_n h̃_nᵀ, upper triangle."""
        weighted = self.data.weight[:, :, None] * curvature
        return self._bend_at_once(weighted) if self.projections.shape[1] <= NARROW else self._bend_by_pairs(weighted)

    def _bend_at_once(self, curvature: Array) -> Array:
        """As one product of all W_n with all h̃_n h̃_nᵀ."""
        (n, dim), count = self.projections.shape, self.count
        total = np.zeros((count * count, dim * dim))
        for start in range(0, n, PIECE):
            rows = self.projections.block(slice(start, min(start + PIECE, n)))
            squares = (rows[:, :, None] * rows[:, None, :]).reshape(len(rows), -1)
            total += curvature[start : start + len(rows)].reshape(len(rows), -1).T @ squares
        total = total.reshape(count, count, dim, dim).transpose(0, 2, 1, 3).reshape(count * dim, count * dim)
        return np.asfortranarray(np.triu(total))

    def _bend_by_pairs(self, curvature: Array) -> Array:
        """One pair of classes at a time, where rows are too long for all products of their entries."""
        count, dim = self.count, self.projections.shape[1]
        total = np.zeros((count * dim, count * dim), order="F")
        for k in range(count):
            for j in range(k, count):
                block = self.projections.gram(np.ascontiguousarray(curvature[:, k, j]))
                block = np.triu(block) if j == k else symmetrise(np.triu(block))
                total[k * dim : (k + 1) * dim, j * dim : (j + 1) * dim] = block
        return total


def hold_classes(link: ClassLink, data: Classes, mean: Array, scale: Array) -> HeldClasses:
    """Rows in memory under the prior N(mean, diag(scale²)) of the coefficients of each class."""
    shifted = data._replace(offset=data.offset + np.asarray(data.rows @ mean)[:, None])
    return HeldClasses(link, shifted, whitened_projections(data.rows, DiagonalWhitening(scale)))


@dataclass(frozen=True)
class BlockClasses:
    """Rows in blocks.

    Parameters
    ----------
    blocks : Blocks
    reading : callable
        A block → `Classes`, or None where no row counts; it travels.
    count : int
        Number of classes.
    """

    blocks: Blocks
    reading: Any
    count: int


@dataclass(frozen=True)
class ClassesInBlocks:
    """Rows in blocks under a prior: one pass per evaluation."""

    link: ClassLink
    data: BlockClasses
    mean: Array
    scale: Array

    @property
    def shape(self) -> tuple[int, int]:
        return self.data.count, len(self.scale)

    def terms(self, means: Array, covariance: Array | None) -> ClassTerms:
        shared = (self.data.reading, self.link, self.mean, self.scale, means, covariance)
        return ClassTerms(*self.data.blocks.total(terms_of_block, *shared))


def terms_of_block(
    block: Block, reading: Any, link: ClassLink, mean: Array, scale: Array, means: Array, covariance: Array | None
) -> tuple[Any, ...]:
    """`ClassTerms` of a block, a piece at a time."""
    total: tuple[Any, ...] = (0.0, np.zeros(means.shape), np.zeros((means.size, means.size)))
    for data in read_pieces(block, reading):
        rows = hold_classes(link, data, mean, scale)  # type: ignore[arg-type]
        total = add(total, rows.terms(means, covariance))
    return total


def climb_to_mode(
    expand: Callable[[Array], tuple[float, T]], step: Callable[[Array, T], Array], m: Array
) -> tuple[Array, T]:
    """Means near the mode of log P(y | m) − ½mᵀm by Newton's steps, and what `expand` finds there beside log P."""

    def joint(at: Array) -> tuple[float, T]:
        value, found = expand(at)
        return value - 0.5 * float(np.vdot(at, at)), found

    value, found = joint(m)
    for _ in range(NEWTON):
        moved = backtrack(partial(_along, joint, m, ahead := step(m, found)), value, 0.0, max_halvings=30)
        if moved is None:
            break
        m, gained = m + moved[0] * ahead, moved[1] - value
        value, found = moved[1], moved[2]
        if gained < NEAR * m.size:
            break
    return m, found


def _along(joint: Callable[[Array], Any], m: Array, step: Array, length: float) -> Any:
    return joint(m + length * step)
