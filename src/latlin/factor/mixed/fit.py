"""Approximate EM for mixed-data factor analysis: row posteriors, then columns by Newton, then the latents' own scale.

Source: Challis (2013), §2.2.2, (2.2.3)–(2.2.4) and A.3. With Gaussian KL the E-step climbs the bound (2.2.4) in
each row's Gaussian and the M-step in each column's parameters, so it never falls. Gaussian latents may also be moved
and scaled: with η and Λ the mean and covariance of the mixture of all rows' posteriors, b ← b + Fη, F ← FΛ^{½} leaves
every likelihood term and removes N·KL(N(η, Λ)‖N(0, I)) from the bound's loss (parameter expansion).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize, minimize_scalar

from latlin.factor.mixed.rows import (
    ClimbingRows,
    Expectation,
    LatentSample,
    NodeRows,
    PropagatingRows,
    RowEngine,
    select,
)
from latlin.factor.mixed.sites import ColumnSites, Index, exact_expectation, first_sites, local_expectation, shares
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Ascent, Measure, Rules, ascend
from latlin.numerics.progress import progress
from latlin.potentials.base import Potential
from latlin.potentials.checks import UnboundedExpectation
from latlin.potentials.student_t import StudentT

#: degrees of freedom of the latents beyond 2, from the least to the most
DF_EXCESS = (0.05, 200.0)
#: steps of quasi-Newton for the parameters of a family in one M-step
PARAMETER_STEPS = 5
#: how far they may move, on their free scale: where an expectation is too large for a number, less far
REACHES = (np.inf, 1.0, 0.1)


class MixedState(NamedTuple):
    """Row posteriors and column parameters."""

    means: Array
    covs: Array
    sites: ColumnSites
    #: degrees of freedom of the latents, where they are learnt
    df: float | None = None


@dataclass(frozen=True)
class MixedProblem:
    """The encoded data and the options: what stays fixed."""

    rows: Array
    families: tuple[str, ...]
    levels: Index
    engine: RowEngine
    expand: bool
    penalty: float
    noise_floor: float
    beside: tuple[int, ...] = ()

    def expect(self, state: MixedState, max_iter: int, tol: float) -> tuple[MixedState, Array]:
        """The E-step: better row posteriors, and the rows' bounds."""
        means, covs = state.means.copy(), state.covs.copy()
        values = self.engine_at(state).infer(self.rows, state.sites, means, covs, max_iter, tol)
        return state._replace(means=means, covs=covs), values

    def engine_at(self, state: MixedState) -> RowEngine:
        """The engine with the latents' density of a state."""
        if state.df is None:
            return self.engine
        assert isinstance(self.engine, ClimbingRows)  # others have Gaussian latents
        return replace(self.engine, latents=unit_student_t(state.df))

    def maximise(self, state: MixedState, max_iter: int = 2) -> MixedState:
        """The M-step: better parameters of every column."""
        old = state.sites
        loading, intercept, parameters = old.loading.copy(), old.intercept.copy(), list(old.parameters)
        latents = self._latents(state)
        for column in range(len(old.families)):
            seen = ~np.isnan(self.rows[latents.row, column])
            row, means, covs, weight = latents if seen.all() else select(latents, seen)
            potential = old.potential(column, old.observed(self.rows, row, column))
            ordered = old.families[column] == "ordinal"
            theta = np.append(old.loading[column], old.intercept[column])
            expect = getattr(self.engine, "expect", exact_expectation)
            own = ColumnSum(potential, means, covs, self.penalty, ordered, expect, weight)
            theta = fit_column(own, theta, max_iter)
            loading[column], intercept[column] = theta[:-1], theta[-1]
            if old.parameters[column]:
                m, v = project_rows(theta, means, covs)
                parameters[column] = fit_parameters(potential, m, v, self.noise_floor, weight)
        return state._replace(sites=ColumnSites(old.families, loading, intercept, tuple(parameters), old.beside))

    def _latents(self, state: MixedState) -> LatentSample:
        """What the columns are averaged over; those that depend on no latents yet say nothing about them."""
        if isinstance(self.engine, NodeRows) and state.sites.loading.any():
            return self.engine.sample(self.rows, state.sites, state.means, state.covs)
        return LatentSample(np.arange(len(self.rows)), state.means, state.covs)

    def step(self, state: MixedState) -> tuple[MixedState, Measure]:
        """E-step, M-step, expansion; the objective is that of the E-step."""
        found, values = self.expect(state, 2, 1e-4)
        new = self.maximise(found)
        if self.expand:
            new = expand_latents(new, self.penalty)
        if new.df is not None:
            new = new._replace(df=fit_df(new))
        return new, Measure(float(values.sum()) - self.price(state), farthest(state.sites, new.sites))

    def price(self, state: MixedState) -> float:
        """½λ‖F‖²."""
        return 0.5 * self.penalty * float(np.square(state.sites.loading).sum())


def farthest(old: ColumnSites, new: ColumnSites) -> float:
    """The largest change of a loading, or of what a family has learnt relative to one plus its size."""
    moved = [np.abs(new.loading - old.loading).max()]
    for before, after in zip(old.parameters, new.parameters, strict=True):
        moved += [np.max(np.abs(after[name] - before[name]) / (1.0 + np.abs(before[name]))) for name in before]
    return float(np.max(moved))


# --- The M-step of one column: Σ_i ⟨ψ(b + fᵀw_i)⟩ − ½λ‖f‖² over its own (f, b), the posteriors N(m_i, S_i) of the rows
# being held. The curvature is Σ_i γ_i⟨w̃w̃ᵀ⟩ with γ = −⟨ψ″⟩ and w̃ = (w, 1): the exact one but for the covariance of ψ″
# and w̃w̃ᵀ.


class Local(NamedTuple):
    """Value, gradient and minus the approximate Hessian."""

    value: float
    slope: Array
    curvature: Array


@dataclass(frozen=True)
class ColumnSum:
    """The sum that a column maximises; the cuts of an ordered column take the place of its intercept."""

    potential: Potential
    means: Array
    covs: Array
    penalty: float
    ordered: bool
    expect: Expectation = exact_expectation
    weight: Array | None = None

    def at(self, theta: Array) -> Local:
        """At theta = (f, b)."""
        f, k = theta[:-1], len(theta) - 1
        pushed = self.covs @ f
        m, v = self.means @ f + theta[-1], np.maximum(pushed @ f, 0.0)
        value, d_mean, d_var = self.expect(self.potential, m, v)
        if self.weight is not None:
            value, d_mean, d_var = self.weight * value, self.weight * d_mean, self.weight * d_var
        # γ ≥ 0: of sites that are not log-concave those that bend upwards are left out, so that steps rise
        weight = np.maximum(-2.0 * d_var, 0.0)
        slope, curvature = np.empty(k + 1), np.empty((k + 1, k + 1))
        slope[:k] = d_mean @ self.means + 2.0 * (d_var @ pushed) - self.penalty * f
        slope[k] = d_mean.sum()
        spread = (weight @ self.covs.reshape(len(weight), -1)).reshape(k, k)
        curvature[:k, :k] = (weight[:, None] * self.means).T @ self.means + spread + self.penalty * np.eye(k)
        curvature[:k, k] = curvature[k, :k] = weight @ self.means
        curvature[k, k] = weight.sum()
        if self.ordered:
            slope[k], curvature[k, :], curvature[:, k] = 0.0, 0.0, 0.0
            curvature[k, k] = 1.0
        return Local(float(value.sum()) - 0.5 * self.penalty * float(f @ f), slope, curvature)


def fit_column(column: ColumnSum, theta: Array, max_iter: int) -> Array:
    """Newton's method on (f, b), steps halved until the sum rises."""
    here = column.at(theta)
    for _ in range(max_iter):
        ridge = 1e-10 * (1.0 + np.diagonal(here.curvature))
        step = np.linalg.solve(here.curvature + np.diag(ridge), here.slope)
        for _ in range(25):
            there = column.at(theta + step)
            if there.value >= here.value:
                break
            step = 0.5 * step
        else:
            break
        decrement, theta, here = float(step @ here.slope), theta + step, there
        if decrement < 1e-8 * (1.0 + abs(here.value)):
            break
    return theta


def project_rows(theta: Array, means: Array, covs: Array) -> tuple[Array, Array]:
    """Mean and variance of b + fᵀw for every row."""
    f = theta[:-1]
    return means @ f + theta[-1], np.maximum((covs @ f) @ f, 0.0)


def fit_parameters(
    potential: Potential, m: Array, v: Array, floor: float, weight: Array | None = None
) -> dict[str, Any]:
    """Better values of what the family can learn (noise, dispersion, cuts), with η ~ N(m, v) held."""
    if potential.gaussian:
        # ⟨(y − η)²⟩; of log-normal columns y is the logarithm
        loc = potential.loc  # type: ignore[attr-defined]
        return {"scale": float(np.sqrt(max(float(np.average((loc - m) ** 2 + v, weights=weight)), floor)))}
    names, spans = list(potential.free), list(potential.free.values())
    values = [np.asarray(potential.value_of(name), dtype=float) for name in names]
    starts = [np.atleast_1d(span.to_free(value)) for span, value in zip(spans, values, strict=True)]
    ends = np.cumsum([len(start) for start in starts])[:-1]

    def summed(terms: Array) -> Array:
        return np.asarray(terms.sum(axis=-1) if weight is None else terms @ weight)

    def unpacked(t: Array) -> dict[str, Any]:
        parts = zip(names, spans, values, np.split(t, ends), strict=True)
        return {name: span.from_free(part.reshape(value.shape)) for name, span, value, part in parts}

    def loss(t: Array) -> tuple[float, Array]:
        found = unpacked(t)
        block = potential.replace(**found)
        slopes = [
            np.atleast_1d(span.chain(found[name], summed(block.expected_parameter_derivative(name, m, v))))
            for name, span in zip(names, spans, strict=True)
        ]
        return -float(summed(block.expected_log(m, v).value)), -np.concatenate(slopes)

    start = np.concatenate(starts)
    limits = [limit for span, part in zip(spans, starts, strict=True) for limit in span.bounds(len(part))]
    low = 0.5 * np.log(max(floor, 1e-300))
    if potential.location_scale and "scale" in names:
        place = sum(len(part) for part in starts[: names.index("scale")])
        limits[place] = (max(limits[place][0], low), limits[place][1])
    best = _minimised(loss, start, limits)
    return {name: _plain(value) for name, value in unpacked(best).items()}


def _minimised(loss: Callable[[Array], tuple[float, Array]], start: Array, limits: list[tuple[float, float]]) -> Array:
    """A better place than the start, or the start; near ones only where expectations are too large elsewhere."""
    for reach in REACHES:
        near = [(max(low, t - reach), min(high, t + reach)) for (low, high), t in zip(limits, start, strict=True)]
        options = {"maxiter": PARAMETER_STEPS, "maxls": 10}
        try:
            best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=near, options=options)
        except UnboundedExpectation:
            continue
        return np.asarray(best.x if np.isfinite(best.fun) and best.fun <= loss(start)[0] else start)
    return start


def _plain(value: Array) -> Any:
    return float(value) if np.ndim(value) == 0 else np.asarray(value)


# --- The shape of the latents


def unit_student_t(df: float) -> StudentT:
    """Student's t of unit variance."""
    return StudentT(df, 0.0, np.sqrt((df - 2.0) / df))


def fit_df(state: MixedState) -> float:
    """The degrees of freedom of highest Σ⟨log p(w)⟩, rows' posteriors being held, or the old ones."""
    assert state.df is not None
    m, v = state.means.ravel(), np.einsum("nkk->nk", state.covs).ravel()

    def loss(log_excess: float) -> float:
        return -float(unit_student_t(2.0 + float(np.exp(log_excess))).expected_log(m, v).value.sum())

    found = minimize_scalar(loss, bounds=np.log(DF_EXCESS), method="bounded")
    return 2.0 + float(np.exp(found.x)) if found.fun <= loss(float(np.log(state.df - 2.0))) else state.df


# --- EM


def expand_latents(state: MixedState, penalty: float) -> MixedState:
    """The latents moved and scaled to mean zero and unit covariance, if the penalised bound gains."""
    n, k = state.means.shape
    sites = state.sites
    eta = state.means.mean(axis=0)
    away = state.means - eta
    spread = away.T @ away / n + state.covs.mean(axis=0)
    root = np.linalg.cholesky(spread)
    loading = sites.loading @ root
    # N·KL(N(η, Λ)‖N(0, I))
    gain = 0.5 * n * (np.trace(spread) + eta @ eta - k - 2.0 * np.log(np.diagonal(root)).sum())
    if gain <= 0.5 * penalty * float(np.square(loading).sum() - np.square(sites.loading).sum()):
        return state
    shift = sites.loading @ eta
    ordered = np.array([family == "ordinal" for family in sites.families])
    inverse = solve_triangular(root, np.eye(k), lower=True)
    parameters = tuple(
        {"cuts": values["cuts"] - move} if family == "ordinal" else values
        for family, values, move in zip(sites.families, sites.parameters, shift, strict=True)
    )
    return MixedState(
        means=away @ inverse.T,
        covs=np.ascontiguousarray(inverse @ state.covs @ inverse.T),
        sites=sites._replace(
            loading=loading, intercept=np.where(ordered, 0.0, sites.intercept + shift), parameters=parameters
        ),
        df=state.df,
    )


def begin(problem: MixedProblem, rank: int, rng: np.random.Generator) -> MixedState:
    """Principal components of the standardised codes as latents, columns by Newton from their margins."""
    rows = shares(problem.rows, problem.families, problem.beside)
    n, c = rows.shape
    mean, sd = np.nanmean(rows, axis=0), np.nanstd(rows, axis=0)
    filled = np.where(np.isnan(rows), 0.0, (rows - mean) / np.maximum(sd, 1e-12))
    most = min(rank, n, c)
    left = np.linalg.svd(filled, full_matrices=False)[0][:, :most] * np.sqrt(n)
    latent = np.concatenate([left, rng.standard_normal((n, rank - most))], axis=1)
    state = MixedState(
        means=np.ascontiguousarray(0.8 * latent),
        covs=np.tile(0.36 * np.eye(rank), (n, 1, 1)),
        sites=first_sites(problem.rows, problem.families, problem.levels, rank, problem.beside),
    )
    return problem.maximise(state, 5)


def climb(
    problem: MixedProblem, rank: int, rules: Rules, rng: np.random.Generator, verbose: bool, df: float | None = None
) -> Ascent[MixedState]:
    """EM from principal components; the latents' degrees of freedom are learnt from `df` on."""
    with progress("mixed factor analysis, start", None, verbose) as bar:
        first = begin(problem, rank, rng)._replace(df=df)
        bar.advance("latents")
        start, _ = problem.expect(first, 20, 1e-4)
    return ascend(problem.step, start, rules, label="mixed factor analysis", verbose=verbose)


def infer_new_rows(
    engine: RowEngine, rows: Array, sites: ColumnSites, max_iter: int = 100, tol: float = 1e-8
) -> tuple[Array, Array, Array]:
    """Means, covariances and bounds of rows that were not seen before."""
    n, k = len(rows), sites.loading.shape[1]
    means, covs = np.zeros((n, k)), np.tile(np.eye(k), (n, 1, 1))
    return means, covs, engine.infer(rows, sites, means, covs, max_iter, tol)


def make_engine(name: str, latents: Potential) -> RowEngine:
    """The engine by its name; refuses pairs of engine and latents that do not go together."""
    if name == "gkl":
        return ClimbingRows(latents, 1.0, "lower bound", True)
    if name == "mean-field":
        return ClimbingRows(latents, 1.0, "lower bound", True, factorised=True)
    if name == "lvb":
        return ClimbingRows(latents, 1.0, "lower bound", True, expect=local_expectation)
    if name == "laplace" and latents.smooth:
        return ClimbingRows(latents, 0.0, "approximation", False)
    if name == "ep" and latents.gaussian:
        return PropagatingRows()
    if name == "quadrature" and latents.gaussian:
        return NodeRows(latents)
    raise ValueError(
        f"engine {name!r} does not go with these latents: 'gkl' goes with all, 'ep' and 'quadrature' with Gaussian ones"
    )
