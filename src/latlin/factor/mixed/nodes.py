"""Few latents: the posterior of every row on Gauss–Hermite nodes about its Gaussian.

With w = m + Lz, LLᵀ = S, and nodes z_q of weights c_q for the standard normal density,

    p(x) = ∫ p(x|w) p(w) dw ≈ Σ_q c_q p(x|w_q) p(w_q) / N(w_q | m, S)

(Naylor and Smith 1982). Nothing is assumed of the posterior's shape, so that EM climbs the likelihood itself (Bock and
Aitkin 1981): loadings of binary columns, which any Gaussian in the place of the posterior shrinks a little, are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from latlin.factor.mixed.rows import ClimbingRows, in_chunks
from latlin.factor.mixed.sites import ColumnSites, Index, gather
from latlin.numerics.arrays import LOG_SQRT_2PI, Array
from latlin.potentials.base import Potential

#: nodes per latent, by their number
COUNTS = {1: 21, 2: 13, 3: 9}
#: share of a node that columns need not see
NEGLIGIBLE = 1e-10


class WeighedNodes(NamedTuple):
    """Points (Q, n, K), their shares of the posterior (Q, n), and the log evidence of every row."""

    points: Array
    shares: Array
    log_evidence: Array


class LatentSample(NamedTuple):
    """What columns are averaged over: Gaussians of rows, or nodes with their shares, and whose they are."""

    row: Index
    means: Array
    covs: Array
    weight: Array | None = None


@dataclass(frozen=True)
class NodeRows:
    """The posterior on nodes, placed by Gaussian KL at first and then by its own moments."""

    latents: Potential
    kind: str = "approximation"
    monotone: bool = False

    def infer(self, rows: Array, sites: ColumnSites, means: Array, covs: Array, max_iter: int, tol: float) -> Array:
        ClimbingRows(self.latents, 1.0, "lower bound", True).infer(rows, sites, means, covs, max_iter, tol)
        values = np.empty(len(rows))

        def settle(at: slice) -> None:
            for _ in range(2):
                found = self.weigh(rows[at], sites, means[at], covs[at])
                means[at], covs[at] = moments(found)
            values[at] = found.log_evidence

        in_chunks(settle, len(rows))
        return values

    def weigh(self, rows: Array, sites: ColumnSites, means: Array, covs: Array) -> WeighedNodes:
        """The nodes of some rows about their moments."""
        z, log_c = hermite_nodes(means.shape[1])
        roots = np.asarray(np.linalg.cholesky(covs), dtype=float)
        points = means + np.einsum("nkl,ql->qnk", roots, z)
        # − log N(w | m, S), but for log c
        log_det = np.log(np.einsum("nkk->nk", roots)).sum(axis=1)
        total = (log_c + np.sum(0.5 * z * z + LOG_SQRT_2PI, axis=1))[:, None] + log_det
        total += self.latents.log_density(points).sum(axis=2)
        x = points @ sites.loading.T + sites.intercept
        for row, column, potential in gather(rows, sites):
            logs = potential.log_density(x[:, row, column])
            total += [np.bincount(row, own, len(means)) for own in logs]
        log_evidence: Array = logsumexp(total, axis=0)
        return WeighedNodes(points, np.exp(total - log_evidence), log_evidence)

    def sample(self, rows: Array, sites: ColumnSites, means: Array, covs: Array) -> LatentSample:
        """The nodes that have a share in their rows, one after the other."""
        parts: dict[int, tuple[Index, Array, Array]] = {}

        def take(at: slice) -> None:
            found = self.weigh(rows[at], sites, means[at], covs[at])
            node, row = np.nonzero(found.shares > NEGLIGIBLE)
            parts[at.start] = (row + at.start, found.points[node, row], found.shares[node, row])

        in_chunks(take, len(rows))
        row, points, shares = (np.concatenate(own) for own in zip(*(parts[k] for k in sorted(parts)), strict=True))
        return LatentSample(row, points, np.zeros((*points.shape, points.shape[1])), shares)


def select(latents: LatentSample, kept: NDArray[np.bool_]) -> LatentSample:
    """Some of them."""
    row, means, covs, weight = latents
    return LatentSample(row[kept], means[kept], covs[kept], None if weight is None else weight[kept])


def moments(found: WeighedNodes) -> tuple[Array, Array]:
    """Means (n, K) and covariances (n, K, K)."""
    mean = np.einsum("qn,qnk->nk", found.shares, found.points)
    away = found.points - mean
    return mean, np.einsum("qn,qnk,qnl->nkl", found.shares, away, away)


@cache
def hermite_nodes(dim: int) -> tuple[Array, Array]:
    """Nodes (Q, dim) of a product rule for the standard normal density, and the logarithms of their weights."""
    node, weight = np.polynomial.hermite_e.hermegauss(COUNTS[dim])
    z = np.stack(np.meshgrid(*[node] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    log_weight = np.log(weight / weight.sum())
    return z, np.stack(np.meshgrid(*[log_weight] * dim, indexing="ij"), axis=-1).reshape(-1, dim).sum(axis=1)
