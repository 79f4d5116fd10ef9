"""Gaussian KL with a covariance in a subspace: fit inside it, choose a better subspace, until the bound stands still.

002_71af9439e55c646f B.2, corrected. With P = prior + HᵀΓH the precision that an unrestricted optimum would have, the
best scale off the subspace has c⁻² = mean of the remaining eigenvalues of P, and what is lost is
½L(log arithmetic mean − log geometric mean) of these. So the eigenvectors to keep are those whose removal leaves the
rest most equal: some from the top and some from the bottom of the spectrum, all from the top when N ≤ D.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, qr
from scipy.sparse.linalg import LinearOperator, eigsh

from latlin.densities.structured.base import Structure
from latlin.densities.structured.diagonal import Diagonal
from latlin.densities.structured.subspace import Subspace
from latlin.densities.structured.triangular import banded_triangle
from latlin.inference.gaussian_kl_plans import Climber, Fit
from latlin.inference.gaussian_kl_structured import Objective, State
from latlin.inference.structured_form import StructuredForm
from latlin.numerics.ascent import Measure, Rules, ascend
from latlin.numerics.line_search import backtrack

Array = NDArray[np.float64]
BASES = ("eigen", "lanczos", "pca", "projected")
#: dimension up to which "eigen", which forms a D×D matrix, is the default
DENSE = 1000
#: rounds of fitting and choosing, and the relative rise of the bound that is worth another
ROUNDS = 20
STILL = 1e-7
#: gradient steps on the basis in one round of "projected"
BASIS_STEPS = 10


class Round(NamedTuple):
    """A basis, the point (m, θ) fitted in it, and its bound."""

    basis: Array
    point: Array
    bound: float


@dataclass(frozen=True)
class SubspacePlan:
    """`basis`: a name, a matrix whose columns span the subspace, or None for the better name at this size."""

    rank: int
    basis: str | Array | None
    inner: str
    bandwidth: int | None

    def fit(self, climber: Climber, mean: Array, scale: Array) -> Fit:
        form = climber.form
        rank = min(self.rank, form.dim)
        mean, _, precision = climber.diagonal(mean, scale)
        gamma = precision.gamma
        if isinstance(self.basis, np.ndarray):
            if self.basis.shape != (form.dim, rank):
                raise ValueError(f"basis must have shape {(form.dim, rank)}, got {self.basis.shape}")
            best = self._fitted(climber, np.linalg.qr(self.basis)[0], mean, gamma)
        else:
            best = self._alternate(climber, rank, mean, gamma)
        structure = Subspace(best.basis, self._inside(rank))
        return Fit(structure, climber.final(structure, best.point))

    def _alternate(self, climber: Climber, rank: int, mean: Array, gamma: Array) -> Round:
        form = climber.form
        kind = self.basis or ("eigen" if form.dim <= DENSE else "lanczos")
        weights = np.ones_like(gamma) if kind in ("pca", "projected") else gamma
        choose = kept_eigenvectors if kind == "eigen" else leading_eigenvectors
        first = self._fitted(climber, choose(form, weights, rank), mean, gamma)
        if kind == "pca" or rank == form.dim:
            return first

        def step(now: Round) -> tuple[Round, Measure]:
            state = Objective(form, Subspace(now.basis, self._inside(rank))).evaluate(now.point)
            assert state is not None  # the last fit ended there
            here = np.maximum(-2.0 * state.d_var, 0.0)
            basis = self._climbed(form, now, state) if kind == "projected" else choose(form, here, rank)
            new = self._fitted(climber, basis, now.point[: form.dim], here)
            rise = (new.bound - now.bound) / (1.0 + abs(now.bound))
            return (new, Measure(new.bound, rise)) if rise > 0.0 else (now, Measure(now.bound, 0.0))

        rules = Rules(gradient_tol=STILL, objective_tol=STILL, max_iter=ROUNDS, monotone=True)
        return ascend(step, first, rules, label="subspace", verbose=climber.verbose, warn=False).state

    def _inside(self, rank: int) -> Structure:
        if self.inner == "diagonal":
            return Diagonal(rank)
        return banded_triangle(rank, rank if self.inner == "full" or self.bandwidth is None else self.bandwidth)

    def _fitted(self, climber: Climber, basis: Array, mean: Array, gamma: Array) -> Round:
        structure = Subspace(basis, self._inside(basis.shape[1]))
        rows = structure.prepare(climber.form.rows)
        # inside: the curvature along each basis vector; outside: the mean of the remaining curvature
        inside = climber.form.prior + rows.inside.energy(gamma)
        outside = climber.form.prior + float(gamma @ rows.outside) / max(structure.codim, 1)
        theta = structure.joined(structure.inner_structure.spread(inside**-0.5), outside**-0.5)
        state = climber.rough(structure, np.concatenate([mean, theta])).state
        return Round(basis, state.point, state.bound)

    def _climbed(self, form: StructuredForm, now: Round, state: State) -> Array:
        """Projected gradient ascent on the basis, (m, θ) held fixed (B.2.2, corrected)."""
        basis, bound, length = now.basis, state.bound, 0.1
        for _ in range(BASIS_STEPS):
            structure = Subspace(basis, self._inside(basis.shape[1]))
            gradient = _basis_gradient(form, structure, state)
            # along the manifold: what only mixes the columns inside the subspace is left out
            gradient -= basis @ (basis.T @ gradient)
            largest = float(np.abs(gradient).max())
            if largest == 0.0:
                break
            direction = (length / largest) * gradient
            found = backtrack(partial(self._moved, form, basis, direction, now.point), bound, 0.0, max_halvings=12)
            if found is None:
                break
            state, basis = found[2]
            bound, length = found[1], min(2.0 * found[0] * length, 1.0)
        return basis

    def _moved(
        self, form: StructuredForm, basis: Array, direction: Array, point: Array, length: float
    ) -> tuple[float, tuple[State, Array]]:
        basis, triangle = qr(basis + length * direction, mode="economic")
        basis = basis * np.where(np.diagonal(triangle) < 0.0, -1.0, 1.0)
        state = Objective(form, Subspace(basis, self._inside(basis.shape[1]))).evaluate(point)
        assert state is not None  # the same θ as before: a proper Gaussian in any basis
        return state.bound, (state, basis)


def _basis_gradient(form: StructuredForm, structure: Subspace, state: State) -> Array:
    """∂B/∂E = Σ_n (∂⟨ψ_n⟩/∂s_n²) 2 h_n h_nᵀE (CᵀC − c²I)."""
    theta, c = structure.split(state.point[form.dim :])
    factor = structure.inner_structure.factor(theta)
    core = (factor.T @ factor).toarray() - c**2 * np.eye(structure.rank)
    weighted = state.d_var[:, None] * form.rows.block_times(structure.basis)
    return 2.0 * form.rows.block_transposed(weighted) @ core


def kept_eigenvectors(form: StructuredForm, gamma: Array, rank: int) -> Array:
    """Eigenvectors of P (formed densely) whose removal leaves the remaining eigenvalues most equal."""
    p = form.rows.block_transposed(gamma[:, None] * form.rows.block_times(np.eye(form.dim)))
    values, vectors = eigh(p + form.prior * np.eye(form.dim))
    low = fewest_losses(values, rank)
    kept = np.r_[0:low, form.dim - (rank - low) : form.dim]
    return np.ascontiguousarray(vectors[:, kept])


def fewest_losses(values: Array, rank: int) -> int:
    """How many of the `rank` removed eigenvalues (rising order) should be the smallest ones.

    >>> fewest_losses(np.array([1.0, 1.0, 1.0, 8.0, 9.0]), 2)
    0
    >>> fewest_losses(np.array([0.1, 3.0, 3.0, 3.0, 9.0]), 2)
    1
    """
    left = len(values) - rank
    if left == 0:
        return 0
    values = np.maximum(values, np.finfo(float).tiny)
    sums, logs = (np.concatenate([[0.0], np.cumsum(v)]) for v in (values, np.log(values)))
    low = np.arange(rank + 1)
    arithmetic, geometric = (sums[low + left] - sums[low]) / left, (logs[low + left] - logs[low]) / left
    return int(np.argmin(np.log(np.maximum(arithmetic, np.finfo(float).tiny)) - geometric))


def leading_eigenvectors(form: StructuredForm, gamma: Array, rank: int) -> Array:
    """Eigenvectors of HᵀΓH with the largest eigenvalues, by Lanczos iterations."""
    if rank >= form.dim - 1:
        return kept_eigenvectors(form, gamma, rank)

    def product(block: Array) -> Array:
        columns = block.reshape(form.dim, -1)
        return form.rows.block_transposed(gamma[:, None] * form.rows.block_times(columns)).reshape(block.shape)

    def vector(u: Array) -> Array:
        return form.rows.transposed(gamma * form.rows.times(np.ravel(u)))

    operator = LinearOperator((form.dim,) * 2, matvec=vector, matmat=product, dtype=float)
    start = np.random.default_rng(0).standard_normal(form.dim)
    vectors = eigsh(operator, k=rank, which="LA", tol=1e-3, v0=start)[1]
    return np.ascontiguousarray(np.linalg.qr(vectors)[0])
