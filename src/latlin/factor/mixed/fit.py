"""Approximate EM for mixed-data factor analysis: row posteriors, then columns by Newton, then the latents' own scale.

Source: Challis (2013), §2.2.2, (2.2.3)–(2.2.4) and A.3. With Gaussian KL the E-step climbs the bound (2.2.4) in
each row's Gaussian and the M-step in each column's parameters, so it never falls. Gaussian latents may also be moved
and scaled: with η and Λ the mean and covariance of the mixture of all rows' posteriors, b ← b + Fη, F ← FΛ^{½} leaves
every likelihood term and removes N·KL(N(η, Λ)‖N(0, I)) from the bound's loss (parameter expansion).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import logit

from latlin.factor.mixed.column_kernels import fit_columns
from latlin.factor.mixed.ep_kernels import ep_rows
from latlin.factor.mixed.kernels import BINARY, COUNT, GAUSSIAN, ORDINAL, Prior, Sites, fit_rows, in_threads, tables
from latlin.numerics.ascent import Ascent, Measure, Rules, ascend
from latlin.numerics.linalg import Array
from latlin.numerics.progress import progress

#: rows a task of a thread
CHUNK = 256


class RowEngine(Protocol):
    """A way to approximate the posterior of every row's latents."""

    @property
    def kind(self) -> str: ...

    @property
    def monotone(self) -> bool: ...

    def infer(self, rows: Array, sites: Sites, means: Array, covs: Array, max_iter: int, tol: float) -> Array:
        """Improve means and covariances in place; the evidence, or a bound on it, of every row."""


@dataclass(frozen=True)
class ClimbingRows:
    """Gaussian KL (spread 1) or Laplace (spread 0)."""

    prior: Prior
    spread: float
    kind: str
    monotone: bool

    def infer(self, rows: Array, sites: Sites, means: Array, covs: Array, max_iter: int, tol: float) -> Array:
        values = np.empty(len(rows))
        fixed = (rows, sites, self.prior, tables(), self.spread, max_iter, tol, means, covs, values)
        in_threads(lambda low, high: fit_rows(*fixed, low, high), len(rows), CHUNK)
        return values


@dataclass(frozen=True)
class PropagatingRows:
    """Expectation propagation, from flat sites every time."""

    kind: str = "approximation"
    monotone: bool = False

    def infer(self, rows: Array, sites: Sites, means: Array, covs: Array, max_iter: int, tol: float) -> Array:
        values = np.empty(len(rows))
        fixed = (rows, sites, tables(), 50, max(tol, 1e-6), means, covs, values)
        in_threads(lambda low, high: ep_rows(*fixed, low, high), len(rows), CHUNK)
        return values


class MixedState(NamedTuple):
    """Row posteriors and column parameters."""

    means: Array
    covs: Array
    loading: Array
    intercept: Array
    noise: Array
    cuts: Array


@dataclass(frozen=True)
class Problem:
    """The encoded data and the options: what stays fixed."""

    rows: Array
    kinds: NDArray[np.int64]
    levels: NDArray[np.int64]
    engine: RowEngine
    expand: bool
    penalty: float
    noise_floor: float

    def sites(self, state: MixedState) -> Sites:
        return Sites(self.kinds, state.loading, state.intercept, state.noise, state.cuts)

    def expect(self, state: MixedState, max_iter: int, tol: float) -> tuple[MixedState, Array]:
        """The E-step: better row posteriors, and the rows' bounds."""
        means, covs = state.means.copy(), state.covs.copy()
        values = self.engine.infer(self.rows, self.sites(state), means, covs, max_iter, tol)
        return state._replace(means=means, covs=covs), values

    def maximise(self, state: MixedState, max_iter: int = 2) -> MixedState:
        """The M-step: better parameters of every column."""
        new = state._replace(
            **{name: getattr(state, name).copy() for name in ("loading", "intercept", "noise", "cuts")}
        )
        columns = np.ascontiguousarray(self.rows.T)
        options = (self.penalty, self.noise_floor, tables(), max_iter)
        fixed: tuple[Any, ...] = (columns, self.sites(new), self.levels, state.means, state.covs, *options)
        fit: Any = fit_columns
        in_threads(lambda low, high: fit(*fixed, low, high), len(columns), 1)
        return new

    def step(self, state: MixedState) -> tuple[MixedState, Measure]:
        """E-step, M-step, expansion; the objective is that of the E-step."""
        found, values = self.expect(state, 2, 1e-4)
        new = self.maximise(found)
        if self.expand:
            new = expanded(new, self.kinds, self.penalty)
        change = float(np.abs(new.loading - state.loading).max())
        return new, Measure(float(values.sum()) - self.price(state), change)

    def price(self, state: MixedState) -> float:
        """½λ‖F‖²."""
        return 0.5 * self.penalty * float(np.square(state.loading).sum())


def expanded(state: MixedState, kinds: NDArray[np.int64], penalty: float) -> MixedState:
    """The latents moved and scaled to mean zero and unit covariance, if the penalised bound gains."""
    n, k = state.means.shape
    eta = state.means.mean(axis=0)
    away = state.means - eta
    spread = away.T @ away / n + state.covs.mean(axis=0)
    root = np.linalg.cholesky(spread)
    loading = state.loading @ root
    # N·KL(N(η, Λ)‖N(0, I))
    gain = 0.5 * n * (np.trace(spread) + eta @ eta - k - 2.0 * np.log(np.diagonal(root)).sum())
    if gain <= 0.5 * penalty * float(np.square(loading).sum() - np.square(state.loading).sum()):
        return state
    shift = state.loading @ eta
    ordinal = kinds == ORDINAL
    inverse = solve_triangular(root, np.eye(k), lower=True)
    return state._replace(
        means=away @ inverse.T,
        covs=np.ascontiguousarray(inverse @ state.covs @ inverse.T),
        loading=loading,
        intercept=np.where(ordinal, 0.0, state.intercept + shift),
        cuts=np.where(ordinal[:, None], state.cuts - shift[:, None], state.cuts),
    )


def begin(problem: Problem, rank: int, rng: np.random.Generator) -> MixedState:
    """Principal components of the standardised codes as latents, columns by Newton from their margins."""
    rows, (n, c) = problem.rows, problem.rows.shape
    mean, sd = np.nanmean(rows, axis=0), np.nanstd(rows, axis=0)
    filled = np.where(np.isnan(rows), 0.0, (rows - mean) / np.maximum(sd, 1e-12))
    most = min(rank, n, c)
    left = np.linalg.svd(filled, full_matrices=False)[0][:, :most] * np.sqrt(n)
    latent = np.concatenate([left, rng.standard_normal((n, rank - most))], axis=1)
    state = MixedState(
        means=np.ascontiguousarray(0.8 * latent),
        covs=np.tile(0.36 * np.eye(rank), (n, 1, 1)),
        loading=np.zeros((c, rank)),
        intercept=_margins(problem.kinds, mean),
        noise=np.where(problem.kinds == 0, sd**2, 1.0),
        cuts=_first_cuts(rows, problem.levels),
    )
    return problem.maximise(state, 5)


def _margins(kinds: NDArray[np.int64], mean: Array) -> Array:
    """Intercepts that give every column its mean without any latents."""
    inside = np.clip(mean, 1e-3, 1.0 - 1e-3)
    by_kind = {BINARY: logit(inside), COUNT: np.log(np.maximum(mean, 1e-3)), ORDINAL: np.zeros_like(mean)}
    return np.select([kinds == kind for kind in by_kind], list(by_kind.values()), 0.0)


def _first_cuts(rows: Array, levels: NDArray[np.int64]) -> Array:
    """−∞, the logits of the cumulative shares, ∞ …; a row for every column."""
    cuts = np.full((len(levels), max(int(levels.max()), 1) + 1), np.inf)
    cuts[:, 0] = -np.inf
    for column in np.flatnonzero(levels):
        seen = rows[:, column][~np.isnan(rows[:, column])]
        count = np.bincount(seen.astype(int), minlength=levels[column]) + 0.5
        cuts[column, 1 : levels[column]] = logit(np.cumsum(count)[:-1] / count.sum())
    return cuts


def climb(problem: Problem, rank: int, rules: Rules, rng: np.random.Generator, verbose: bool) -> Ascent[MixedState]:
    """EM from principal components."""
    with progress("mixed factor analysis, start", None, verbose) as bar:
        first = begin(problem, rank, rng)
        bar.advance("latents")
        start, _ = problem.expect(first, 20, 1e-4)
    return ascend(problem.step, start, rules, label="mixed factor analysis", verbose=verbose)


def cold_posterior(
    engine: RowEngine, rows: Array, sites: Sites, max_iter: int = 100, tol: float = 1e-8
) -> tuple[Array, Array, Array]:
    """Means, covariances and bounds of rows that were not seen before."""
    n, k = len(rows), sites.loading.shape[1]
    means, covs = np.zeros((n, k)), np.tile(np.eye(k), (n, 1, 1))
    # copies: for read-only arrays, as a memory map gives them, everything would be compiled anew
    copies: list[Any] = [np.array(part) for part in sites]
    return means, covs, engine.infer(rows, Sites(*copies), means, covs, max_iter, tol)


def make_engine(name: str, prior: Prior) -> RowEngine:
    """The engine by its name; refuses pairs of engine and latents that do not go together."""
    if name == "gkl":
        return ClimbingRows(prior, 1.0, "lower bound", True)
    if name == "laplace" and prior.kind != 1:
        return ClimbingRows(prior, 0.0, "approximation", False)
    if name == "ep" and prior.kind == GAUSSIAN:
        return PropagatingRows()
    raise ValueError(f"engine {name!r} does not go with these latents: 'gkl' goes with all, 'ep' with Gaussian ones")
