"""Exposures beside offsets: families whose size is e^x take the time, area or population that a row stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from numpy.typing import ArrayLike, NDArray

from latlin.linear._checks import exposed
from latlin.linear._decide import Loss
from latlin.linear._regression import Regression
from latlin.linear._tables import column_of
from latlin.numerics.arrays import Array
from latlin.numerics.rng import RandomState


class Exposed(Regression):
    """`exposure=` in every method that takes an offset: log exposure is added to the offset."""

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        exposure: Any = None,
        *,
        checkpoint: Any = None,
        **table: Any,
    ) -> Self:
        """Learn from rows X (n, n_features), dense or sparse, and y (n,).

        Parameters
        ----------
        X : data frame, array, sparse matrix, Dask collection, large memory map or blocks of shape (n, n_features)
            Columns of texts, categories and truth values become numbers. Rows that are not all in memory are fitted
            block by block.
        y : array of shape (n,) or name of a column of X
        sample_weight : array of shape (n,) or name of a column of X, optional
            A row of weight 2 counts as two rows.
        offset : array of shape (n,) or name of a column of X, optional
            Added to the linear predictor, a logarithm, with coefficient one.
        exposure : array of shape (n,) or name of a column of X, optional
            Time, area or population of a row, positive: the mean of y is proportional to it.
        checkpoint : path, optional
            For rows in blocks: keep the state of the fit in this file, and go on from it if it exists.
        **table
            How columns become numbers: see `BayesianLinearRegression.fit`.
        """
        read = self._read(X, table, y=y, sample_weight=sample_weight, offset=offset, exposure=exposure)
        return self._fit_exposed(**read, checkpoint=checkpoint)

    def _fit_exposed(self, X: Any, y: Any, sample_weight: Any, offset: Any, exposure: Any, checkpoint: Any) -> Self:
        """Learn from numbers."""
        return self._fit(X, y, sample_weight, exposed(offset, exposure), checkpoint)

    def _shift(self, X: Any, offset: Any, exposure: Any) -> Any:
        """Offsets and logarithms of exposures of new rows together."""
        return exposed(column_of(self, X, "offset", offset), column_of(self, X, "exposure", exposure))

    def predict(self, X: Any, offset: Any = None, exposure: Any = None, **options: Any) -> Any:
        """Predicted mean of y of each row; with return_std or return_cov also its standard deviation or covariance."""
        return super().predict(X, self._shift(X, offset, exposure), **options)

    def predict_latent(self, X: Any, offset: Any = None, exposure: Any = None, **options: Any) -> Any:
        """The linear predictor, a logarithm, of each row: see `BayesianLinearRegression.predict_latent`."""
        return super().predict_latent(X, self._shift(X, offset, exposure), **options)

    def predict_quantiles(
        self, X: Any, quantiles: ArrayLike = (0.05, 0.5, 0.95), offset: Any = None, exposure: Any = None
    ) -> Array:
        """Quantiles of a new y at each row, shape (n, number of quantiles)."""
        return super().predict_quantiles(X, quantiles, self._shift(X, offset, exposure))

    def predict_interval(self, X: Any, coverage: float = 0.9, offset: Any = None, exposure: Any = None) -> Array:
        """The central interval that holds a new y with probability `coverage`: columns low and high."""
        return super().predict_interval(X, coverage, self._shift(X, offset, exposure))

    def log_predictive_density(self, X: Any, y: Any, offset: Any = None, exposure: Any = None) -> Array:
        """log p(y | x, data) of each row, in nat, posterior integrated."""
        return super().log_predictive_density(X, y, self._shift(X, offset, exposure))

    def quantile_residuals(
        self, X: Any, y: Any, offset: Any = None, random_state: RandomState = None, exposure: Any = None
    ) -> Array:
        """Randomised quantile residuals: standard normal, one per row, if the model is right."""
        return super().quantile_residuals(X, y, self._shift(X, offset, exposure), random_state)

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: RandomState = None, offset: Any = None, exposure: Any = None
    ) -> Array:
        """Joint draws of new y at the rows, shape (n, n_samples); a column belongs to one draw of the coefficients."""
        return super().sample_y(X, n_samples, random_state, self._shift(X, offset, exposure))

    def decide(
        self, X: Any, actions: Sequence[Any], loss: Loss, offset: Any = None, exposure: Any = None
    ) -> NDArray[Any]:
        """The action of least expected loss for each row: see `BayesianLinearRegression.decide`."""
        return super().decide(X, actions, loss, self._shift(X, offset, exposure))
