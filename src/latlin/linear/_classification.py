"""Classifiers: probabilities with the posterior integrated out; several classes one against the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from latlin.inference.engine import Engine
from latlin.linear import _checks
from latlin.linear._base import LinearEstimator
from latlin.linear._decide import Loss, check_actions, chosen, loss_table
from latlin.linear._predict import Latent, levels, log_density, tails
from latlin.numerics.rng import RandomState

Array = NDArray[np.float64]


class Classification(ClassifierMixin, LinearEstimator):
    """`fit` and predictions of class labels; a subclass's family is `Binary`."""

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
            warm_start=warm_start,
            random_state=random_state,
            verbose=verbose,
        )
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> Self:
        """Learn from rows X (n, n_features), dense or sparse, and labels y (n,).

        Parameters
        ----------
        X : array or sparse matrix of shape (n, n_features)
            Finite numbers; missing values (NaN) are refused.
        y : array of shape (n,)
            Labels of two or more classes.
        sample_weight : array of shape (n,), optional
            A row of weight 2 counts as two rows.
        offset : array of shape (n,) or, for several classes, (n, n_classes), optional
            Added to the linear predictor with coefficient one.
        """
        X, y = self._rows(X, y, reset=True)
        check_classification_targets(y)
        weight = _checks.weights(sample_weight, X.shape[0])
        self.classes_ = _classes(y, weight)
        codes = self._codes(y)
        problems = self._problems(X, codes, weight, _checks.offsets(offset, X.shape[0], len(codes)))
        before = self._earlier(len(problems))
        fits = Parallel(n_jobs=self.n_jobs)(
            delayed(self._fit_one)(problem, earlier) for problem, earlier in zip(problems, before, strict=True)
        )
        return self._store(problems[0].design, list(fits), X.dtype)

    def _codes(self, y: NDArray[Any]) -> list[Array]:
        """0/1 of the second class of two, or of each class against the rest."""
        positive = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        return [(y == label).astype(float) for label in positive]

    def _response_names(self) -> list[str]:
        return [""] if len(self._fits) == 1 else [f"{label}: " for label in self.classes_]

    def _log_rates(self, latents: list[Latent]) -> tuple[Array, Array]:
        """log P(y_k = 1) and log P(y_k = 0) of each response, shape (n, responses)."""
        likelihood = self._likelihood()
        pairs = [
            [log_density(likelihood.observe(np.full(len(at.mean), sign)), at) for at in latents] for sign in (1.0, -1.0)
        ]
        return np.stack(pairs[0], axis=1), np.stack(pairs[1], axis=1)

    def predict_proba(self, X: Any, offset: Any = None) -> Array:
        """Class probabilities, posterior integrated; several classes: each against the rest, normalised.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Columns in the order of `classes_`.
        """
        _, latents, dtype = self._latents(X, offset)
        return np.exp(self._log_probabilities(latents)).astype(dtype)

    def predict_log_proba(self, X: Any, offset: Any = None) -> Array:
        """Logarithms of `predict_proba`, exact also where that rounds to 0 or 1."""
        _, latents, dtype = self._latents(X, offset)
        return self._log_probabilities(latents).astype(dtype)

    def _log_probabilities(self, latents: list[Latent]) -> Array:
        yes, no = self._log_rates(latents)
        table = np.concatenate([no, yes], axis=1) if yes.shape[1] == 1 else yes
        return table - np.logaddexp.reduce(table, axis=1, keepdims=True)

    def decision_function(self, X: Any, offset: Any = None) -> Array:
        """Log odds of the integrated probabilities: of the second class of two (n,), or of each against the rest."""
        _, latents, dtype = self._latents(X, offset)
        yes, no = self._log_rates(latents)
        odds = (yes - no).astype(dtype)
        return odds[:, 0] if odds.shape[1] == 1 else odds

    def predict(self, X: Any, offset: Any = None) -> NDArray[Any]:
        """The most probable class of each row."""
        odds = self.decision_function(X, offset)
        index = (odds > 0).astype(int) if odds.ndim == 1 else odds.argmax(axis=1)
        return self.classes_[index]

    def predict_quantiles(self, X: Any, quantiles: ArrayLike = (0.05, 0.5, 0.95), offset: Any = None) -> Array:
        """Posterior quantiles of the probability of the second class of two, shape (n, number of quantiles).

        Several classes: of each against the rest, not normalised, shape (n, n_classes, number of quantiles).
        """
        q = levels("quantiles", quantiles)
        _, latents, dtype = self._latents(X, offset)
        parts = [self._link(at.quantile(q)).astype(dtype) for at in latents]
        return parts[0] if len(parts) == 1 else np.stack(parts, axis=1)

    def predict_interval(self, X: Any, coverage: float = 0.9, offset: Any = None) -> Array:
        """The central posterior interval of the class probability: last axis low and high."""
        return self.predict_quantiles(X, tails(coverage), offset)

    def _link(self, x: Array) -> Array:
        """P(y = 1 | x)."""
        return np.asarray(expit(x))

    def log_predictive_density(self, X: Any, y: Any, offset: Any = None) -> Array:
        """log P(y | x, data) of each row, in nat, posterior integrated."""
        _, latents, _ = self._latents(X, offset)
        labels = np.asarray(y)
        table = self._log_probabilities(latents)
        if labels.shape != table.shape[:1]:
            raise ValueError(f"y must have shape {table.shape[:1]}, one label a row, got shape {labels.shape}")
        return table[np.arange(len(labels)), class_index(labels, self.classes_)]

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: RandomState = None, offset: Any = None
    ) -> NDArray[Any]:
        """Draws of labels at the rows, shape (n, n_samples): each column belongs to one draw of the coefficients."""
        X = self._asked(X)
        rng = self._generator(random_state)
        shift, rows = _checks.offsets(offset, X.shape[0], len(self._fits)), self._design.rows(X)
        shares = []
        for k, fit in enumerate(self._fits):
            own = _checks.column(shift, k)
            x = np.asarray(rows @ fit.posterior.sample(n_samples, rng).T) + (0.0 if own is None else own[:, None])
            shares.append(self._link(x))
        table = np.stack([1.0 - shares[0], shares[0]] if len(shares) == 1 else shares)
        below = np.cumsum(table / table.sum(axis=0), axis=0)[:-1]
        return self.classes_[np.sum(rng.random(x.shape) > below, axis=0)]

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


def at_least_two(classes: NDArray[Any]) -> NDArray[Any]:
    """The classes, if there is something to tell apart."""
    if len(classes) < 2:
        raise ValueError(f"y must hold at least two classes, got one class: {classes[0]!r}")
    return classes


def class_index(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """Place of each label among the sorted classes."""
    place = np.searchsorted(classes, labels)
    place = np.minimum(place, len(classes) - 1)
    if np.any(classes[place] != labels):
        raise ValueError(f"y has labels that were not in the training data, which had {classes.tolist()}")
    return place
