"""The latents of every row: one small Gaussian per row, all rows at once.

Source: Challis (2013), §2.2.2, eqs. 2.2.4 and 4.3.1. A row has K latents, their density as one site per latent, and one
site ψ(b + fᵀw) per observed column. With Σψ the sum over all of these and q = N(m, S),

    bound = ⟨Σψ⟩ + ½ log det S + ½K(1 + log 2π),   g = ∂⟨Σψ⟩/∂m,   Γ = −2 ∂⟨Σψ⟩/∂S,

P ← (1 − ρ)P + ρΓ and m ← m + ρP⁻¹g with ρ = 1, halved for a row until its bound rises. With expectations taken at the
mean (`spread` 0) this is Newton's method for the mode, and with it the Laplace approximation.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from latlin.factor.mixed.sites import ColumnSites, Index, ObservedCells, exact_expectation, gather, restrict
from latlin.numerics.arrays import LOG_2PI, LOG_SQRT_2PI, Array
from latlin.numerics.threads import thread_count
from latlin.potentials.base import ExpectedLog, Potential

#: ⟨ψ⟩ of sites under Gaussians, or a bound on it, with its slopes
Expectation = Callable[[Potential, Array, Array], ExpectedLog]
#: rows done together: their arrays fit in the cache
CHUNK = 1024
#: halvings of a step, sweeps of expectation propagation, and the least tolerance of these
HALVINGS, SWEEPS, LEAST_TOL = 30, 50, 1e-6
#: a variance below which the latents do not reach a site
UNREACHED = 1e-12


class RowEngine(Protocol):
    """How the posterior of every row's latents is approximated."""

    @property
    def kind(self) -> str: ...

    @property
    def monotone(self) -> bool: ...

    def infer(self, rows: Array, sites: ColumnSites, means: Array, covs: Array, max_iter: int, tol: float) -> Array:
        """Improve means and covariances in place; the evidence, or a bound on it, of every row."""


@dataclass(frozen=True)
class ClimbingRows:
    """Gaussian KL (spread 1) or Laplace (spread 0), of independent latents or with local bounds on the sites."""

    latents: Potential
    spread: float
    kind: str
    monotone: bool
    factorised: bool = False
    expect: Expectation = exact_expectation

    def infer(self, rows: Array, sites: ColumnSites, means: Array, covs: Array, max_iter: int, tol: float) -> Array:
        values = np.empty(len(rows))

        def climb(at: slice) -> None:
            climbing = RowClimb(gather(rows[at], sites), sites, self, means[at], covs[at])
            values[at] = climbing.run(max_iter, tol)

        run_in_chunks(climb, len(rows))
        return values


class Weighed(NamedTuple):
    """⟨Σψ⟩ of some rows, its gradient in the means, and Γ = −2∂/∂S, the precision that q should have."""

    value: Array
    slope: Array
    precision: Array


class RowClimb:
    """Rows on their way up; means and covariances are changed in place."""

    def __init__(
        self,
        cells: list[ObservedCells],
        sites: ColumnSites,
        engine: ClimbingRows,
        means: Array,
        covs: Array,
    ) -> None:
        self.cells, self.sites, self.engine = cells, sites, engine
        self.latents, self.spread = engine.latents, engine.spread
        self.means, self.covs = means, covs
        if engine.factorised:
            covs *= np.eye(means.shape[1])
        # f fᵀ of every column, as one row
        self.squares = (sites.loading[:, :, None] * sites.loading[:, None, :]).reshape(len(sites.loading), -1)

    def run(self, max_iter: int, tol: float) -> Array:
        """The bounds of all rows, or their Laplace evidences."""
        everything = np.arange(len(self.means))
        precision = np.asarray(np.linalg.inv(self.covs), dtype=np.float64)
        log_det: Array = np.linalg.slogdet(self.covs)[1]
        found = self.weigh(everything, self.means, self.covs)
        value = found.value + self.spread * 0.5 * log_det
        slope, target, active = found.slope, found.precision, everything
        for _ in range(max_iter):
            rho, pending, old = np.ones(len(active)), active, value[active]
            moved = np.zeros(len(self.means))
            for _ in range(HALVINGS):
                trial = self._step(pending, rho, precision[pending], slope[pending], target[pending])
                rises = trial.value >= value[pending] - 1e-12 * np.abs(value[pending])
                at, kept = pending[rises], np.flatnonzero(rises)
                moved[at] = np.abs(trial.mean[kept] - self.means[at]).max(axis=1, initial=0.0)
                self.means[at], self.covs[at], precision[at] = trial.mean[kept], trial.cov[kept], trial.precision[kept]
                value[at], log_det[at] = trial.value[kept], trial.log_det[kept]
                slope[at], target[at] = trial.found.slope[kept], trial.found.precision[kept]
                pending, rho = pending[~rises], 0.5 * rho[~rises]
                if not len(pending):
                    break
            gain = value[active] - old
            still = (moved[active] >= tol) | (gain >= tol * (1.0 + np.abs(value[active])))
            stuck = np.isin(active, pending)
            active = active[still & ~stuck]
            if not len(active):
                break
        # ½K(1 + log 2π) + ½ log det S of the entropy; Laplace: ½K log 2π + ½ log det S
        k = self.means.shape[1]
        return value + 0.5 * k * (self.spread + LOG_2PI) + (1.0 - self.spread) * 0.5 * log_det

    def weigh(self, index: Index, means: Array, covs: Array) -> Weighed:
        """⟨Σψ⟩ of some rows under their Gaussians."""
        n, k = means.shape
        loading = self.sites.loading
        m = means @ loading.T + self.sites.intercept
        v = self.spread * np.maximum(covs.reshape(n, k * k) @ self.squares.T, 0.0)
        prior = self.latents.expected_log(means, self.spread * np.einsum("nkk->nk", covs))
        value = prior.value.sum(axis=1)
        slopes, curvatures = np.zeros_like(m), np.zeros_like(m)
        for row, column, potential in restrict(self.cells, index, len(self.means)):
            if not len(row):
                continue
            part = self.engine.expect(potential, m[row, column], v[row, column])
            value += np.bincount(row, part.value, n)
            slopes[row, column], curvatures[row, column] = part.d_mean, -2.0 * part.d_var
        precision = (curvatures @ self.squares).reshape(n, k, k)
        precision[:, np.arange(k), np.arange(k)] -= 2.0 * prior.d_var
        return Weighed(value, prior.d_mean + slopes @ loading, precision)

    def _step(self, index: Index, rho: Array, precision: Array, slope: Array, target: Array) -> RowTrial:
        """P ← (1 − ρ)P + ρΓ and m + ρP⁻¹g of some rows; a P that is not definite has the bound −∞."""
        share = rho[:, None, None]
        new = (1.0 - share) * precision + share * target
        if self.engine.factorised:
            # the best precisions of independent latents are the diagonal of Γ
            new *= np.eye(new.shape[1])
        proper = is_definite(new)
        new[~proper] = precision[~proper]
        cov = np.linalg.inv(new)
        cov = 0.5 * (cov + cov.transpose(0, 2, 1))
        mean = self.means[index] + rho[:, None] * np.einsum("nkl,nl->nk", cov, slope)
        log_det = -np.linalg.slogdet(new)[1]
        found = self.weigh(index, mean, cov)
        value = np.where(proper, found.value + self.spread * 0.5 * log_det, -np.inf)
        return RowTrial(mean, cov, new, log_det, np.where(np.isnan(value), -np.inf, value), found)


class RowTrial(NamedTuple):
    """Where a step of some rows leads."""

    mean: Array
    cov: Array
    precision: Array
    log_det: Array
    value: Array
    found: Weighed


def is_definite(matrices: Array) -> NDArray[np.bool_]:
    """Which of many symmetric matrices are positive definite."""
    try:
        np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        return np.linalg.eigvalsh(matrices)[:, 0] > 0.0
    return np.ones(len(matrices), dtype=bool)


# --- Expectation propagation, Gaussian latents: every site ψ(b + x), x = fᵀw, is replaced by exp(−½tx² + hx) times a
# constant. Columns are visited one after the other, all rows of a column at once; Gaussian columns are exact.


@dataclass(frozen=True)
class PropagatingRows:
    """Expectation propagation, from flat sites every time."""

    kind: str = "approximation"
    monotone: bool = False

    def infer(self, rows: Array, sites: ColumnSites, means: Array, covs: Array, max_iter: int, tol: float) -> Array:
        values = np.empty(len(rows))

        def propagate(at: slice) -> None:
            values[at] = Propagation(rows[at], sites, means[at], covs[at]).run(max(tol, LEAST_TOL))

        run_in_chunks(propagate, len(rows))
        return values


class Propagation:
    """Rows with their sites' stand-ins; means and covariances are changed in place."""

    def __init__(self, rows: Array, sites: ColumnSites, means: Array, covs: Array) -> None:
        self.sites, self.means, self.covs = sites, means, covs
        n, c = len(rows), len(sites.families)
        self.t, self.h, self.constant = np.zeros((n, c)), np.zeros((n, c)), np.zeros((n, c))
        self.visits: list[tuple[int, Index, Potential]] = []
        for column in range(c):
            row = np.flatnonzero(~np.isnan(rows[:, column]))
            potential = sites.potential(column, sites.observed(rows, row, column))
            if sites.families[column] == "gaussian":
                self._settle(column, row, rows[row, column])
            elif not potential.log_concave:
                family = sites.families[column]
                raise ValueError(f"engine 'ep' needs log-concave likelihoods, which {family!r} has not: use 'gkl'")
            elif len(row):
                self.visits.append((column, row, potential))

    def _settle(self, column: int, row: Index, y: Array) -> None:
        """A Gaussian column is its own stand-in."""
        noise, error = float(self.sites.parameters[column]["scale"]) ** 2, y - self.sites.intercept[column]
        self.t[row, column], self.h[row, column] = 1.0 / noise, error / noise
        self.constant[row, column] = -0.5 * (LOG_2PI + np.log(noise) + error * error / noise)

    def run(self, tol: float) -> Array:
        """The EP evidence of every row."""
        self.refresh()
        active = np.ones(len(self.means), dtype=bool)
        for _ in range(SWEEPS):
            active &= self.sweep(active) >= tol
            if not active.any():
                break
        return self.refresh() + self.constant.sum(axis=1)

    def refresh(self) -> Array:
        """q ∝ N(0, I) ∏ exp(−½tx² + hx), r = Fᵀh; returns ½ log det S + ½ rᵀSr."""
        loading, k = self.sites.loading, self.means.shape[1]
        precision = np.eye(k) + np.einsum("nc,ck,cl->nkl", self.t, loading, loading, optimize=True)
        pull = self.h @ loading
        self.covs[:] = np.linalg.inv(precision)
        self.means[:] = np.einsum("nkl,nl->nk", self.covs, pull)
        return 0.5 * (np.einsum("nk,nk->n", pull, self.means) - np.linalg.slogdet(precision)[1])

    def sweep(self, active: NDArray[np.bool_]) -> Array:
        """Visit every column once; the largest change of a site's effect on q, row by row."""
        moved = np.zeros(len(self.means))
        for column, seen, potential in self.visits:
            kept = active[seen]
            row = seen[kept]
            if len(row):
                np.maximum.at(moved, row, self._visit(column, row, potential.select(kept)))
        return moved

    def _visit(self, column: int, row: Index, potential: Potential) -> Array:
        """Match the tilted moments of one column, with rank-one updates of q."""
        f, b = self.sites.loading[column], self.sites.intercept[column]
        pushed = self.covs[row] @ f
        centre, v = self.means[row] @ f, pushed @ f
        reached = v > UNREACHED
        v, old_t, old_h = np.where(reached, v, 1.0), self.t[row, column], self.h[row, column]
        cavity_v = 1.0 / (1.0 / v - np.where(reached, old_t, 0.0))
        cavity_m = np.where(reached, cavity_v * (centre / v - old_h), centre)
        log_z, mean, spread = potential.tilted_moments(b + cavity_m, np.where(reached, cavity_v, 0.0))
        spread = np.where(reached, spread, 1.0)
        t = np.where(reached, np.maximum(1.0 / spread - 1.0 / cavity_v, 0.0), 0.0)
        h = np.where(reached, (mean - b) / spread - cavity_m / cavity_v, 0.0)
        # the constant gives exp(−½tx² + hx) the mass Z under the cavity
        natural = cavity_m / cavity_v + h
        mass = 0.5 * np.log1p(t * cavity_v) - 0.5 * natural**2 / (1.0 / cavity_v + t) + 0.5 * cavity_m**2 / cavity_v
        self.constant[row, column] = log_z + np.where(reached, mass, 0.0)
        self.t[row, column], self.h[row, column] = t, h
        d_t, d_h = np.where(reached, t - old_t, 0.0), np.where(reached, h - old_h, 0.0)
        # S ← S − S f fᵀS Δt/(1 + Δt v), m ← m + S_new f (Δh − Δt fᵀm)
        grown = 1.0 + d_t * v
        self.means[row] += ((d_h - d_t * centre) / grown)[:, None] * pushed
        self.covs[row] -= (d_t / grown)[:, None, None] * pushed[:, :, None] * pushed[:, None, :]
        return np.maximum(np.abs(d_t) * v, np.abs(d_h) * np.sqrt(v))


def run_in_chunks(action: Callable[[slice], None], n: int) -> None:
    """action(slice) on consecutive chunks of range(n), as many at a time as there are threads."""
    chunks = [slice(low, min(low + CHUNK, n)) for low in range(0, n, CHUNK)]
    threads = min(thread_count(), len(chunks))
    if threads < 2:
        for chunk in chunks:
            action(chunk)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(action, chunks))


# --- Few latents: the posterior of every row on Gauss–Hermite nodes about its Gaussian.
#
# With w = m + Lz, LLᵀ = S, and nodes z_q of weights c_q for the standard normal density,
#
#     p(x) = ∫ p(x|w) p(w) dw ≈ Σ_q c_q p(x|w_q) p(w_q) / N(w_q | m, S)
#
# (Naylor and Smith 1982). Nothing is assumed of the posterior's shape, so that EM climbs the likelihood itself (Bock
# and Aitkin 1981): loadings of binary columns, which any Gaussian in the place of the posterior shrinks, are not.


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

        run_in_chunks(settle, len(rows))
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

        run_in_chunks(take, len(rows))
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
