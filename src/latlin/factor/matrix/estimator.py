"""Bayesian matrix factorisation with any scalar likelihood.

Source: Challis (2013), §4.6.1; see `latlin.factor.matrix.energies` for what is exact and what is a bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from latlin.factor.fit import LatentDraws, NamedEvidence, latent_moments
from latlin.factor.matrix.cells import CellUnits, check_positions, codes_of
from latlin.factor.matrix.energies import Cells, Side, product_moments
from latlin.factor.matrix.fit import MatrixProblem, MatrixState, SidePrior, begin, climb, place_rows
from latlin.numerics.archive import Archived
from latlin.numerics.arrays import Array, check_numeric, check_summable
from latlin.numerics.progress import show_beginning
from latlin.numerics.rng import generator
from latlin.potentials.predictive import Predictive


class MatrixFactorization(
    CellUnits, NamedEvidence, LatentDraws, Archived, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """A table as a product of two factors with a posterior on both; missing cells are integrated out.

    A cell depends on its row and its column through z = uᵀv + b + c: K latents u and an intercept b per row, K latents
    v and an intercept c per column. u ~ N(0, I); the variances of v (relevances), b and c are learnt, so that latents
    that the table does not need fade away.

    Parameters
    ----------
    n_components : int
        Number of latents K; more than needed do little harm.
    family : str
        Likelihood of a cell given z: "gaussian" and other noises ("student-t", "laplace", "cauchy", "logistic",
        "huber"), "logit" and "probit" for 0 and 1, "ordinal" for ratings, "poisson", "negative-binomial" and other
        counts with rate e^z, "gamma" and other positive amounts with mean e^z, "beta" for shares.
    energy : {"bound", "moments"}
        How ⟨log φ(z)⟩ is taken, z being no Gaussian. "bound": exactly for "gaussian", "poisson" and "gamma", by a
        parabola below log φ for noises, "logit" and "negative-binomial", so that `log_evidence_` is a lower bound;
        other families have none and use "moments". "moments": at the Gaussian with the mean and variance of z, an
        approximation that is often closer.
    tol : float
        A sweep that gains less than this per observed cell, in nat, is the last.
    max_iter : int
        Sweeps at most.
    random_state : int, Generator, RandomState or None
        Used for latents beyond the smaller side of the table.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    components_ : ndarray of shape (K, columns)
        Posterior means of v, on the scale of z; `components_std_` their standard deviations.
    row_factors_ : ndarray of shape (rows, K)
        Posterior means of u.
    relevances_ : ndarray of shape (K,)
        Learnt variances of the latents of columns, falling.
    row_intercepts_, column_intercepts_ : ndarray
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
    >>> from latlin.factor import MatrixFactorization
    >>> rng = np.random.default_rng(0)
    >>> table = rng.poisson(np.exp(rng.standard_normal((40, 1)) @ rng.standard_normal((1, 12)))).astype(float)
    >>> table[::5, 3] = np.nan
    >>> model = MatrixFactorization(2, family="poisson").fit(table)
    >>> model.impute(table).shape, model.evidence_kind_
    ((40, 12), 'lower bound')
    >>> model.predict_cells([0, 5], [3, 3]).shape
    (2,)
    """

    _saved = (
        *("row_mean_[N, D]", "row_cov_[N, D, D]", "column_mean_[M, D]", "column_cov_[M, D, D]", "row_variance_[P]"),
        *("column_prior_mean_[P]", "column_variance_[P]", "likelihood_", "levels_[L]", "centre_", "scale_"),
        *("trace_[*]", "lower_bound_", "evidence_kind_", "n_iter_", "converged_", "message_", "n_features_in_"),
        *("dispersion_?", "finding_?", "feature_names_in_?[M]"),
    )

    def fit(self, X: Any, y: Any = None) -> MatrixFactorization:
        """Fit to a table of shape (rows, columns); NaN marks missing cells."""
        self._check_options()
        X = self._validated(X, True)
        seen, values, parameters = self._learn_cells(X)
        problem = self._problem(values)
        with show_beginning("matrix factorisation", self.verbose):
            start = begin(problem, codes_of(values, self._family), parameters, generator(self.random_state))
            found = climb(problem, start, self._rules(), self.verbose)
        self._store(found.state, problem.energy(found.state.parameters).kind, int(seen.sum()))
        self.trace_, self.n_iter_, self.converged_ = found.trace - self._shift(seen), found.n_iter, found.converged
        self.message_ = found.message
        self._look_at_counts(problem.values, self._products(problem.cells, self._rows))
        return self

    def transform(self, X: Any, *, return_std: bool = False, return_cov: bool = False) -> Any:
        """Posterior means of the latents u of rows, (n, K), the columns being as fitted.

        If asked, standard deviations, (n, K), or covariances, (n, K, K), come with them.
        """
        rows, k = self._place(X)[0], self.n_components
        return latent_moments(rows.mean[:, :k], lambda: rows.cov[:, :k, :k], return_std, return_cov)

    def score_samples(self, X: Any) -> Array:
        """A bound on (or approximation of) log p of the observed cells of every row, the columns being as fitted."""
        values = self._encode(self._validated(X, False))
        return self._placed(values)[1] - (~np.isnan(values)).sum(axis=1) * np.log(self.scale_)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of `score_samples`."""
        return float(self.score_samples(X).mean())

    def impute(self, X: Any, *, return_std: bool = False) -> Any:
        """The table with its missing cells filled by their predictive means; rows are placed anew.

        Parameters
        ----------
        X : array-like of shape (n, columns)
        return_std : bool
            Also return predictive standard deviations, 0 where a cell was observed.

        Returns
        -------
        ndarray of shape (n, columns), or a pair of them
        """
        X = self._validated(X, False)
        rows, _ = self._placed(self._encode(X))
        gaps = Cells(*np.nonzero(np.isnan(X)))
        filled, std = X.copy(), np.zeros_like(X)
        if len(gaps.row):
            filled[gaps], std[gaps] = self._moments(self._predictive(gaps, rows))
        return (filled, std) if return_std else filled

    def predict_cells(self, rows: ArrayLike, columns: ArrayLike, *, return_std: bool = False) -> Any:
        """Predictive means of cells of the fitted table, and with `return_std` their standard deviations.

        Parameters
        ----------
        rows, columns : array-like of int, of one length
            Positions in the fitted table.
        """
        return self._answer(self._predictive(self._cells(rows, columns), self._rows), return_std)

    def predict_cell_interval(self, rows: ArrayLike, columns: ArrayLike, coverage: float = 0.9) -> Array:
        """Central predictive intervals of cells of the fitted table: columns low and high."""
        return self._interval(self._predictive(self._cells(rows, columns), self._rows), coverage)

    def log_density_of_cells(self, rows: ArrayLike, columns: ArrayLike, y: ArrayLike) -> Array:
        """Log predictive density (or probability) of values y of cells of the fitted table."""
        return self._log_density(self._predictive(self._cells(rows, columns), self._rows), y)

    # --- rows, columns, cells

    def _problem(self, values: Array) -> MatrixProblem:
        cells = Cells(*np.nonzero(~np.isnan(values)))
        below = self.energy == "bound"
        shape = (values.shape[0], values.shape[1])
        return MatrixProblem(cells, values[cells], self._family, shape, self.n_components, below)

    def _place(self, X: Any) -> tuple[Side, Array]:
        return self._placed(self._encode(self._validated(X, False)))

    def _placed(self, values: Array) -> tuple[Side, Array]:
        return place_rows(self._problem(values), self._state)

    @property
    def _rows(self) -> Side:
        check_is_fitted(self, "row_mean_")
        return Side(self.row_mean_, self.row_cov_)

    @property
    def _state(self) -> MatrixState:
        columns = Side(self.column_mean_, self.column_cov_)
        row_prior = SidePrior(np.zeros_like(self.row_variance_), self.row_variance_)
        column_prior = SidePrior(self.column_prior_mean_, self.column_variance_)
        return MatrixState(self._rows, columns, row_prior, column_prior, self.likelihood_, 0.0)

    def _cells(self, rows: ArrayLike, columns: ArrayLike) -> Cells:
        check_is_fitted(self, "row_mean_")
        sizes = (len(self.row_mean_), len(self.column_mean_))
        return Cells(*check_positions(("rows", "columns"), (rows, columns), sizes))

    def _predictive(self, cells: Cells, rows: Side) -> Predictive:
        return self._predictive_of(*self._products(cells, rows))

    def _products(self, cells: Cells, rows: Side) -> tuple[Array, Array]:
        """Means and variances of uᵀv of cells."""
        return product_moments(cells, rows, Side(self.column_mean_, self.column_cov_))

    def _store(self, state: MatrixState, kind: str, cells: int) -> None:
        self.row_mean_, self.row_cov_ = state.rows
        self.column_mean_, self.column_cov_ = state.columns
        self.row_variance_ = state.row_prior.variance
        self.column_prior_mean_, self.column_variance_ = state.column_prior
        self.likelihood_, self.evidence_kind_ = state.parameters, kind
        self.lower_bound_ = state.bound - cells * float(np.log(self.scale_))
        self._describe()

    def _describe(self) -> None:
        """What follows from the stored Gaussians."""
        k = self.n_components
        self.row_factors_, self.row_intercepts_ = self.row_mean_[:, :k], self.row_mean_[:, k] * self.scale_
        self.components_ = self.column_mean_[:, :k].T * self.scale_
        self.components_std_ = np.sqrt(np.einsum("nkk->kn", self.column_cov_)[:k]) * self.scale_
        self.column_intercepts_ = self.column_mean_[:, k + 1] * self.scale_ + self.centre_
        self.relevances_ = self.column_variance_[:k] * self.scale_**2
        self._describe_parameters()

    def _after_loading(self) -> None:
        self._describe()

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _validated(self, X: Any, reset: bool) -> Array:
        if not reset:
            check_is_fitted(self, "row_mean_")
        least = 2 if reset else 1
        found = validate_data(
            self,
            check_numeric("X", X),
            reset=reset,
            dtype=np.float64,
            ensure_all_finite="allow-nan",
            ensure_min_samples=least,
        )
        return np.asarray(check_summable("X", found))
