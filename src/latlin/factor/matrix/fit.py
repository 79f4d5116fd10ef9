"""Two factors in turn: rows given columns, columns given rows, then everything that has a best value in closed form.

The latents of a row are (u, b, 1), those of a column (v, 1, c), so that z = uᵀv + b + c is one product; the ones have
no spread. Priors are u ~ N(0, I), v_k ~ N(0, r_k), b ~ N(0, τ²), c ~ N(μ, σ²). With the energies of
`latlin.factor.matrix.energies` and q a product of Gaussians, Challis (2013), eq. 4.6.2,

    bound = Σ⟨ψ⟩ − Σ KL(q(u)‖p(u)) − Σ KL(q(v)‖p(v)).

A side moves by P ← (1 − ρ)P + ρΓ, m ← m + ρP⁻¹g with ρ = 1, halved for a row until its own part of the bound rises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.optimize import minimize

from latlin.factor.matrix.energies import Cells, Energy, EnergyPull, Side, energy_of, product_moments
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Ascent, Measure, Rules, ascend
from latlin.potentials.base import Potential
from latlin.potentials.families import Family

#: halvings of a step
HALVINGS = 30
#: steps of quasi-Newton for the parameters of the likelihood in one sweep
PARAMETER_STEPS = 3
#: least variance of a prior, and of the noise of standardised cells
LEAST = 1e-10
NOISE_FLOOR = 1e-4
#: the spread that the latents start with
FIRST_SPREAD = 1e-2


class SidePrior(NamedTuple):
    """Means and variances of the free coordinates of a side."""

    mean: Array
    variance: Array


class MatrixState(NamedTuple):
    """Both sides, their priors, the parameters of the likelihood, and the bound."""

    rows: Side
    columns: Side
    row_prior: SidePrior
    column_prior: SidePrior
    parameters: dict[str, Any]
    bound: float


@dataclass(frozen=True)
class MatrixProblem:
    """The observed cells and the options: what stays fixed."""

    cells: Cells
    values: Array
    family: Family
    shape: tuple[int, int]
    rank: int
    below: bool

    def potential(self, parameters: dict[str, Any]) -> Potential:
        return self.family.potential(self.values, parameters)

    def energy(self, parameters: dict[str, Any]) -> Energy:
        return energy_of(self.potential(parameters), self.below)

    def step(self, state: MatrixState) -> tuple[MatrixState, Measure]:
        """Rows, columns, rotation, priors, likelihood; every part raises the bound."""
        energy = self.energy(state.parameters)
        rows, _ = improve(energy, self.cells, state.rows, state.columns, state.row_prior, row_free(self.rank))
        columns, _ = improve(energy, self.cells.turned, state.columns, rows, state.column_prior, column_free(self.rank))
        rows, columns = rotate(rows, columns, self.rank)
        row_prior = learn_row_prior(rows, self.rank)
        column_prior = learn_column_prior(columns, self.rank)
        parameters = learn_likelihood(self, state.parameters, rows, columns)
        new = MatrixState(rows, columns, row_prior, column_prior, parameters, 0.0)
        new = new._replace(bound=self.bound(new))
        return new, Measure(new.bound, (new.bound - state.bound) / max(len(self.values), 1))

    def bound(self, state: MatrixState) -> float:
        """The bound, every constant included."""
        energies = self.energy(state.parameters).values(self.cells, state.rows, state.columns)
        rows = negative_divergence(state.rows, state.row_prior, row_free(self.rank))
        columns = negative_divergence(state.columns, state.column_prior, column_free(self.rank))
        return float(energies.sum() + rows.sum() + columns.sum())


# --- One side


def row_free(rank: int) -> list[int]:
    """The coordinates of a row that are not the constant: u and b."""
    return [*range(rank), rank]


def column_free(rank: int) -> list[int]:
    """The coordinates of a column that are not the constant: v and c."""
    return [*range(rank), rank + 1]


def negative_divergence(side: Side, prior: SidePrior, free: list[int]) -> Array:
    """−KL(q‖p) of every row: −½ Σ(log τ + (S_kk + (m_k − μ_k)²)/τ − 1) + ½ log det S."""
    mean, cov = side.mean[:, free], side.cov[np.ix_(range(len(side.cov)), free, free)]
    spread = np.einsum("nkk->nk", cov) + (mean - prior.mean) ** 2
    loss = np.log(prior.variance) + spread / prior.variance - 1.0
    return np.asarray(0.5 * (np.linalg.slogdet(cov)[1] - loss.sum(axis=1)))


def improve(
    energy: Energy, cells: Cells, side: Side, other: Side, prior: SidePrior, free: list[int]
) -> tuple[Side, Array]:
    """One natural-gradient step of every row of a side, and the rows' parts of the bound."""
    block = np.ix_(range(len(side.cov)), free, free)
    here = energy.pull(cells, side, other)
    value = here.value + negative_divergence(side, prior, free)
    precision = np.linalg.inv(side.cov[block])
    target, slope = natural_gradient(here, side, prior, free)
    mean, cov = side.mean.copy(), side.cov.copy()
    rho, pending = np.ones(len(value)), np.ones(len(value), dtype=bool)
    for _ in range(HALVINGS):
        share = rho[:, None, None]
        wanted = (1.0 - share) * precision + share * target
        proper = np.linalg.eigvalsh(wanted)[:, 0] > 0.0
        wanted[~proper] = precision[~proper]
        spread = np.linalg.inv(wanted)
        moved, turned = mean.copy(), cov.copy()
        moved[:, free] = np.where(
            pending[:, None], side.mean[:, free] + rho[:, None] * np.einsum("nkl,nl->nk", spread, slope), mean[:, free]
        )
        turned[block] = np.where(pending[:, None, None], 0.5 * (spread + spread.transpose(0, 2, 1)), cov[block])
        trial = Side(moved, turned)
        sums = np.bincount(cells.row, energy.values(cells, trial, other), len(value))
        reached = sums + negative_divergence(trial, prior, free)
        rises = pending & proper & (reached >= value - 1e-12 * np.abs(value))
        mean[rises], cov[rises], value[rises] = moved[rises], turned[rises], reached[rises]
        pending &= ~rises
        rho = np.where(pending, 0.5 * rho, rho)
        if not pending.any():
            break
    return Side(mean, cov), value


def natural_gradient(pull: EnergyPull, side: Side, prior: SidePrior, free: list[int]) -> tuple[Array, Array]:
    """The precision that the bound asks for, and its slope in the mean."""
    target = pull.precision[np.ix_(range(len(side.cov)), free, free)] + np.diag(1.0 / prior.variance)
    return target, pull.slope[:, free] - (side.mean[:, free] - prior.mean) / prior.variance


# --- What has a best value in closed form


def rotate(rows: Side, columns: Side, rank: int) -> tuple[Side, Side]:
    """u ← T⁻¹u and v ← Tᵀv, which leaves uᵀv: ⟨uuᵀ⟩ becomes I on average, ⟨vvᵀ⟩ diagonal and falling.

    With U and V the averages, T = U^{½}O, O the eigenvectors of U^{½}VU^{½}; no T has smaller divergences once the r_k
    are learnt (Σ log (TᵀVT)_kk ≥ log det TᵀVT).
    """
    used = slice(0, rank)
    average = (rows.mean[:, used].T @ rows.mean[:, used]) / len(rows.mean) + rows.cov[:, used, used].mean(axis=0)
    other = (columns.mean[:, used].T @ columns.mean[:, used]) / len(columns.mean)
    other += columns.cov[:, used, used].mean(axis=0)
    sizes, axes = np.linalg.eigh(average)
    root, inverse = (axes * np.sqrt(sizes)) @ axes.T, (axes / np.sqrt(sizes)) @ axes.T
    turn = np.linalg.eigh(root @ other @ root)[1][:, ::-1]
    there, back = np.eye(rank + 2), np.eye(rank + 2)
    there[used, used], back[used, used] = root @ turn, turn.T @ inverse
    return (
        Side(rows.mean @ back.T, back @ rows.cov @ back.T),
        Side(columns.mean @ there, there.T @ columns.cov @ there),
    )


def learn_row_prior(rows: Side, rank: int) -> SidePrior:
    """The variance of the rows' intercepts; u keeps its unit variance."""
    second = np.mean(rows.mean[:, rank] ** 2 + rows.cov[:, rank, rank])
    return SidePrior(np.zeros(rank + 1), np.append(np.ones(rank), max(float(second), LEAST)))


def learn_column_prior(columns: Side, rank: int) -> SidePrior:
    """Relevances r_k, and mean and variance of the columns' intercepts."""
    free = column_free(rank)
    mean, spread = columns.mean[:, free], np.einsum("nkk->nk", columns.cov)[:, free]
    centre = np.append(np.zeros(rank), mean[:, rank].mean())
    return SidePrior(centre, np.maximum(np.mean((mean - centre) ** 2 + spread, axis=0), LEAST))


class CellProblem(Protocol):
    """Observed cells of two sides, as far as the parameters of the likelihood ask."""

    @property
    def cells(self) -> Cells: ...

    @property
    def values(self) -> Array: ...

    @property
    def family(self) -> Family: ...

    def energy(self, parameters: dict[str, Any]) -> Energy: ...


def learn_likelihood(problem: CellProblem, old: dict[str, Any], rows: Side, columns: Side) -> dict[str, Any]:
    """Better parameters of the likelihood, both sides being held."""
    if not old or not len(problem.values):
        return old
    if problem.family.template.gaussian:
        mean, var = product_moments(problem.cells, rows, columns)
        return {"scale": float(np.sqrt(max(float(np.mean((problem.values - mean) ** 2 + var)), NOISE_FLOOR**2)))}
    return fit_parameters(problem, old, rows, columns)


def fit_parameters(problem: CellProblem, old: dict[str, Any], rows: Side, columns: Side) -> dict[str, Any]:
    """A few steps of quasi-Newton on the energies, kept if these rise."""
    template = problem.family.template
    names, spans = list(template.free), list(template.free.values())
    starts = [np.atleast_1d(span.to_free(np.asarray(old[n], float))) for n, span in zip(names, spans, strict=True)]
    ends = np.cumsum([len(start) for start in starts])[:-1]

    def unpacked(t: Array) -> dict[str, Any]:
        parts = zip(names, spans, np.split(t, ends), strict=True)
        return {n: _plain(span.from_free(part.reshape(np.shape(old[n])))) for n, span, part in parts}

    moments = product_moments(problem.cells, rows, columns)

    def loss(t: Array) -> float:
        energy: Any = problem.energy(unpacked(t))
        found = energy.at(*moments)[0] if hasattr(energy, "at") else energy.values(problem.cells, rows, columns)
        total = -float(found.sum())
        return total if np.isfinite(total) else 1e300

    start = np.concatenate(starts)
    limits = [limit for span, part in zip(spans, starts, strict=True) for limit in span.bounds(len(part))]
    best = minimize(loss, start, method="L-BFGS-B", bounds=limits, options={"maxiter": PARAMETER_STEPS, "maxls": 10})
    return unpacked(best.x) if best.fun < loss(start) else old


def _plain(value: Any) -> Any:
    return float(value) if np.ndim(value) == 0 else np.asarray(value)


# --- The climb


def begin(problem: MatrixProblem, codes: Array, parameters: dict[str, Any], rng: np.random.Generator) -> MatrixState:
    """Margins and principal components of the cells' codes on the scale of z (n × d, NaN where missing)."""
    n, d = problem.shape
    rank = problem.rank
    seen = ~np.isnan(codes)
    filled = np.where(seen, codes, 0.0)
    column = filled.sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    # margins shrunk by one cell, so that those of few cells do not run away
    row = np.where(seen, codes - column, 0.0).sum(axis=1) / (seen.sum(axis=1) + 1.0)
    rest = np.where(seen, codes - column - row[:, None], 0.0)
    left, sizes, right = np.linalg.svd(rest, full_matrices=False)
    most = min(rank, n, d)
    u, v = 0.1 * rng.standard_normal((n, rank)), 0.01 * rng.standard_normal((d, rank))
    u[:, :most], v[:, :most] = left[:, :most] * np.sqrt(n), right[:most].T * sizes[:most] / np.sqrt(n)
    rows = Side(np.column_stack([u, row, np.ones(n)]), _first_spread(n, rank, rank + 1))
    columns = Side(np.column_stack([v, np.ones(d), column]), _first_spread(d, rank, rank))
    row_prior, column_prior = learn_row_prior(rows, rank), learn_column_prior(columns, rank)
    state = MatrixState(rows, columns, row_prior, column_prior, parameters, -np.inf)
    return state._replace(bound=problem.bound(state))


def _first_spread(n: int, rank: int, constant: int) -> Array:
    diagonal = np.full(rank + 2, FIRST_SPREAD)
    diagonal[constant] = 0.0
    return np.tile(np.diag(diagonal), (n, 1, 1))


def climb(problem: MatrixProblem, start: MatrixState, rules: Rules, verbose: bool) -> Ascent[MatrixState]:
    """Sweeps until a sweep gains less than the tolerance per cell."""
    return ascend(problem.step, start, rules, label="matrix factorisation", verbose=verbose)


def place_rows(
    problem: MatrixProblem, state: MatrixState, max_iter: int = 200, tol: float = 1e-10
) -> tuple[Side, Array]:
    """Gaussians of new rows, the columns and all parameters being held, and these rows' bounds."""
    n, rank = problem.shape[0], problem.rank
    mean = np.zeros((n, rank + 2))
    mean[:, rank + 1] = 1.0
    rows, energy = Side(mean, _first_spread(n, rank, rank + 1)), problem.energy(state.parameters)
    before = np.full(n, -np.inf)
    for _ in range(max_iter):
        rows, value = improve(energy, problem.cells, rows, state.columns, state.row_prior, row_free(rank))
        if np.all(value - before <= tol * (1.0 + np.abs(value))):
            break
        before = value
    return rows, value
