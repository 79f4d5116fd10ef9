"""Bayesian trilinear factorisation of tables with three indices, with any scalar likelihood.

Source: Challis (2013), §4.6.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from latlin.diagnostics.inference_data import inference_data
from latlin.factor.fit import NamedEvidence, draw_gaussians
from latlin.factor.matrix.cells import CellUnits, check_positions, codes_of
from latlin.factor.matrix.energies import Cells, Energy, Index, MomentEnergy, Side, product_moments
from latlin.factor.matrix.fit import FIRST_SPREAD, LEAST, SidePrior, improve, learn_likelihood, negative_divergence
from latlin.numerics.archive import Archived
from latlin.numerics.arrays import Array, check_summable
from latlin.numerics.ascent import Ascent, Measure, Rules, ascend
from latlin.numerics.options import check_whole
from latlin.numerics.progress import show_beginning
from latlin.numerics.rng import RandomState, generator
from latlin.potentials.families import Family
from latlin.potentials.predictive import Predictive

# --- Three factors in turn: each one given the other two, then scales, priors and the likelihood.
#
# Source: Challis (2013), §4.6.1, with one factor more. The latents of the entries of the modes are (u, a, 1, 1),
# (v, 1, b, 1) and (t, 1, 1, c), the ones without spread, so that
#
#     z = Σ_k u_k v_k t_k + a + b + c = Σ_d x_d y_d s_d
#
# is one trilinear form. To the first mode the other two are one vector w = y ∘ s per cell, of which a parabola asks for
#
#     ⟨w⟩ = ⟨y⟩ ∘ ⟨s⟩,   ⟨wwᵀ⟩ = ⟨yyᵀ⟩ ∘ ⟨ssᵀ⟩
#
# only. So energies that are functions of the mean and variance of z are those of `latlin.factor.matrix.energies`, with
# one column per cell. ⟨e^z⟩ is infinite for a product of three Gaussians: counts with rate e^z have no bound.


MODES = 3
#: sweeps after which several starts are compared
ROUGH_SWEEPS = 15


class TrilinearState(NamedTuple):
    """Gaussians and priors of the three modes, the parameters of the likelihood, and the bound."""

    sides: tuple[Side, ...]
    priors: tuple[SidePrior, ...]
    parameters: dict[str, Any]
    bound: float


@dataclass(frozen=True)
class TrilinearProblem:
    """The observed cells (their positions in every mode) and the options: what stays fixed."""

    at: tuple[Index, ...]
    values: Array
    family: Family
    shape: tuple[int, ...]
    rank: int
    below: bool

    def energy(self, parameters: dict[str, Any]) -> Energy:
        potential = self.family.potential(self.values, parameters)
        return MomentEnergy(potential, self.below and potential.super_gaussian)

    @cached_property
    def cells(self) -> Cells:
        """As the first mode sees them: one column per cell."""
        return self.seen_from(0)

    def seen_from(self, mode: int) -> Cells:
        return Cells(self.at[mode], np.arange(len(self.values)))

    def step(self, state: TrilinearState) -> tuple[TrilinearState, Measure]:
        """Each mode, the scales, priors, likelihood; every part raises the bound."""
        energy, sides = self.energy(state.parameters), list(state.sides)
        for mode in range(MODES):
            others = product_of_others(self.at, sides, mode)
            free = free_coordinates(self.rank, mode)
            sides[mode], _ = improve(energy, self.seen_from(mode), sides[mode], others, state.priors[mode], free)
        sides = balance(sides, self.rank)
        priors = learn_priors(sides, self.rank)
        parameters = learn_likelihood(self, state.parameters, sides[0], product_of_others(self.at, sides, 0))
        new = TrilinearState(tuple(sides), priors, parameters, 0.0)
        new = new._replace(bound=self.bound(new))
        return new, Measure(new.bound, (new.bound - state.bound) / max(len(self.values), 1))

    def bound(self, state: TrilinearState) -> float:
        """The bound, every constant included."""
        others = product_of_others(self.at, list(state.sides), 0)
        total = float(self.energy(state.parameters).values(self.cells, state.sides[0], others).sum())
        for mode, (side, prior) in enumerate(zip(state.sides, state.priors, strict=True)):
            total += float(negative_divergence(side, prior, free_coordinates(self.rank, mode)).sum())
        return total


def free_coordinates(rank: int, mode: int) -> list[int]:
    """The coordinates of a mode that are not constant: its latents and its intercept."""
    return [*range(rank), rank + mode]


def product_of_others(at: tuple[Index, ...], sides: list[Side], mode: int) -> Side:
    """w = y ∘ s of every cell: its mean, and its covariance ⟨yyᵀ⟩ ∘ ⟨ssᵀ⟩ − ⟨w⟩⟨w⟩ᵀ."""
    (i, first), (j, second) = ((at[m], sides[m]) for m in range(MODES) if m != mode)
    mean = first.mean[i] * second.mean[j]
    square = (first.moments[i] * second.moments[j]).reshape(len(mean), mean.shape[1], mean.shape[1])
    return Side(mean, square - mean[:, :, None] * mean[:, None, :])


def balance(sides: list[Side], rank: int) -> list[Side]:
    """u_k ← u_k/σ, t_k ← σt_k, σ² the average of ⟨u_k²⟩, and v likewise; the relevances fall.

    It leaves z and is the best scale: −½Σ⟨u²⟩/σ² − n log σ is largest there, and what t gains its variance loses.
    """
    turned, last = [], np.ones(rank)
    for side in sides[:-1]:
        size = np.sqrt(np.mean(side.mean[:, :rank] ** 2 + np.einsum("nkk->nk", side.cov)[:, :rank], axis=0))
        turned.append(stretch_side(side, 1.0 / size))
        last = last * size
    turned.append(stretch_side(sides[-1], last))
    relevance = np.mean(turned[-1].mean[:, :rank] ** 2 + np.einsum("nkk->nk", turned[-1].cov)[:, :rank], axis=0)
    order = np.concatenate([np.argsort(-relevance, kind="stable"), np.arange(rank, rank + MODES)])
    return [Side(side.mean[:, order], side.cov[:, order[:, None], order[None, :]]) for side in turned]


def stretch_side(side: Side, size: Array) -> Side:
    """The first latents of a mode times these numbers."""
    full = np.append(size, np.ones(side.mean.shape[1] - len(size)))
    return Side(side.mean * full, side.cov * np.outer(full, full))


def learn_priors(sides: list[Side], rank: int) -> tuple[SidePrior, ...]:
    """Variances of all intercepts; relevances r_k of the last mode and the mean of its intercepts."""
    priors = []
    for mode, side in enumerate(sides):
        free = free_coordinates(rank, mode)
        mean, spread = side.mean[:, free], np.einsum("nkk->nk", side.cov)[:, free]
        centre, last = np.zeros(rank + 1), mode == MODES - 1
        if last:
            centre[rank] = mean[:, rank].mean()
        variance = np.maximum(np.mean((mean - centre) ** 2 + spread, axis=0), LEAST)
        if not last:
            variance[:rank] = 1.0
        priors.append(SidePrior(centre, variance))
    return tuple(priors)


# --- The climb


def begin(
    problem: TrilinearProblem, codes: Array, parameters: dict[str, Any], rng: np.random.Generator | None
) -> TrilinearState:
    """Margins, and leading components of the unfolded rest; random components where a generator is given."""
    rank, seen = problem.rank, ~np.isnan(codes)
    margins: list[Array] = []
    rest = codes
    for mode in reversed(range(MODES)):
        axes = tuple(m for m in range(MODES) if m != mode)
        # shrunk by one cell, so that entries of few cells do not run away; the last mode has the mean
        count = seen.sum(axis=axes) + (mode != MODES - 1)
        margin = np.where(seen, rest, 0.0).sum(axis=axes) / np.maximum(count, 1)
        rest = rest - margin.reshape([-1 if m == mode else 1 for m in range(MODES)])
        margins.insert(0, margin)
    latents = start_latents(np.where(seen, rest, 0.0), rank, rng)
    sides = [
        spread_about(latent, margin, mode) for mode, (latent, margin) in enumerate(zip(latents, margins, strict=True))
    ]
    sides = balance(sides, rank)
    state = TrilinearState(tuple(sides), learn_priors(sides, rank), parameters, -np.inf)
    return state._replace(bound=problem.bound(state))


def start_latents(rest: Array, rank: int, rng: np.random.Generator | None) -> list[Array]:
    """Latents of the three modes to start from."""
    spread = rng or np.random.default_rng(0)
    if rng is not None:
        size = float(rest.std() / np.sqrt(rank)) ** (1.0 / MODES)
        return [size * rng.standard_normal((n, rank)) for n in rest.shape]
    found = [0.1 * spread.standard_normal((n, rank)) for n in rest.shape]
    left, sizes, right = np.linalg.svd(rest.reshape(rest.shape[0], -1), full_matrices=False)
    for k in range(min(rank, len(sizes))):
        inner, values, outer = np.linalg.svd(right[k].reshape(rest.shape[1:]), full_matrices=False)
        size = max(sizes[k] * values[0], 1e-8) ** (1.0 / MODES)
        for latent, vector in zip(found, (left[:, k], inner[:, 0], outer[0]), strict=True):
            latent[:, k] = size * vector
    return found


def spread_about(latent: Array, margin: Array, mode: int) -> Side:
    """Gaussians of little spread about latents and intercepts, ones elsewhere."""
    n, rank = latent.shape
    mean = np.column_stack([latent, np.ones((n, MODES))])
    mean[:, rank + mode] = margin
    diagonal = np.zeros(rank + MODES)
    diagonal[free_coordinates(rank, mode)] = FIRST_SPREAD
    return Side(mean, np.tile(np.diag(diagonal), (n, 1, 1)))


def climb_from_starts(
    problem: TrilinearProblem, starts: list[TrilinearState], rules: Rules, verbose: bool
) -> Ascent[TrilinearState]:
    """Sweeps from the start that is highest after a few of them."""
    if len(starts) > 1:
        rough = Rules(rules.gradient_tol, np.inf, ROUGH_SWEEPS, True)
        ends = [ascend(problem.step, start, rough, label="start", warn=False).state for start in starts]
        starts = [max(ends, key=lambda end: end.bound)]
    return ascend(problem.step, starts[0], rules, label="trilinear factorisation", verbose=verbose)


NAMES = ("first", "second", "third")


class TrilinearFactorization(CellUnits, NamedEvidence, Archived, BaseEstimator):
    """A table with three indices as a trilinear form of three factors; missing cells are integrated out.

    A cell depends on its three entries through z = Σ_k u_k v_k t_k + a + b + c: K latents and an intercept per entry of
    each mode (people by items by occasions, say). u and v ~ N(0, I); the variances of t (relevances) and of the
    intercepts are learnt, so that latents that the table does not need fade away.

    Parameters
    ----------
    n_components : int
        Number of latents K.
    family : str
        Likelihood of a cell given z, as in `MatrixFactorization`.
    energy : {"bound", "moments"}
        "bound": a lower bound on the evidence for "gaussian" (exact energies), for noises, "logit" and
        "negative-binomial" (a parabola below log φ). "poisson", "gamma" and the rest have no bound, because ⟨e^z⟩ is
        infinite for a product of three Gaussians; like "moments" they are taken at the Gaussian with the mean and
        variance of z, an approximation.
    n_init : int
        Starts: the leading components of the unfolded table, and random ones; the best after some sweeps goes on.
    tol : float
        A sweep that gains less than this per observed cell, in nat, is the last.
    max_iter : int
        Sweeps at most.
    random_state : int, Generator, RandomState or None
        Used for starts after the first.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    factors_ : list of three ndarray of shape (entries, K)
        Posterior means of the latents; those of the third mode on the scale of z. `factors_std_` their deviations.
    intercepts_ : list of three ndarray
    relevances_ : ndarray of shape (K,)
        Learnt variances of the latents of the third mode, falling.
    parameters_ : dict
        Learnt parameters of the likelihood; a noise scale in the units of the table.
    lower_bound_, evidence_kind_ : float, str
        The bound on log p(X) at the learnt variances, or its approximation, every constant included.
    trace_ : ndarray
        The bound after each sweep.
    n_iter_, converged_, message_ : int, bool, str
    dispersion_, finding_ : float, str
        Of Poisson counts: Pearson's ratio, 1 if they are as the family says, and what it means where it is too large.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.factor import TrilinearFactorization
    >>> rng = np.random.default_rng(0)
    >>> table = np.einsum("i,j,k->ijk", *(rng.standard_normal(n) for n in (12, 9, 5)))
    >>> table += 0.1 * rng.standard_normal(table.shape)
    >>> table[0, 1, 2] = np.nan
    >>> model = TrilinearFactorization(2).fit(table)
    >>> model.impute(table).shape, model.evidence_kind_
    ((12, 9, 5), 'lower bound')
    >>> model.predict_cells([0], [1], [2]).shape
    (1,)
    """

    _saved = (
        *("first_mean_[A, D]", "first_cov_[A, D, D]", "second_mean_[B, D]", "second_cov_[B, D, D]"),
        *("third_mean_[C, D]", "third_cov_[C, D, D]", "third_variance_[P]", "intercept_variances_[3]"),
        *("likelihood_", "levels_[L]", "centre_", "scale_"),
        *("trace_[*]", "lower_bound_", "evidence_kind_", "n_iter_", "converged_", "message_"),
        *("dispersion_?", "finding_?"),
    )

    def __init__(
        self,
        n_components: int = 5,
        *,
        family: str = "gaussian",
        energy: str = "bound",
        n_init: int = 3,
        tol: float = 1e-5,
        max_iter: int = 1000,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            n_components,
            family=family,
            energy=energy,
            tol=tol,
            max_iter=max_iter,
            random_state=random_state,
            verbose=verbose,
        )
        self.n_init = n_init

    def fit(self, X: Any, y: Any = None) -> TrilinearFactorization:
        """Fit to a table of shape (first, second, third); NaN marks missing cells."""
        self._check_options()
        check_whole("n_init", self.n_init, 1)
        X = check_three_indices(X)
        seen, values, parameters = self._learn_cells(X)
        family, below = self._family, self.energy == "bound"
        problem = TrilinearProblem(np.nonzero(seen), values[seen], family, X.shape, self.n_components, below)
        rng, codes = generator(self.random_state), codes_of(values, family)
        kinds = [None, *(rng for _ in range(self.n_init - 1))]
        with show_beginning("trilinear factorisation", self.verbose):
            starts = [begin(problem, codes, parameters, kind) for kind in kinds]
            found = climb_from_starts(problem, starts, self._rules(), self.verbose)
        shift = self._shift(seen)
        self.evidence_kind_ = problem.energy(found.state.parameters).kind
        self.trace_, self.n_iter_, self.converged_ = found.trace - shift, found.n_iter, found.converged
        self.message_, self.lower_bound_ = found.message, found.state.bound - shift
        self._store(found.state)
        self._look_at_counts(problem.values, self._products(np.nonzero(seen)))
        return self

    def sample_posterior(self, n_samples: int = 1, random_state: RandomState = None) -> list[Array]:
        """Draws of the latents of all entries, one array of shape (n_samples, entries, K) per mode."""
        check_is_fitted(self, "first_mean_")
        count, k, rng = check_whole("n_samples", n_samples, 1), self.n_components, generator(random_state)
        sides = [(getattr(self, f"{name}_mean_"), getattr(self, f"{name}_cov_")) for name in NAMES]
        return [draw_gaussians(mean[:, :k], cov[:, :k, :k], count, rng) for mean, cov in sides]

    def to_arviz(self, n_samples: int = 1000, random_state: RandomState = None) -> Any:
        """Draws as an `arviz.InferenceData` (of ArviZ 1, a `DataTree`) with one variable per mode; needs ArviZ."""
        draws = dict(zip(NAMES, self.sample_posterior(n_samples, random_state), strict=True))
        coords = {
            "factor": range(self.n_components),
            **{f"{name} entry": range(d.shape[1]) for name, d in draws.items()},
        }
        dims = {name: [f"{name} entry", "factor"] for name in NAMES}
        return inference_data({"posterior": {name: d[None] for name, d in draws.items()}}, coords, dims)

    def predict_cells(self, first: ArrayLike, second: ArrayLike, third: ArrayLike, *, return_std: bool = False) -> Any:
        """Predictive means of cells of the fitted table, and with `return_std` their standard deviations.

        Parameters
        ----------
        first, second, third : array-like of int, of one length
            Positions in the fitted table.
        """
        return self._answer(self._predictive(self._positions(first, second, third)), return_std)

    def predict_cell_interval(
        self, first: ArrayLike, second: ArrayLike, third: ArrayLike, coverage: float = 0.9
    ) -> Array:
        """Central predictive intervals of cells of the fitted table: columns low and high."""
        return self._interval(self._predictive(self._positions(first, second, third)), coverage)

    def log_density_of_cells(self, first: ArrayLike, second: ArrayLike, third: ArrayLike, y: ArrayLike) -> Array:
        """Log predictive density (or probability) of values y of cells of the fitted table."""
        return self._log_density(self._predictive(self._positions(first, second, third)), y)

    def impute(self, X: Any, *, return_std: bool = False) -> Any:
        """The fitted table with its missing cells filled by their predictive means.

        Parameters
        ----------
        X : array-like of the shape of the fitted table
        return_std : bool
            Also return predictive standard deviations, 0 where a cell was observed.
        """
        check_is_fitted(self, "first_mean_")
        X, shape = check_three_indices(X), tuple(len(side.mean) for side in self._sides)
        if X.shape != shape:
            raise ValueError(f"X must have the shape {shape} of the fitted table, got {X.shape}")
        gaps = np.nonzero(np.isnan(X))
        filled, std = X.copy(), np.zeros_like(X)
        if len(gaps[0]):
            filled[gaps], std[gaps] = self._moments(self._predictive(gaps))
        return (filled, std) if return_std else filled

    @property
    def _sides(self) -> list[Side]:
        check_is_fitted(self, "first_mean_")
        return [Side(getattr(self, f"{name}_mean_"), getattr(self, f"{name}_cov_")) for name in NAMES]

    def _positions(self, *given: ArrayLike) -> tuple[Index, ...]:
        return tuple(check_positions(NAMES, given, [len(side.mean) for side in self._sides]))

    def _predictive(self, at: tuple[Index, ...]) -> Predictive:
        return self._predictive_of(*self._products(at))

    def _products(self, at: tuple[Index, ...]) -> tuple[Array, Array]:
        """Means and variances of the products of cells."""
        sides = self._sides
        cells = Cells(at[0], np.arange(len(at[0])))
        return product_moments(cells, sides[0], product_of_others(at, sides, 0))

    def _store(self, state: TrilinearState) -> None:
        for name, side in zip(NAMES, state.sides, strict=True):
            setattr(self, f"{name}_mean_", side.mean)
            setattr(self, f"{name}_cov_", side.cov)
        self.third_variance_, self.likelihood_ = state.priors[-1].variance, state.parameters
        self.intercept_variances_ = np.array([prior.variance[-1] for prior in state.priors])
        self._after_loading()

    def _after_loading(self) -> None:
        """What follows from the stored Gaussians."""
        k, sizes = self.n_components, (1.0, 1.0, self.scale_)
        sides = self._sides
        self.factors_ = [size * side.mean[:, :k] for size, side in zip(sizes, sides, strict=True)]
        spreads = [np.sqrt(np.einsum("nkk->nk", side.cov)[:, :k]) for side in sides]
        self.factors_std_ = [size * spread for size, spread in zip(sizes, spreads, strict=True)]
        self.intercepts_ = [side.mean[:, k + mode] * self.scale_ for mode, side in enumerate(sides)]
        self.intercepts_[-1] = self.intercepts_[-1] + self.centre_
        self.relevances_ = self.third_variance_[:k] * self.scale_**2
        self._describe_parameters()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        return tags


def check_three_indices(X: Any) -> Array:
    """A table with three indices, checked."""
    try:
        found = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"X must hold numbers, got {type(X).__name__}: {error}") from None
    if found.ndim != MODES or 0 in found.shape:
        raise ValueError(f"X must have three indices and no empty one, got shape {found.shape}")
    if np.isinf(found).any():
        raise ValueError("X must hold finite numbers and NaN for missing cells, got an infinite one")
    return np.asarray(check_summable("X", found))
