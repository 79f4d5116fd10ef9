"""Factor analysis when entries are missing: exact posteriors given what was observed, and EM on them.

Given the observed entries O of a row, the latents have precision M_n = I + Σ_{i∈O} f_i f_iᵀ/ψ_i and mean
M_n⁻¹ Σ_{i∈O} f_i (x_i − c_i)/ψ_i (002_71af9439e55c646f (2.1.12)). With a mask O as a matrix of zeros and ones
the sums over entries are matrix products, so a block of rows costs three of them.

EM treats only what was observed as data. Each feature is regressed on (h, 1), with the second moments summed over
the rows that observe it; then the latents' mean η and covariance Λ are fitted too and folded in
(c ← c + Fη, F ← FΛ^{½}). The observed-data likelihood never falls.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latlin.factor._fit import Fit
from latlin.numerics.ascent import Measure, Rules, ascend
from latlin.numerics.linalg import Array
from latlin.numerics.low_rank import LOG_2PI, LowRankNormal

BLOCK = 2048


class Posterior(NamedTuple):
    """Per row: latent means (n, K), covariances (n, K, K), log p(observed), squared distance, observed count."""

    means: Array
    covariances: Array
    log_density: Array
    distance: Array
    observed: Array


def posterior(density: LowRankNormal, rows: Array) -> Posterior:
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
    return Posterior(means, covariance, -0.5 * (count * LOG_2PI + log_det + distance), distance, count)


class MissingState(NamedTuple):
    """The parameters, loadings K×d."""

    mean: Array
    loadings: Array
    noise: Array


class _Sums(NamedTuple):
    """Σ over rows: log-likelihood, E[h̃h̃ᵀ] and x E[h̃] and x² per feature, E[h̃h̃ᵀ] over all rows; h̃ = (h, 1)."""

    log_likelihood: float
    second: Array
    cross: Array
    square: Array
    latent: Array


def _expect(state: MissingState, rows: Array) -> _Sums:
    rank, dim = state.loadings.shape
    k = rank + 1
    total = [0.0, np.zeros((dim, k * k)), np.zeros((dim, k)), np.zeros(dim), np.zeros((k, k))]
    for start in range(0, len(rows), BLOCK):
        x = rows[start : start + BLOCK]
        post = posterior(LowRankNormal(*state), x)
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
    return _Sums(*total)  # type: ignore[arg-type]


def _maximise(sums: _Sums, n: int, counts: Array, isotropic: bool, floor: Array) -> MissingState:
    dim, k = sums.cross.shape
    second = sums.second.reshape(dim, k, k)
    # (f_i, c_i) = (Σ x h̃ᵀ)(Σ E[h̃h̃ᵀ])⁻¹;  ψ_i = (Σx² − (f_i, c_i)·Σ x h̃)/N_i
    weights = np.linalg.solve(second, sums.cross[:, :, None])[:, :, 0]
    residual = np.maximum(sums.square - np.einsum("dk,dk->d", weights, sums.cross), 0.0)
    noise = np.full(dim, residual.sum() / counts.sum()) if isotropic else residual / counts
    eta = sums.latent[:-1, -1] / n
    spread = sums.latent[:-1, :-1] / n - np.outer(eta, eta)
    f, mean = weights[:, :-1], weights[:, -1]
    return MissingState(mean + f @ eta, (f @ np.linalg.cholesky(spread)).T, np.maximum(noise, floor))


def missing_fit(rows: Array, rank: int, isotropic: bool, floor: float, rules: Rules, verbose: bool) -> Fit:
    """EM on the observed entries of `rows` (NaN marks a missing one)."""
    mean, variance = np.nanmean(rows, axis=0), np.nanvar(rows, axis=0)
    counts = (~np.isnan(rows)).sum(axis=0).astype(np.float64)
    # rows in units of their features, so that squares lose no digits to a large mean
    sd = np.sqrt(variance)
    scale = np.full_like(sd, np.sqrt(np.mean(variance))) if isotropic else sd
    z = (rows - mean) / scale
    least = np.full(len(mean), floor)

    def step(state: MissingState) -> tuple[MissingState, Measure]:
        new = _maximise(_expect(state, z), len(z), counts, isotropic, least)
        change = float(np.abs(new.noise - state.noise).max())
        value = sum(
            float(posterior(LowRankNormal(*new), z[i : i + BLOCK]).log_density.sum()) for i in range(0, len(z), BLOCK)
        )
        return new, Measure(value, change)

    climb = ascend(step, _start(z, rank), rules, label="factor analysis (em, missing)", verbose=verbose)
    c, f, psi = climb.state
    shift = float(counts @ np.log(scale))
    return Fit(
        mean + scale * c, f * scale, psi * scale**2, climb.trace - shift, climb.converged, climb.n_iter, climb.message
    )


def _start(z: Array, rank: int) -> MissingState:
    """Principal axes of the rows with missing entries at their means."""
    filled = np.where(np.isnan(z), 0.0, z)
    values, vectors = np.linalg.eigh(filled.T @ filled / len(z))
    rest = values[:-rank].mean()
    gains = np.sqrt(np.maximum(values[-rank:] - rest, 0.05 * np.abs(values[-rank:])))
    loadings = (vectors[:, -rank:] * gains).T
    noise = np.maximum(1.0 - (loadings**2).sum(axis=0), 0.1)
    return MissingState(np.zeros(z.shape[1]), loadings, noise)
