"""Gaussian KL with a covariance in a subspace: fit inside it, choose a better subspace, until the bound stands still.

Challis (2013), B.2, corrected. With P = prior + HᵀΓH the precision that an unrestricted optimum would have, the
best scale off the subspace has c⁻² = mean of the remaining eigenvalues of P, and what is lost is
½L(log arithmetic mean − log geometric mean) of these. So the eigenvectors to keep are those whose removal leaves the
rest most equal: some from the top and some from the bottom of the spectrum, all from the top when N ≤ D. In many
dimensions those from the top are improved together with the fit, a filtered step per round.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from scipy.linalg import eigh, qr
from scipy.sparse.linalg import LinearOperator, eigsh

from latlin.densities.structured.base import DiagonalStructure, Structure, banded_triangle
from latlin.densities.structured.loadings import SubspaceStructure
from latlin.inference.forms.structured import StructuredForm, site_precision
from latlin.inference.gaussian_kl.climber import Climber, Structured, StructuredFit, check_count
from latlin.inference.gaussian_kl.leading_subspace import Leading, improve_leading, start_leading
from latlin.inference.gaussian_kl.structured import StructuredBound, StructuredState
from latlin.inference.model import IN_BLOCKS
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Measure, Rules, ascend, backtrack
from latlin.numerics.stored import storable_by_arguments

BASES = ("eigen", "lanczos", "pca", "projected")
#: dimension up to which "eigen", which forms a D×D matrix, is the default and leading eigenvectors are exact
DENSE = 1000
#: rounds of fitting and choosing, and the relative rise of the bound that is worth another, with eigenvectors that are
#: exact and with those that a round only improves
ROUNDS = 20
STILL, STILL_ENOUGH = 1e-7, 5e-5
#: filtered steps for principal components, which no round improves
FILTERED = 3
#: gradient steps on the basis in one round of "projected"
BASIS_STEPS = 10


class Round(NamedTuple):
    """A basis, as good as it is chosen, and the state fitted in it."""

    chosen: Leading
    state: StructuredState

    @property
    def bound(self) -> float:
        return float(self.state.bound)


class BasisChoice(Protocol):
    """A way to choose a basis for site precisions Γ, from nothing or from the last one."""

    def __call__(self, form: StructuredForm, gamma: Array, rank: int, last: Leading | None) -> Leading: ...


@storable_by_arguments
@dataclass(frozen=True)
class Subspace(Structured):
    """Any covariance inside a subspace, and one variance off it.

    Parameters
    ----------
    rank : int
        Dimension of the subspace.
    basis : {"eigen", "lanczos", "pca", "projected"} or array of shape (dim, rank), optional
        Eigenvectors of the precision chosen for the smallest loss, its leading ones (by Lanczos iterations up to 1,000
        dimensions, by filtered steps from the last basis beyond), principal components of H, or gradient ascent on the
        basis; all but "pca" alternate with the fit. By default "eigen" up to 1,000 dimensions, "lanczos" beyond.
    inner : {"full", "banded", "diagonal"}
        Factor inside the subspace.
    bandwidth : int, optional
        Super-diagonals of a banded inner factor.
    """

    name: ClassVar[str] = "subspace"
    rank: int
    basis: Any = None
    inner: str = "full"
    bandwidth: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.basis, str) and self.basis not in BASES:
            raise ValueError(f"basis must be one of {', '.join(BASES)}, or a matrix, got {self.basis!r}")
        if np.ndim(self.inner) or self.inner not in ("full", "banded", "diagonal"):
            raise ValueError(f"inner must be 'full', 'banded' or 'diagonal', got {self.inner!r}")
        if self.inner == "banded":
            check_count(self.bandwidth, "bandwidth", self.name, least=0)
        check_count(self.rank, "rank", self.name)

    def fit(self, climber: Climber, mean: Array, scale: Array) -> StructuredFit:
        form = climber.form
        if form.elsewhere is not None:
            raise ValueError(f"covariance='subspace' cannot be used: {IN_BLOCKS}")
        rank = min(int(self.rank), form.dim)
        mean, _, precision = climber.diagonal(mean, scale)
        gamma = precision.gamma
        if self.basis is not None and not isinstance(self.basis, str):
            matrix = np.asarray(self.basis, float)
            if matrix.shape != (form.dim, rank):
                raise ValueError(f"basis must have shape {(form.dim, rank)}, got {matrix.shape}")
            given = Leading(np.linalg.qr(matrix)[0], np.zeros(rank))
            best = self._fitted(climber, given, mean, gamma)
        elif not len(form.sites):  # every basis is as good as another
            best = self._fitted(climber, Leading(np.eye(form.dim)[:, :rank], np.zeros(rank)), mean, gamma)
        else:
            best = self._alternate(climber, rank, mean, gamma)
        structure = SubspaceStructure(best.chosen.basis, self._inside(rank))
        return StructuredFit(structure, climber.final(structure, best.state.point))

    def _alternate(self, climber: Climber, rank: int, mean: Array, gamma: Array) -> Round:
        form = climber.form
        kind = self.basis or ("eigen" if form.dim <= DENSE else "lanczos")
        fixed = kind in ("pca", "projected")
        choose: BasisChoice = kept_eigenvectors if kind == "eigen" else leading_eigenvectors
        start = choose(form, np.ones_like(gamma) if fixed else gamma, rank, None)
        if fixed and form.dim > DENSE:
            for _ in range(1, FILTERED):
                start = choose(form, np.ones_like(gamma), rank, start)
        first = self._fitted(climber, start, mean, gamma)
        if kind == "pca" or rank == form.dim:
            return first

        def step(now: Round) -> tuple[Round, Measure]:
            here = site_precision(now.state.d_var)
            chosen = self._climbed(form, now) if kind == "projected" else choose(form, here, rank, now.chosen)
            new = self._fitted(climber, chosen, now.state.point[: form.dim], here)
            rise = (new.bound - now.bound) / (1.0 + abs(now.bound))
            return (new, Measure(new.bound, rise)) if rise > 0.0 else (now, Measure(now.bound, 0.0))

        still = _still(form)
        rules = Rules(gradient_tol=still, objective_tol=still, max_iter=ROUNDS, monotone=True)
        return ascend(step, first, rules, label="subspace", verbose=climber.verbose, warn=False).state

    def _inside(self, rank: int) -> Structure:
        if self.inner == "diagonal":
            return DiagonalStructure(rank)
        return banded_triangle(rank, rank if self.inner == "full" or self.bandwidth is None else self.bandwidth)

    def _fitted(self, climber: Climber, chosen: Leading, mean: Array, gamma: Array) -> Round:
        structure = SubspaceStructure(chosen.basis, self._inside(chosen.basis.shape[1]))
        rows = structure.prepare(climber.form.rows)
        # inside: the curvature along each basis vector; outside: the mean of the remaining curvature
        inside = climber.form.prior + rows.inside.energy(gamma)
        outside = climber.form.prior + float(gamma @ rows.outside) / max(structure.codim, 1)
        # nothing is outside of a subspace that is all of space
        beyond = outside**-0.5 if outside > 0.0 else 1.0
        theta = structure.joined(structure.inner_structure.spread(inside**-0.5), beyond)
        # rounds are compared by their bounds: no rougher than that
        return Round(chosen, climber.rough(structure, np.concatenate([mean, theta]), _still(climber.form)).state)

    def _climbed(self, form: StructuredForm, now: Round) -> Leading:
        """Projected gradient ascent on the basis, (m, θ) held fixed (B.2.2, corrected)."""
        basis, state, bound, length = now.chosen.basis, now.state, now.bound, 0.1
        for _ in range(BASIS_STEPS):
            structure = SubspaceStructure(basis, self._inside(basis.shape[1]))
            gradient = _basis_gradient(form, structure, state)
            # along the manifold: what only mixes the columns inside the subspace is left out
            gradient -= basis @ (basis.T @ gradient)
            largest = float(np.abs(gradient).max())
            if largest == 0.0:
                break
            direction = (length / largest) * gradient
            found = backtrack(
                partial(self._moved, form, basis, direction, now.state.point), bound, 0.0, max_halvings=12
            )
            if found is None:
                break
            state, basis = found[2]
            bound, length = found[1], min(2.0 * found[0] * length, 1.0)
        return now.chosen._replace(basis=basis)

    def _moved(
        self, form: StructuredForm, basis: Array, direction: Array, point: Array, length: float
    ) -> tuple[float, tuple[StructuredState, Array]]:
        basis, triangle = qr(basis + length * direction, mode="economic")
        basis = basis * np.where(np.diagonal(triangle) < 0.0, -1.0, 1.0)
        state = StructuredBound(form, SubspaceStructure(basis, self._inside(basis.shape[1]))).evaluate(point)
        assert state is not None  # the same θ as before: a proper Gaussian in any basis
        return state.bound, (state, basis)


def _still(form: StructuredForm) -> float:
    return STILL if form.dim <= DENSE else STILL_ENOUGH


def _basis_gradient(form: StructuredForm, structure: SubspaceStructure, state: StructuredState) -> Array:
    """∂B/∂E = Σ_n (∂⟨ψ_n⟩/∂s_n²) 2 h_n h_nᵀE (CᵀC − c²I)."""
    theta, c = structure.split(state.point[form.dim :])
    factor = structure.inner_structure.factor(theta)
    core = (factor.T @ factor).toarray() - c**2 * np.eye(structure.rank)
    weighted = state.d_var[:, None] * form.rows.times_columns(structure.basis)
    return 2.0 * form.rows.transposed_columns(weighted) @ core


def kept_eigenvectors(form: StructuredForm, gamma: Array, rank: int, last: Leading | None = None) -> Leading:
    """Eigenvectors of P (formed densely) whose removal leaves the remaining eigenvalues most equal."""
    p = form.rows.transposed_columns(gamma[:, None] * form.rows.times_columns(np.eye(form.dim)))
    values, vectors = eigh(p + form.prior * np.eye(form.dim))
    low = count_smallest(values, rank)
    kept = np.r_[0:low, form.dim - (rank - low) : form.dim]
    return Leading(np.ascontiguousarray(vectors[:, kept]), values[kept])


def count_smallest(values: Array, rank: int) -> int:
    """How many of the `rank` removed eigenvalues (rising order) should be the smallest ones.

    >>> count_smallest(np.array([1.0, 1.0, 1.0, 8.0, 9.0]), 2)
    0
    >>> count_smallest(np.array([0.1, 3.0, 3.0, 3.0, 9.0]), 2)
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


def leading_eigenvectors(form: StructuredForm, gamma: Array, rank: int, last: Leading | None = None) -> Leading:
    """Eigenvectors of HᵀΓH with the largest eigenvalues: by Lanczos iterations, or nearer to them than the last."""
    if rank >= form.dim - 1:
        return kept_eigenvectors(form, gamma, rank)
    if form.dim > DENSE:
        return start_leading(form.rows, gamma, rank) if last is None else improve_leading(form.rows, gamma, last)

    def product(block: Array) -> Array:
        columns = block.reshape(form.dim, -1)
        return form.rows.transposed_columns(gamma[:, None] * form.rows.times_columns(columns)).reshape(block.shape)

    operator = LinearOperator((form.dim,) * 2, matvec=product, matmat=product, dtype=float)
    start = np.random.default_rng(0).standard_normal(form.dim)
    values, vectors = eigsh(operator, k=rank, which="LA", tol=1e-3, v0=start)
    return Leading(np.ascontiguousarray(np.linalg.qr(vectors)[0]), values)
