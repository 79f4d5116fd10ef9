"""From rows of features to the coordinates of the model, in the user's own units.

The unknowns are w = (coefficients, intercept), and a row of the model is (x − centre, 1): standardising is a matter of
the prior alone, whose standard deviation for coefficient j is prior_scale / sd_j, and of where the intercept is
measured. Sparse rows are scaled in this way but not centred, which would make them dense.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.sparsefuncs import mean_variance_axis

from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable

#: rows that stay in the cache
BLOCK = 512


@storable
@dataclass(frozen=True)
class Design:
    """How features become rows.

    Parameters
    ----------
    centre : ndarray of shape (n_features,)
        Subtracted from the features; zeros where nothing is.
    spread : ndarray of shape (n_features,)
        Standard deviations that the prior is measured in; ones without standardising.
    intercept : bool
        The rows end in a 1.
    """

    centre: Array
    spread: Array
    intercept: bool

    @property
    def n_features(self) -> int:
        return len(self.centre)

    @property
    def dim(self) -> int:
        """Number of unknowns."""
        return self.n_features + self.intercept

    def rows(self, X: Any) -> Any:
        """The rows of the model; sparse where `X` is and nothing is subtracted."""
        if sparse.issparse(X) and not self.centre.any():
            plain = sparse.csr_array(X, dtype=float)
            ones = sparse.csr_array(np.ones((X.shape[0], 1)))
            return sparse.csr_array(sparse.hstack([plain, ones], format="csr")) if self.intercept else plain
        rows = np.empty((X.shape[0], self.dim))
        np.subtract(X.toarray() if sparse.issparse(X) else X, self.centre, out=rows[:, : self.n_features])
        rows[:, self.n_features :] = 1.0
        return rows

    def user_rows(self) -> Any:
        """The matrix that turns w into the coefficients and the intercept at x = 0, sparse."""
        last = sparse.csr_array(np.append(-self.centre, 1.0)[None, :])
        whole = sparse.eye_array(self.n_features, self.dim, format="csr")
        return sparse.csr_array(sparse.vstack([whole, last], format="csr")) if self.intercept else whole

    def coefficients(self, w: Array) -> tuple[Array, Array]:
        """Coefficients and intercepts at x = 0 of one w or of each row of a matrix."""
        coef = w[..., : self.n_features]
        shift = -np.asarray(coef @ self.centre)
        return coef, shift + w[..., -1] if self.intercept else shift


def design_of(X: Any, weight: Array | None, *, standardise: bool, intercept: bool, absorbed: bool) -> Design:
    """The design for training rows.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, n_features)
    weight : ndarray of shape (n,) or None
    standardise : bool
        Measure the prior in standard deviations of the features, and dense features from their means.
    intercept : bool
        The model has an intercept among its unknowns.
    absorbed : bool
        A shift of the features can be made up for by the intercept or by cut points.
    """
    mean, variance = _moments(X, weight) if standardise else (np.zeros(X.shape[1]), np.ones(X.shape[1]))
    centred = absorbed and not sparse.issparse(X)
    return design_of_moments(mean, variance, standardise=standardise, intercept=intercept, centred=centred)


def design_of_moments(mean: Array, variance: Array, *, standardise: bool, intercept: bool, centred: bool) -> Design:
    """The design for features of these moments."""
    if not standardise:
        return Design(np.zeros(len(mean)), np.ones(len(mean)), intercept)
    # a constant feature has a spread of rounding only
    flat = variance <= (1e-10 * mean) ** 2
    spread = np.where(flat, 1.0, np.sqrt(np.where(flat, 1.0, variance)))
    return Design(mean if centred else np.zeros(len(mean)), spread, intercept)


def _moments(X: Any, weight: Array | None) -> tuple[Array, Array]:
    """Weighted means and variances of the columns."""
    if sparse.issparse(X):
        mean, variance = mean_variance_axis(sparse.csr_matrix(X, dtype=float), axis=0, weights=weight)
        return np.asarray(mean, float), np.asarray(variance, float)
    share = np.full(X.shape[0], 1.0 / X.shape[0]) if weight is None else weight / weight.sum()
    # plain loops: NumPy's own BLAS threads would spin beside those of SciPy, which the engines use
    mean, variance = np.einsum("n,nd->d", share, X, dtype=float), np.zeros(X.shape[1])
    for i in range(0, X.shape[0], BLOCK):
        part = X[i : i + BLOCK] - mean
        variance += np.einsum("n,nd,nd->d", share[i : i + BLOCK], part, part)
    return mean, variance
