"""Bayesian trilinear factorisation of tables with three indices, with any scalar likelihood.

Source: Challis (2013), §4.6.1; `latlin.factor.matrix.trilinear_fit` has the mathematics.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from latlin.diagnostics.inference_data import inference_data
from latlin.factor.fit import NamedEvidence, draw_gaussians
from latlin.factor.matrix.cells import CellUnits, codes_of, positions
from latlin.factor.matrix.energies import Cells, Index, Side, product_moments
from latlin.factor.matrix.trilinear_fit import (
    MODES,
    TrilinearProblem,
    TrilinearState,
    begin,
    climb_from_starts,
    product_of_others,
)
from latlin.numerics.archive import Archived
from latlin.numerics.arrays import Array, summable
from latlin.numerics.options import whole
from latlin.numerics.rng import RandomState, generator
from latlin.potentials.predictive import Predictive

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
        whole("n_init", self.n_init, 1)
        X = three_indices(X)
        seen, values, parameters = self._learn_cells(X)
        family, below = self._family, self.energy == "bound"
        problem = TrilinearProblem(np.nonzero(seen), values[seen], family, X.shape, self.n_components, below)
        rng, codes = generator(self.random_state), codes_of(values, family)
        kinds = [None, *(rng for _ in range(self.n_init - 1))]
        starts = [begin(problem, codes, parameters, kind) for kind in kinds]
        found = climb_from_starts(problem, starts, self._rules(), self.verbose)
        shift = self._shift(seen)
        self.evidence_kind_ = problem.energy(found.state.parameters).kind
        self.trace_, self.n_iter_, self.converged_ = found.trace - shift, found.n_iter, found.converged
        self.message_, self.lower_bound_ = found.message, found.state.bound - shift
        self._store(found.state)
        return self

    def sample_posterior(self, n_samples: int = 1, random_state: RandomState = None) -> list[Array]:
        """Draws of the latents of all entries, one array of shape (n_samples, entries, K) per mode."""
        check_is_fitted(self, "first_mean_")
        count, k, rng = whole("n_samples", n_samples, 1), self.n_components, generator(random_state)
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
        X, shape = three_indices(X), tuple(len(side.mean) for side in self._sides)
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
        return tuple(positions(NAMES, given, [len(side.mean) for side in self._sides]))

    def _predictive(self, at: tuple[Index, ...]) -> Predictive:
        sides = self._sides
        cells = Cells(at[0], np.arange(len(at[0])))
        return self._predictive_of(*product_moments(cells, sides[0], product_of_others(at, sides, 0)))

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


def three_indices(X: Any) -> Array:
    """A table with three indices, checked."""
    try:
        found = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"X must hold numbers, got {type(X).__name__}: {error}") from None
    if found.ndim != MODES or 0 in found.shape:
        raise ValueError(f"X must have three indices and no empty one, got shape {found.shape}")
    if np.isinf(found).any():
        raise ValueError("X must hold finite numbers and NaN for missing cells, got an infinite one")
    return np.asarray(summable("X", found))
