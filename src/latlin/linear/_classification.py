"""Classifiers: class probabilities with the posterior integrated out, and decisions by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from latlin.distributed.checkpoints import refuse_checkpoint
from latlin.distributed.opening import is_blocked, rowwise
from latlin.inference.engine import Engine
from latlin.linear import _checks
from latlin.linear._base import LinearEstimator
from latlin.linear._checks import (
    FirstPass,
    LabelCoding,
    Loss,
    at_least_two,
    check_actions,
    chosen,
    class_index,
    loss_table,
)
from latlin.linear._learning import LearntFit
from latlin.linear._model_checks import Labels
from latlin.linear._predict import LinearPredictors
from latlin.linear._problem import LinearProblem, Summarised
from latlin.linear._tables import column_of
from latlin.numerics.arrays import Array
from latlin.numerics.options import jobs
from latlin.numerics.rng import RandomState


class Classification(ClassifierMixin, LinearEstimator):
    """`fit` and predictions of class labels; a subclass says how labels become responses, and those probabilities."""

    _labelled = True

    def __init__(
        self,
        *,
        engine: str | Engine = "auto",
        prior_scale: Any = "auto",
        ard: bool = False,
        fit_intercept: bool = True,
        intercept_scale: float | None = None,
        standardise: bool = True,
        n_jobs: int | None = None,
        hyperparameters: str = "auto",
        priors: Any = None,
        warm_start: bool = False,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            engine=engine,
            prior_scale=prior_scale,
            ard=ard,
            fit_intercept=fit_intercept,
            intercept_scale=intercept_scale,
            standardise=standardise,
            hyperparameters=hyperparameters,
            priors=priors,
            warm_start=warm_start,
            random_state=random_state,
            verbose=verbose,
        )
        self.n_jobs = n_jobs

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        *,
        checkpoint: Any = None,
        **table: Any,
    ) -> Self:
        """Learn from rows X (n, n_features), dense or sparse, and labels y (n,).

        Parameters
        ----------
        X : data frame, array, sparse matrix, Dask collection, large memory map or blocks of shape (n, n_features)
            Columns of texts, categories and truth values become numbers. Rows that are not all in memory are fitted
            block by block.
        y : array of shape (n,) or name of a column of X
            Labels of two or more classes.
        sample_weight : array of shape (n,) or name of a column of X, optional
            A row of weight 2 counts as two rows.
        offset : array of shape (n,) or, for several classes, (n, n_classes), or name of a column of X, optional
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

    def _fit(self, X: Any, y: Any, sample_weight: Any, offset: Any, checkpoint: Any) -> Self:
        """Learn from numbers."""
        if is_blocked(X):
            return self._fit_blocks(X, y, sample_weight, offset, checkpoint)
        refuse_checkpoint(checkpoint)
        X, y = self._training(X, y)
        check_classification_targets(y)
        weight = _checks.weights(sample_weight, X.shape[0])
        self.classes_ = self._ordered(_classes(y, weight))
        codes = self._codes(y)
        problems = self._problems(X, codes, weight, _checks.offsets(offset, X.shape[0], len(codes)))
        self._store(problems[0].design, self._fit_all(problems), X.dtype)
        place = class_index(y if weight is None else y[weight > 0.0], self.classes_)
        return self._look_back(problems, Labels(place, self.classes_))

    def _fit_all(self, problems: list[LinearProblem]) -> list[LearntFit]:
        """One fit per response, side by side."""
        before = self._earlier(len(problems))
        fits = Parallel(n_jobs=jobs(self.n_jobs))(
            delayed(self._fit_one)(problem, earlier) for problem, earlier in zip(problems, before, strict=True)
        )
        return list(fits)

    def _described_codings(self, table: FirstPass) -> tuple[list[LabelCoding], Summarised]:
        assert table.labels is not None  # the first pass looked for them
        self.classes_ = self._ordered(at_least_two(table.labels.values))
        place = class_index(self.classes_, table.labels.values)
        return self._codings(), Summarised(table, table.labels.weight[place])

    def _ordered(self, classes: NDArray[Any]) -> NDArray[Any]:
        """The classes in the order of the columns of `predict_proba`."""
        return classes

    def _codings(self) -> list[LabelCoding]:
        """How labels become numbers, one per response."""
        raise NotImplementedError

    def _codes(self, y: NDArray[Any]) -> list[Array]:
        """The labels as numbers, one vector per response."""
        return [coding(y) for coding in self._codings()]

    def _log_probabilities(self, latents: list[LinearPredictors]) -> Array:
        """Logarithms of class probabilities, shape (n, n_classes)."""
        raise NotImplementedError

    @rowwise
    def predict_proba(self, X: Any, offset: Any = None) -> Array:
        """Class probabilities, posterior integrated; several classes: each against the rest, normalised.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Columns in the order of `classes_`.
        """
        _, latents, dtype = self._latents(X, offset)
        return np.exp(self._log_probabilities(latents)).astype(dtype)

    @rowwise
    def predict_log_proba(self, X: Any, offset: Any = None) -> Array:
        """Logarithms of `predict_proba`, exact also where that rounds to 0 or 1."""
        _, latents, dtype = self._latents(X, offset)
        return self._log_probabilities(latents).astype(dtype)

    @rowwise
    def predict(self, X: Any, offset: Any = None) -> NDArray[Any]:
        """The most probable class of each row."""
        _, latents, _ = self._latents(X, offset)
        return self.classes_[self._log_probabilities(latents).argmax(axis=1)]

    def log_predictive_density(self, X: Any, y: Any, offset: Any = None) -> Array:
        """log P(y | x, data) of each row, in nat, posterior integrated."""
        _, latents, _ = self._latents(X, offset)
        labels = np.asarray(column_of(self, X, "y", y))
        table = self._log_probabilities(latents)
        if labels.shape != table.shape[:1]:
            raise ValueError(f"y must have shape {table.shape[:1]}, one label per row, got shape {labels.shape}")
        return table[np.arange(len(labels)), class_index(labels, self.classes_)]

    def decide(self, X: Any, actions: Sequence[Any], loss: Loss, offset: Any = None) -> NDArray[Any]:
        """The action of least expected loss for each row.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, n_features)
        actions : sequence
        loss : array of shape (n_actions, n_classes) or callable
            The loss of each action under each class, or loss(action, labels).
        offset : array, optional

        Returns
        -------
        ndarray of shape (n,)
            Entries of `actions`.
        """
        listed = check_actions(actions)
        shares = self.predict_proba(X, offset).astype(float)
        return chosen(listed, loss_table(listed, loss, self.classes_) @ shares.T)


def _classes(y: NDArray[Any], weight: Array | None) -> NDArray[Any]:
    """The labels of the rows that count; at least two."""
    return at_least_two(np.unique(y if weight is None else y[weight > 0.0]))
