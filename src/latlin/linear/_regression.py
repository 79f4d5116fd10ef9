"""Regressors: predictions of numbers with their uncertainty; exposures, and families given by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted

from latlin.distributed.opening import is_blocked, refuse_checkpoint, rowwise
from latlin.linear._base import LinearEstimator
from latlin.linear._predict import (
    LinearPredictors,
    check_levels,
    draw_observations,
    draw_weights,
    log_density,
    predictive,
    predictive_covariance,
    predictive_interval,
    predictive_quantiles,
)
from latlin.linear._problem import check_offsets, check_weights
from latlin.linear._rows import Loss, add_exposure, check_actions, choose_actions, column_of, loss_table
from latlin.numerics.alerts import alert
from latlin.numerics.arrays import Array
from latlin.numerics.options import PerRow, Rows, StrPath, check_whole, real_array
from latlin.numerics.rng import RandomState
from latlin.potentials.checks import RefusedSites
from latlin.potentials.families import Family, find_family
from latlin.potentials.predictive import residuals_of

#: nodes over which a loss is averaged
NODES = 64


class Regression(RegressorMixin, LinearEstimator):
    """`fit` and predictions of a single numeric response."""

    def fit(
        self,
        X: Rows,
        y: PerRow = None,
        sample_weight: PerRow = None,
        offset: PerRow = None,
        *,
        checkpoint: StrPath | None = None,
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
            Added to the linear predictor with coefficient one.
        checkpoint : path, optional
            For rows in blocks: keep the state of the fit in this file (several fits: this name and a number), and go
            on from it if it exists.
        **table
            How columns become numbers: missing, drop, categorical, dates, numbers, decimal, coding and reference of
            `latlin.datasets.learn_encoding`. Missing values are refused unless `missing` says what to do with them.
        """
        read = self._read(X, table, y=y, sample_weight=sample_weight, offset=offset)
        return self._fit(**read, checkpoint=checkpoint)

    def _fit(self, X: Rows, y: PerRow, sample_weight: PerRow, offset: PerRow, checkpoint: Any) -> Self:
        """Learn from numbers."""
        if is_blocked(X):
            return self._fit_blocks(X, y, sample_weight, offset, checkpoint)
        refuse_checkpoint(checkpoint)
        several = self._columns() > 1 and np.asarray(y).ndim == 2 and 1 < np.asarray(y).shape[1] <= self._columns()
        X, y = self._training(X, y, y_numeric=True, multi_output=several)
        weight, shift = check_weights(sample_weight, X.shape[0]), check_offsets(offset, X.shape[0])
        problems = self._problems(X, [np.asarray(y, float)], weight, shift)
        (before,) = self._earlier(1)
        try:
            fit = self._fit_one(problems[0], before)
        except RefusedSites as error:
            # rows of weight zero have no site
            raise ValueError(error.of_rows(None if weight is None else np.flatnonzero(weight > 0.0))) from None
        self._store(problems[0].design, [fit], X.dtype)
        return self._look_back(problems)

    def _shaped(self, values: Array) -> Any:
        return self._cast(values[0])

    def _centre(self, at: Any) -> Array:
        """The point prediction: the mean of y, or its median where the family has no mean."""
        return np.asarray(at.mean if self._family().link == "identity" else predictive(self._likelihood(), at).mean)

    def _answer(self, latents: list[LinearPredictors]) -> None:
        self._centre(latents[0])
        predictive(self._likelihood(), latents[0])

    @rowwise
    def predict(self, X: Rows, offset: PerRow = None, *, return_std: bool = False, return_cov: bool = False) -> Any:
        """Predicted y of each row and, if asked, its standard deviation or covariance, noise included.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, n_features)
        offset : array of shape (n,), optional
        return_std, return_cov : bool

        Returns
        -------
        mean (n,), or (mean, std), or (mean, cov)
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov cannot both be True; the diagonal of cov holds the variances")
        rows, (at,), dtype = self._latents(X, offset)
        centre = self._centre(at).astype(dtype)
        if return_std:
            return centre, np.sqrt(predictive(self._likelihood(), at).variance).astype(dtype)
        if return_cov:
            covariance = predictive_covariance(self._likelihood(), self._fits[0].posterior, rows, at)
            return centre, covariance.astype(dtype)
        return centre

    def predict_quantiles(self, X: Rows, quantiles: ArrayLike = (0.05, 0.5, 0.95), offset: PerRow = None) -> Array:
        """Quantiles of a new y at each row, shape (n, number of quantiles)."""
        q = check_levels("quantiles", quantiles)
        _, (at,), dtype = self._latents(X, offset)
        return predictive_quantiles(self._likelihood(), at, q).astype(dtype)

    def predict_interval(self, X: Rows, coverage: float = 0.9, offset: PerRow = None) -> Array:
        """An interval that holds a new y with probability `coverage`: columns low and high.

        It is central. Whole numbers seldom allow exactly that probability: of their central interval one end moves to
        where the probability is nearest to `coverage`.
        """
        _, (at,), dtype = self._latents(X, offset)
        return predictive_interval(self._likelihood(), at, coverage).astype(dtype)

    def log_predictive_density(self, X: Rows, y: PerRow, offset: PerRow = None) -> Array:
        """log p(y | x, data) of each row, in nat, posterior integrated."""
        _, (at,), _ = self._latents(X, offset)
        observed = real_array("y", column_of(self, X, "y", y))
        if observed.shape != at.mean.shape:
            raise ValueError(f"y must have shape {at.mean.shape}, one number per row, got shape {observed.shape}")
        return log_density(self._observed(observed), at)

    def score(self, X: Rows, y: PerRow, sample_weight: PerRow = None) -> float:
        """R² of the predictions: 1 is perfect, 0 is the mean of y."""
        return float(super().score(X, column_of(self, X, "y", y), sample_weight))

    def sample_y(self, X: Rows, n_samples: int = 1, random_state: RandomState = None, offset: PerRow = None) -> Array:
        """Joint draws of new y at the rows, shape (n, n_samples); a column belongs to one draw of the coefficients."""
        rng = self._generator(random_state)
        x, label = self._drawn_predictors(X, n_samples, rng, offset)
        return draw_observations(self._likelihood(), x.T, label, rng).T

    def quantile_residuals(self, X: Rows, y: PerRow, offset: PerRow = None, random_state: RandomState = None) -> Array:
        """Randomised quantile residuals: standard normal, one per row, if the model is right (Dunn and Smyth, 1996).

        Φ⁻¹(u) with u drawn evenly between P(new < y) and P(new ≤ y) of the predictive distribution, which for
        measured numbers are the same. Of rows that were not fitted they show what a family misses: a spread above
        one where intervals are too narrow, large ones at zero where there are too many zeros.
        """
        return residuals_of(self._pit(X, y, offset, random_state))

    def _pit(self, X: Rows, y: PerRow, offset: PerRow, random_state: RandomState) -> Array:
        """Probability integral transforms: even on (0, 1) if the model is right."""
        _, (at,), _ = self._latents(X, offset)
        observed = real_array("y", column_of(self, X, "y", y))
        if observed.shape != at.mean.shape:
            raise ValueError(f"y must have shape {at.mean.shape}, one number per row, got shape {observed.shape}")
        return predictive(self._likelihood(), at).pit(observed, self._generator(random_state))

    def _drawn_predictors(
        self, X: Rows, n_samples: int, rng: np.random.Generator, offset: PerRow
    ) -> tuple[Array, NDArray[np.int64]]:
        """Linear predictors of the rows by draws of the coefficients, shape (n, n_samples), and their components."""
        offset, X = column_of(self, X, "offset", offset), self._check_rows(X)
        shift = check_offsets(offset, X.shape[0])
        w, label = draw_weights(self._fits[0].posterior, check_whole("n_samples", n_samples), rng)
        return np.asarray(self._design.rows(X) @ w.T) + (0.0 if shift is None else shift[:, None]), label

    def decide(self, X: Rows, actions: Sequence[Any], loss: Loss, offset: PerRow = None) -> NDArray[Any]:
        """The action of least expected loss for each row.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, n_features)
        actions : sequence
        loss : callable
            loss(action, y) for an array y of possible outcomes, vectorised.
        offset : array of shape (n,), optional

        Returns
        -------
        ndarray of shape (n,)
            Entries of `actions`.
        """
        check_is_fitted(self, "posterior_")
        if not callable(loss):
            raise ValueError("loss must be a function of (action, y) for a numeric response")
        listed = check_actions(actions)
        # ⟨f(y)⟩ = ∫₀¹ f(Q(u)) du over the quantile function Q
        node, weight = np.polynomial.legendre.leggauss(NODES)
        outcomes = self.predict_quantiles(X, 0.5 * (node + 1.0), offset)
        return choose_actions(listed, loss_table(listed, loss, outcomes.astype(float)) @ (0.5 * weight))


# --- Exposures beside offsets: families whose size is e^x take the time, area or population that a row stands for.


def _row_count(X: Rows) -> int | None:
    """How many rows a table has, where that is known."""
    shape = getattr(X, "shape", None) or np.shape(X if isinstance(X, (list, tuple)) else 0)
    return int(shape[0]) if len(shape) == 2 and isinstance(shape[0], (int, np.integer)) else None


class Exposed(Regression):
    """`exposure=` in every method that takes an offset: log exposure is added to the offset."""

    def fit(
        self,
        X: Rows,
        y: PerRow = None,
        sample_weight: PerRow = None,
        offset: PerRow = None,
        exposure: Any = None,
        *,
        checkpoint: StrPath | None = None,
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
        return self._fit_read(read, checkpoint)

    def _fit_read(self, read: dict[str, Any], checkpoint: Any) -> Self:
        """Learn from the parts of a table by name."""
        return self._fit_exposed(**read, checkpoint=checkpoint)

    def _fit_exposed(
        self, X: Rows, y: PerRow, sample_weight: PerRow, offset: PerRow, exposure: Any, checkpoint: Any
    ) -> Self:
        """Learn from numbers."""
        return self._fit(X, y, sample_weight, add_exposure(offset, exposure, _row_count(X)), checkpoint)

    def _shift(self, X: Rows, offset: PerRow, exposure: Any) -> Any:
        """Offsets and logarithms of exposures of new rows together."""
        offset, exposure = column_of(self, X, "offset", offset), column_of(self, X, "exposure", exposure)
        return add_exposure(offset, exposure, _row_count(X))

    def predict(
        self,
        X: Rows,
        offset: PerRow = None,
        exposure: Any = None,
        *,
        return_std: bool = False,
        return_cov: bool = False,
    ) -> Any:
        """Predicted mean of y of each row; with return_std or return_cov also its standard deviation or covariance."""
        return super().predict(X, self._shift(X, offset, exposure), return_std=return_std, return_cov=return_cov)

    def predict_latent(
        self,
        X: Rows,
        offset: PerRow = None,
        exposure: Any = None,
        *,
        return_std: bool = False,
        return_cov: bool = False,
    ) -> Any:
        """The linear predictor, a logarithm, of each row: see `BayesianLinearRegression.predict_latent`."""
        return super().predict_latent(X, self._shift(X, offset, exposure), return_std=return_std, return_cov=return_cov)

    def predict_quantiles(
        self, X: Rows, quantiles: ArrayLike = (0.05, 0.5, 0.95), offset: PerRow = None, exposure: Any = None
    ) -> Array:
        """Quantiles of a new y at each row, shape (n, number of quantiles)."""
        return super().predict_quantiles(X, quantiles, self._shift(X, offset, exposure))

    def predict_interval(self, X: Rows, coverage: float = 0.9, offset: PerRow = None, exposure: Any = None) -> Array:
        """An interval that holds a new y with probability `coverage`: columns low and high.

        Whole numbers seldom allow exactly that: of their central interval one end moves to where the probability is
        nearest to `coverage`.
        """
        return super().predict_interval(X, coverage, self._shift(X, offset, exposure))

    def log_predictive_density(self, X: Rows, y: PerRow, offset: PerRow = None, exposure: Any = None) -> Array:
        """log p(y | x, data) of each row, in nat, posterior integrated."""
        return super().log_predictive_density(X, y, self._shift(X, offset, exposure))

    def quantile_residuals(
        self, X: Rows, y: PerRow, offset: PerRow = None, random_state: RandomState = None, exposure: Any = None
    ) -> Array:
        """Randomised quantile residuals: standard normal, one per row, if the model is right."""
        return super().quantile_residuals(X, y, self._shift(X, offset, exposure), random_state)

    def sample_y(
        self, X: Rows, n_samples: int = 1, random_state: RandomState = None, offset: PerRow = None, exposure: Any = None
    ) -> Array:
        """Joint draws of new y at the rows, shape (n, n_samples); a column belongs to one draw of the coefficients."""
        return super().sample_y(X, n_samples, random_state, self._shift(X, offset, exposure))

    def decide(
        self, X: Rows, actions: Sequence[Any], loss: Loss, offset: PerRow = None, exposure: Any = None
    ) -> NDArray[Any]:
        """The action of least expected loss for each row: see `BayesianLinearRegression.decide`."""
        return super().decide(X, actions, loss, self._shift(X, offset, exposure))


# --- Estimators whose family is an option, given by name or chosen by the evidence.


AUTO = "auto"
#: nats by which a family must beat a simpler one that comes before it
GAIN = 1.0


class Tried(NamedTuple):
    """A candidate's fit, and what it warned of."""

    fitted: ChosenFamily
    warned: list[warnings.WarningMessage]

    @property
    def log_evidence(self) -> float:
        return float(self.fitted.log_evidence_)

    def __str__(self) -> str:
        return f"{self.fitted.family} {self.log_evidence:.2f}"


class ChosenFamily(Regression):
    """Regression by one of several families; "auto" fits some and keeps one by its evidence.

    A subclass names its families, those that "auto" compares from the simplest on, and has one constructor argument of
    the same name for every parameter of them.
    """

    #: families by name, and those that "auto" compares
    _families: ClassVar[Mapping[str, Family]] = {}
    _candidates: ClassVar[tuple[str, ...]] = ()
    _extras: tuple[str, ...] = ("family_", "choice_")

    family: str

    @classmethod
    def families(cls) -> tuple[str, ...]:
        """Names of the families."""
        return tuple(cls._families)

    def _family(self) -> Family:
        return find_family(getattr(self, "family_", self.family), self._families)

    def _given(self) -> dict[str, Any]:
        return {"prior_scale": self.prior_scale, **{name: getattr(self, name) for name in self._family().parameters}}

    def _fit_chosen(self, fit: Callable[..., Self], X: Rows, y: PerRow, data: dict[str, Any], checkpoint: Any) -> Self:
        """Run `fit` for the family that was named, or choose one."""
        find_family(self.family, dict.fromkeys([AUTO, *self._families] if self._candidates else self._families))
        if self.family != AUTO:
            self.family_, self.choice_ = self.family, ""
            return fit(X, y, **data, checkpoint=checkpoint)
        if checkpoint is not None:
            raise ValueError("checkpoint is for one family: name it instead of family='auto'")
        return self._fit_best(X, y, data)

    def _fit_best(self, X: Rows, y: PerRow, data: dict[str, Any]) -> Self:
        """Fit every candidate and keep the simplest whose evidence is within a nat of the best."""
        tried: list[Tried] = []
        refused: list[ValueError] = []
        for name in self._candidates:
            if tried and not self._is_worth(name, {each.fitted.family: each.fitted for each in tried}):
                continue
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                try:
                    tried.append(Tried(clone(self).set_params(family=name).fit(X, y, **data), warned))
                except ValueError as error:
                    refused.append(error)
        if not tried:
            raise refused[0]
        if any(each.fitted.evidence_kind_ == "none" for each in tried):
            raise ValueError("family='auto' compares evidences, and this engine has none: name a family")
        most = max(each.log_evidence for each in tried)
        best = next(each for each in tried if each.log_evidence > most - GAIN)
        options = self.get_params(deep=False)
        self.__dict__.update({name: part for name, part in vars(best.fitted).items() if name not in options})
        self.choice_ = self._reason(tried, best)
        for warning in best.warned:
            alert(str(warning.message), warning.category)
        return self

    def _is_worth(self, name: str, tried: Mapping[str, Any]) -> bool:
        """Whether a candidate may explain what those before it leave."""
        return True

    def _reason(self, tried: list[Tried], best: Tried) -> str:
        others = sorted((each for each in tried if each is not best), key=lambda each: -each.log_evidence)
        against = f" against {', '.join(map(str, others))}" if others else ""
        is_first = not others or best.log_evidence >= others[0].log_evidence
        why = "by its log evidence" if is_first else "as the simplest one near the highest log evidence"
        return f"family {self.family_} was chosen {why}: {best} ({self.evidence_kind_}){against}"

    def family_name(self) -> str:
        return str(getattr(self, "family_", self.family))

    def _footer(self) -> str:
        return "\n".join(filter(None, [super()._footer(), getattr(self, "choice_", "")]))

    def _title(self) -> str:
        return f"{super()._title()}, family {self.family_}"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


class ExposedFamily(ChosenFamily, Exposed):
    """Families whose size is e^x, with exposures."""

    def _fit_read(self, read: dict[str, Any], checkpoint: Any) -> Self:
        X, y = read.pop("X"), read.pop("y")
        return self._fit_chosen(self._fit_exposed, X, y, read, checkpoint)
