"""The sample covariance S as an operator: a matrix when d is moderate, the centred rows when it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, eigh
from scipy.sparse.linalg import LinearOperator, eigsh

from latlin.factor.fit import FactorFit
from latlin.numerics.arrays import LOG_2PI
from latlin.numerics.ascent import Checkpoint, Measure, Rules, ascend
from latlin.numerics.linalg import Array, LowRankNormal, symmetrise

DENSE_UP_TO = 4000
FULL_UP_TO = 200
PIECE = 256


class SampleMoments(Protocol):
    """N observations of d features with covariance S (divided by N)."""

    @property
    def n(self) -> int:
        """N."""

    @property
    def variance(self) -> Array:
        """diag(S)."""

    def times(self, b: Array) -> Array:
        """S b for a d×K matrix."""

    def top(self, scale: Array, rank: int, start: Array | None) -> tuple[Array, Array]:
        """The `rank` largest eigenvalues (rising) and eigenvectors of diag(scale) S diag(scale)."""


class DenseMoments(NamedTuple):
    """S in memory."""

    n: int
    matrix: Array

    @property
    def variance(self) -> Array:
        return np.diagonal(self.matrix)

    def times(self, b: Array) -> Array:
        return blas.dsymm(1.0, self.matrix, b)

    def top(self, scale: Array, rank: int, start: Array | None) -> tuple[Array, Array]:
        dim = len(scale)
        scaled = self.matrix * scale[:, None] * scale
        if dim <= FULL_UP_TO or 4 * rank > dim:
            return eigh(scaled, subset_by_index=[dim - rank, dim - 1])
        fortran = scaled.T
        return _lanczos(dim, lambda v: blas.dsymv(1.0, fortran, v), rank, start)


class RowMoments(NamedTuple):
    """The centred rows in memory; S is never formed."""

    rows: Array

    @property
    def n(self) -> int:
        return len(self.rows)

    @property
    def variance(self) -> Array:
        return np.einsum("nd,nd->d", self.rows, self.rows) / self.n

    def times(self, b: Array) -> Array:
        return self.rows.T @ (self.rows @ b) / self.n

    def top(self, scale: Array, rank: int, start: Array | None) -> tuple[Array, Array]:
        return leading_eigenpairs(self, scale, rank, start)


def leading_eigenpairs(s: SampleMoments, scale: Array, rank: int, start: Array | None) -> tuple[Array, Array]:
    """The largest eigenpairs of diag(scale) S diag(scale) from products with S alone."""

    def product(v: Array) -> Array:
        return scale * s.times(scale * v)

    return _lanczos(len(scale), product, rank, start)


def _lanczos(dim: int, product: object, rank: int, start: Array | None) -> tuple[Array, Array]:
    operator = LinearOperator((dim, dim), matvec=product, dtype=np.float64)
    v0 = np.ones(dim) if start is None else start
    basis = min(dim, max(2 * rank + 1, 20))
    values, vectors = eigsh(operator, rank, which="LA", v0=v0, ncv=basis, tol=1e-12)
    order = np.argsort(values)
    return values[order], vectors[:, order]


def mean_and_variance(rows: np.ndarray) -> tuple[Array, Array]:
    """Mean and variance of each column in one pass, by blocks of rows that stay in cache.

    Blocks are merged by Chan's update: M₂ ← M₂ + M₂,block + δ²·n·b/(n+b), so that no digits are lost to a large mean.

    Examples
    --------
    >>> mean, variance = mean_and_variance(np.array([[1.0, 5.0], [3.0, 5.0]]))
    >>> mean.tolist(), variance.tolist()
    ([2.0, 5.0], [1.0, 0.0])
    """
    mean, squares = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    for seen in range(0, len(rows), PIECE):
        block = rows[seen : seen + PIECE].astype(np.float64)
        b, centre = len(block), block.mean(axis=0)
        block -= centre
        difference = centre - mean
        squares += np.einsum("nd,nd->d", block, block) + difference**2 * (seen * b / (seen + b))
        mean += difference * (b / (seen + b))
    return mean, squares / len(rows)


def moments(rows: Array, mean: Array) -> SampleMoments:
    """S of the rows about their mean, by blocks that stay in cache."""
    n, dim = rows.shape
    if dim > DENSE_UP_TO:
        return RowMoments(rows - mean)
    total = np.zeros((dim, dim), order="F")
    for start in range(0, n, 1024):
        part = rows[start : start + 1024] - mean
        total = blas.dsyrk(1.0 / n, part.T, beta=1.0, c=total, overwrite_c=1)
    return DenseMoments(n, symmetrise(total))


# --- Factor analysis when entries are missing: exact posteriors given what was observed, and EM on them.
#
# Given the observed entries O of a row, the latents have precision M_n = I + Σ_{i∈O} f_i f_iᵀ/ψ_i and mean
# M_n⁻¹ Σ_{i∈O} f_i (x_i − c_i)/ψ_i (Challis (2013), eq. 2.1.12). With a mask O as a matrix of zeros and ones
# the sums over entries are matrix products, so a block of rows costs three of them.
#
# EM treats only what was observed as data. Each feature is regressed on (h, 1), with the second moments summed over
# the rows that observe it; then the latents' mean η and covariance Λ are fitted too and folded in
# (c ← c + Fη, F ← FΛ^{½}). The observed-data likelihood never falls.


INCOMPLETE_PIECE = 2048


class LatentPosterior(NamedTuple):
    """Per row: latent means (n, K), covariances (n, K, K), log p(observed), squared distance, observed count."""

    means: Array
    covariances: Array
    log_density: Array
    distance: Array
    observed: Array


def posterior(density: LowRankNormal, rows: Array) -> LatentPosterior:
    """Exact posterior of the latents given the entries of `rows` that are not NaN."""
    mean, f, psi = density
    rank, dim = f.shape
    seen = ~np.isnan(rows)
    mask = seen.astype(np.float64)
    d = np.where(seen, rows - mean, 0.0)
    outer = (f.T[:, :, None] * f.T[:, None, :]).reshape(dim, rank * rank) / psi[:, None]
    precision = np.eye(rank) + (mask @ outer).reshape(-1, rank, rank)
    covariance = np.linalg.inv(precision)
    projected = d @ (f / psi).T
    means = np.einsum("nkl,nl->nk", covariance, projected)
    distance = np.maximum((d * d) @ (1.0 / psi) - np.einsum("nk,nk->n", projected, means), 0.0)
    count = mask.sum(axis=1)
    log_det = np.linalg.slogdet(precision)[1] + mask @ np.log(psi)
    return LatentPosterior(means, covariance, -0.5 * (count * LOG_2PI + log_det + distance), distance, count)


class FactorParameters(NamedTuple):
    """Loadings are K×d."""

    mean: Array
    loadings: Array
    noise: Array


class MissingState(NamedTuple):
    """The parameters, and the sums over rows that belong to them, with h̃ = (h, 1).

    log-likelihood; E[h̃h̃ᵀ], x E[h̃] and x² over the rows that observe a feature; E[h̃h̃ᵀ] over all rows.
    """

    mean: Array
    loadings: Array
    noise: Array
    log_likelihood: float
    second: Array
    cross: Array
    square: Array
    latent: Array


class Units(NamedTuple):
    """x = centre + scale · z: the features' own units, so that squares lose no digits to a large mean."""

    centre: Array
    scale: Array

    @classmethod
    def of(cls, mean: Array, variance: Array, isotropic: bool) -> Units:
        sd = np.sqrt(variance)
        return cls(mean, np.full_like(sd, np.sqrt(np.mean(variance))) if isotropic else sd)


def expected_sums(at: FactorParameters, rows: NDArray[Any], units: Units) -> tuple[Any, ...]:
    """The sums of `MissingState` at these parameters, over `rows` brought to `units`."""
    rank, dim = at.loadings.shape
    k = rank + 1
    total = [0.0, np.zeros((dim, k * k)), np.zeros((dim, k)), np.zeros(dim), np.zeros((k, k))]
    for start in range(0, len(rows), INCOMPLETE_PIECE):
        x = (rows[start : start + INCOMPLETE_PIECE] - units.centre) / units.scale
        post = posterior(LowRankNormal(*at), x)
        mask = ~np.isnan(x)
        filled = np.where(mask, x, 0.0)
        h = np.concatenate([post.means, np.ones((len(x), 1))], axis=1)
        second = h[:, :, None] * h[:, None, :]
        second[:, :rank, :rank] += post.covariances
        parts = (
            float(post.log_density.sum()),
            mask.T.astype(np.float64) @ second.reshape(len(x), -1),
            filled.T @ h,
            (filled * filled).sum(axis=0),
            second.sum(axis=0),
        )
        total = [old + new for old, new in zip(total, parts, strict=True)]
    return tuple(total)


def _maximise(sums: MissingState, n: int, counts: Array, isotropic: bool, floor: Array) -> FactorParameters:
    dim, k = sums.cross.shape
    second = sums.second.reshape(dim, k, k)
    # (f_i, c_i) = (Σ x h̃ᵀ)(Σ E[h̃h̃ᵀ])⁻¹;  ψ_i = (Σx² − (f_i, c_i)·Σ x h̃)/N_i
    weights = np.linalg.solve(second, sums.cross[:, :, None])[:, :, 0]
    residual = np.maximum(sums.square - np.einsum("dk,dk->d", weights, sums.cross), 0.0)
    noise = np.full(dim, residual.sum() / counts.sum()) if isotropic else residual / counts
    eta = sums.latent[:-1, -1] / n
    spread = sums.latent[:-1, :-1] / n - np.outer(eta, eta)
    f, mean = weights[:, :-1], weights[:, -1]
    return FactorParameters(mean + f @ eta, (f @ np.linalg.cholesky(spread)).T, np.maximum(noise, floor))


def _extrapolate(
    before: MissingState, once: MissingState, twice: FactorParameters, floor: float
) -> FactorParameters | None:
    """Where EM leads if steps shrink as the last two did (Varadhan and Roland (2008), scheme S3); None if nowhere."""
    points = [np.concatenate([at.mean, at.loadings.ravel(), at.noise]) for at in (before, once, twice)]
    # r = θ₁ − θ₀,  v = θ₂ − 2θ₁ + θ₀,  α = −‖r‖/‖v‖,  θ = θ₀ − 2αr + α²v
    r, v = points[1] - points[0], points[2] - 2.0 * points[1] + points[0]
    if not np.linalg.norm(r) > np.linalg.norm(v) > 0.0:
        return None
    alpha = -float(np.linalg.norm(r) / np.linalg.norm(v))
    mean, loadings, noise = np.split(points[0] - 2.0 * alpha * r + alpha**2 * v, [len(before.mean), -len(before.noise)])
    # a noise that is next to nothing grows slowly by EM: no leap may bring it there at once
    lowest = np.maximum(0.5 * twice.noise, floor)
    return FactorParameters(mean, loadings.reshape(before.loadings.shape), np.maximum(noise, lowest))


def missing_fit(rows: Array, rank: int, isotropic: bool, floor: float, rules: Rules, verbose: bool) -> FactorFit:
    """EM on the observed entries of `rows` (NaN marks a missing one)."""
    units = Units.of(np.nanmean(rows, axis=0), np.nanvar(rows, axis=0), isotropic)
    counts = (~np.isnan(rows)).sum(axis=0).astype(np.float64)
    z = (rows - units.centre) / units.scale
    filled = np.where(np.isnan(z), 0.0, z)
    start = principal_start(filled.T @ filled / len(z), rank)

    def expect(at: FactorParameters) -> tuple[Any, ...]:
        return expected_sums(at, rows, units)

    return climb_missing(expect, start, len(z), counts, units, isotropic, floor, rules, verbose)


def climb_missing(
    expect: Callable[[FactorParameters], tuple[Any, ...]],
    start: FactorParameters,
    n: int,
    counts: Array,
    units: Units,
    isotropic: bool,
    floor: float,
    rules: Rules,
    verbose: bool,
    checkpoint: Checkpoint | None = None,
) -> FactorFit:
    """EM from `start`, two steps and a leap at a time; `expect` gives the sums over all rows in one pass."""
    least = np.full(len(counts), floor)

    def improve(state: MissingState) -> MissingState:
        new = _maximise(state, n, counts, isotropic, least)
        return MissingState(*new, *expect(new))

    def step(state: MissingState) -> tuple[MissingState, Measure]:
        once = improve(state)
        ahead = _extrapolate(state, once, _maximise(once, n, counts, isotropic, least), floor)
        jumped = once if ahead is None else MissingState(*ahead, *expect(ahead))
        begin = jumped if jumped.log_likelihood >= once.log_likelihood else once
        new = improve(begin)
        return new, Measure(new.log_likelihood, float(np.abs(new.noise - begin.noise).max()))

    first = MissingState(*start, *expect(start))
    label = "factor analysis (em, missing)"

    def evaluate(state: MissingState) -> float:
        at = FactorParameters(*state[:3])
        return MissingState(*at, *expect(at)).log_likelihood

    climb = ascend(step, first, rules, label=label, verbose=verbose, checkpoint=checkpoint, evaluate=evaluate)
    c, f, psi = climb.state[:3]
    centre, scale = units
    trace = climb.trace - float(counts @ np.log(scale))
    return FactorFit(centre + scale * c, f * scale, psi * scale**2, trace, climb.converged, climb.n_iter, climb.message)


def principal_start(second: Array, rank: int) -> FactorParameters:
    """Principal axes of E[z zᵀ], missing entries at their means."""
    values, vectors = np.linalg.eigh(second)
    rest = values[:-rank].mean()
    gains = np.sqrt(np.maximum(values[-rank:] - rest, 0.05 * np.abs(values[-rank:])))
    loadings = (vectors[:, -rank:] * gains).T
    noise = np.maximum(1.0 - (loadings**2).sum(axis=0), 0.1)
    return FactorParameters(np.zeros(len(second)), loadings, noise)
