"""Classifiers: class probabilities with the posterior integrated out, decisions by them, one class against the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from latlin.distributed.opening import is_blocked, refuse_checkpoint, rowwise
from latlin.inference.engine import Engine
from latlin.linear._base import LinearEstimator, shared_options
from latlin.linear._blocks import FirstPass, Summarised
from latlin.linear._learning import LearntFit
from latlin.linear._model_checks import Labels
from latlin.linear._predict import LinearPredictors, central_levels, check_levels, log_density
from latlin.linear._problem import LabelCoding, LinearProblem, check_offsets, check_weights, offset_of
from latlin.linear._rows import (
    Loss,
    OneLabel,
    check_actions,
    check_classes,
    choose_actions,
    class_index,
    column_of,
    loss_table,
    places_of,
)
from latlin.linear._stream import StreamingClasses
from latlin.numerics.arrays import Array, check_sortable
from latlin.numerics.options import AutoOrNumbers, PerRow, Rows, StrPath, check_jobs, check_whole
from latlin.numerics.rng import RandomState
from latlin.potentials.families import FAMILIES, Family
from latlin.potentials.predictive import class_pit, residuals_of
from latlin.priors.base import PriorsLike

# --- Classifiers: class probabilities with the posterior integrated out, and decisions by them.


class Classification(ClassifierMixin, LinearEstimator):
    """`fit` and predictions of class labels; a subclass says how labels become responses, and those probabilities."""

    _labelled = True

    def __init__(
        self,
        *,
        engine: str | Engine = "auto",
        prior_scale: AutoOrNumbers = "auto",
        prior_mean: ArrayLike = 0.0,
        ard: bool = False,
        fit_intercept: bool = True,
        intercept_scale: float | None = None,
        standardise: bool = True,
        n_jobs: int | None = None,
        hyperparameters: str = "auto",
        priors: PriorsLike = None,
        warm_start: bool = False,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(**shared_options(locals()))
        self.n_jobs = n_jobs

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

    def _fit(self, X: Rows, y: PerRow, sample_weight: PerRow, offset: PerRow, checkpoint: StrPath | None) -> Self:
        """Learn from numbers."""
        if is_blocked(X):
            return self._fit_blocks(X, y, sample_weight, offset, checkpoint)
        refuse_checkpoint(checkpoint)
        X, y = self._training(X, check_sortable("y", y))
        check_classification_targets(y)
        weight = check_weights(sample_weight, X.shape[0])
        self.classes_ = self._ordered(_classes(y, weight))
        codes = self._codes(y)
        problems = self._problems(X, codes, weight, check_offsets(offset, X.shape[0], len(codes)))
        self._store(problems[0].design, self._fit_all(problems), X.dtype)
        place = class_index(y if weight is None else y[weight > 0.0], self.classes_)
        return self._look_back(problems, Labels(place, self.classes_))

    def _fit_all(self, problems: list[LinearProblem]) -> list[LearntFit]:
        """One fit per response, side by side."""
        before = self._earlier(len(problems))
        fits = Parallel(n_jobs=check_jobs(self.n_jobs))(
            delayed(self._fit_one)(problem, earlier) for problem, earlier in zip(problems, before, strict=True)
        )
        return list(fits)

    def _described_codings(self, table: FirstPass) -> tuple[list[LabelCoding], Summarised]:
        assert table.labels is not None  # the first pass looked for them
        self.classes_ = self._ordered(check_classes(table.labels.values))
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

    def _answer(self, latents: list[LinearPredictors]) -> None:
        count = self._log_probabilities(latents).shape[1]
        if self.classes_.shape != (count,) or len(np.unique(self.classes_)) != count:
            raise ValueError(f"classes_ must hold {count} different labels, got {self.classes_!r:.80}")

    @rowwise
    def predict_proba(self, X: Rows, offset: PerRow = None) -> Array:
        """Class probabilities, posterior integrated; several classes: each against the rest, normalised.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Columns in the order of `classes_`.
        """
        _, latents, dtype = self._latents(X, offset)
        return np.exp(self._log_probabilities(latents)).astype(dtype)

    @rowwise
    def predict_log_proba(self, X: Rows, offset: PerRow = None) -> Array:
        """Logarithms of `predict_proba`, exact also where that rounds to 0 or 1."""
        _, latents, dtype = self._latents(X, offset)
        return self._log_probabilities(latents).astype(dtype)

    @rowwise
    def predict(self, X: Rows, offset: PerRow = None) -> NDArray[Any]:
        """The most probable class of each row."""
        _, latents, _ = self._latents(X, offset)
        return self.classes_[self._log_probabilities(latents).argmax(axis=1)]

    def score(self, X: Rows, y: PerRow, sample_weight: PerRow = None) -> float:
        """The share of rows whose class is predicted."""
        return float(super().score(X, column_of(self, X, "y", y), sample_weight))

    def log_predictive_density(self, X: Rows, y: PerRow, offset: PerRow = None) -> Array:
        """log P(y | x, data) of each row, in nat, posterior integrated."""
        _, latents, _ = self._latents(X, offset)
        table = self._log_probabilities(latents)
        place = places_of(column_of(self, X, "y", y), len(table), self.classes_)
        return table[np.arange(len(table)), place]

    def quantile_residuals(self, X: Rows, y: PerRow, offset: PerRow = None, random_state: RandomState = None) -> Array:
        """Randomised quantile residuals: standard normal, one per row, if the model is right (Dunn and Smyth, 1996).

        The classes are taken in the order of `classes_`.
        """
        table = np.asarray(self.predict_proba(X, offset), float)
        place = places_of(column_of(self, X, "y", y), len(table), self.classes_)
        return residuals_of(class_pit(table, place, self._generator(random_state)))

    def decide(self, X: Rows, actions: Sequence[Any], loss: Loss, offset: PerRow = None) -> NDArray[Any]:
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
        return choose_actions(listed, loss_table(listed, loss, self.classes_) @ shares.T)


def _classes(y: NDArray[Any], weight: Array | None) -> NDArray[Any]:
    """The labels of the rows that count; at least two."""
    return check_classes(np.unique(y if weight is None else y[weight > 0.0]))


# --- Several classes one against the rest, and probit regression.


class OneVersusRest(StreamingClasses, Classification):
    """One binary response for two classes, one per class for more, normalised."""

    def _codings(self) -> list[LabelCoding]:
        positive = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        return [OneLabel(label) for label in positive]

    def _response_names(self) -> list[str]:
        return [""] if len(self._fits) == 1 else [f"{label}: " for label in self.classes_]

    def _link(self, x: Array) -> Array:
        """P(y = 1 | x)."""
        raise NotImplementedError

    def _log_rates(self, latents: list[LinearPredictors]) -> tuple[Array, Array]:
        """log P(y_k = 1) and log P(y_k = 0) of each response, shape (n, responses)."""
        count = len(latents[0].mean)
        signs = [self._likelihood().observe(np.full(count, sign)) for sign in (1.0, -1.0)]
        yes, no = (np.stack([log_density(sign, at) for at in latents], axis=1) for sign in signs)
        return yes, no

    def _log_probabilities(self, latents: list[LinearPredictors]) -> Array:
        yes, no = self._log_rates(latents)
        table = np.concatenate([no, yes], axis=1) if yes.shape[1] == 1 else yes
        return table - np.logaddexp.reduce(table, axis=1, keepdims=True)

    @rowwise
    def decision_function(self, X: Rows, offset: PerRow = None) -> Array:
        """Log odds of the integrated probabilities: of the second class of two (n,), or of each against the others."""
        _, latents, dtype = self._latents(X, offset)
        yes, no = self._log_rates(latents)
        odds = (yes - no).astype(dtype)
        return odds[:, 0] if odds.shape[1] == 1 else odds

    def predict_quantiles(self, X: Rows, quantiles: ArrayLike = (0.05, 0.5, 0.95), offset: PerRow = None) -> Array:
        """Posterior quantiles of the probability of the second class of two, shape (n, number of quantiles).

        Several classes: shape (n, n_classes, number of quantiles), of each against the rest, not normalised; of a
        softmax those of 2,000 draws, the same for every row and every call.
        """
        q = check_levels("quantiles", quantiles)
        _, latents, dtype = self._latents(X, offset)
        return self._quantiles(latents, q, dtype)

    def _quantiles(self, latents: list[LinearPredictors], q: Array, dtype: Any) -> Array:
        parts = [self._link(at.quantile(q)).astype(dtype) for at in latents]
        return parts[0] if len(parts) == 1 else np.stack(parts, axis=1)

    def predict_interval(self, X: Rows, coverage: float = 0.9, offset: PerRow = None) -> Array:
        """The central posterior interval of the class probability: last axis low and high."""
        return self.predict_quantiles(X, central_levels(coverage), offset)

    def sample_y(
        self, X: Rows, n_samples: int = 1, random_state: RandomState = None, offset: PerRow = None
    ) -> NDArray[Any]:
        """Draws of labels at the rows, shape (n, n_samples); a column belongs to one draw of the coefficients."""
        offset, X = column_of(self, X, "offset", offset), self._check_rows(X)
        n_samples, rng = check_whole("n_samples", n_samples), self._generator(random_state)
        shift, rows = check_offsets(offset, X.shape[0], len(self._fits)), self._design.rows(X)
        return self.classes_[self._draw_places(rows, shift, n_samples, rng)]

    def _draw_places(self, rows: Any, offset: PerRow, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draws of the class of each row as its place in `classes_`, shape (n, count)."""
        shares = []
        for k, fit in enumerate(self._fits):
            own = offset_of(offset, k)
            x = np.asarray(rows @ fit.posterior.sample(count, rng).T) + (0.0 if own is None else own[:, None])
            shares.append(self._link(x))
        table = np.stack([1.0 - shares[0], shares[0]] if len(shares) == 1 else shares)
        below = np.cumsum(table / table.sum(axis=0), axis=0)[:-1]
        return np.sum(rng.random(below.shape[1:]) > below, axis=0)


class BayesianProbitRegression(OneVersusRest):
    """P(y = 1) = Φ(xᵀw + b) with the normal distribution function Φ; else as `BayesianLogisticRegression`.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.linear import BayesianProbitRegression
    >>> X = np.array([[-2.0], [-1.0], [-0.5], [0.4], [1.2], [2.5]])
    >>> model = BayesianProbitRegression(engine="ep", prior_scale=1.0).fit(X, [0, 0, 1, 0, 1, 1])
    >>> model.predict_proba([[0.0]]).round(2)
    array([[0.51, 0.49]])
    """

    _name = "probit"

    def _family(self) -> Family:
        return FAMILIES["probit"]

    def _link(self, x: Array) -> Array:
        return np.asarray(ndtr(x))
