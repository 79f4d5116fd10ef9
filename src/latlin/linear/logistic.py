"""Logistic regression; several classes by one softmax, or each against the rest."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from latlin.inference.engine import Engine
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.infer import Auto, resolve
from latlin.linear._base import shared_options
from latlin.linear._learning import LearntFit
from latlin.linear._predict import LinearPredictors
from latlin.linear._problem import Design, LinearProblem
from latlin.linear._together import (
    attributes_of_all,
    draw_places,
    fit_together,
    log_probabilities,
    probability_quantiles,
)
from latlin.linear.classifiers import OneVersusRest
from latlin.numerics.arrays import Array
from latlin.numerics.options import AutoOrNumbers, PerRow, Rows, StrPath, check_choice
from latlin.numerics.rng import RandomState
from latlin.potentials.class_links import CLASS_LINKS
from latlin.potentials.families import FAMILIES, Family
from latlin.priors.base import PriorsLike

SOFTMAX = CLASS_LINKS["logit"]


class BayesianLogisticRegression(OneVersusRest):
    """P(y = 1) = σ(xᵀw + b), w_j ~ N(0, (prior_scale/sd_j)²); several classes by a softmax or one against the rest.

    Parameters
    ----------
    multi_class : {"one-vs-rest", "softmax"}
        More than two classes: each against the rest, with an evidence of its own, which is quick; or all in one model
        with one evidence, P(y = k) ∝ exp(xᵀw_k + b_k), which predicts better and takes longer. The softmax is
        fitted by Gaussian KL, with one prior scale and a prior mean of 0.
    engine : str or engine object
        "auto", "laplace", "lvb", "ep", "gkl", "ai-kl", "map", or an object of `latlin.engines`.
    prior_scale : "auto", float or array of shape (n_features,)
        Prior standard deviation of a coefficient, for features of standard deviation one when `standardise`. "auto"
        learns it (see `hyperparameters`).
    prior_mean : float, "auto" or array of shape (n_features,)
        Prior mean of a coefficient, in the units of `prior_scale`. "auto" learns one for all of them: what
        coefficients that are alike have in common.
    ard : bool
        Learn one prior scale per feature (automatic relevance determination); needs prior_scale="auto".
    fit_intercept : bool
        Include an intercept, with a wide prior of its own.
    intercept_scale : float, optional
        Standard deviation of that prior, 10 unless given. The intercept is measured at the mean of the features when
        they are dense and standardised, else at x = 0.
    standardise : bool
        Measure `prior_scale` in standard deviations of the features. Coefficients stay in the user's units.
    n_jobs : int, optional
        Classes fitted at the same time. Of rows in blocks the classes are fitted one after the other, whatever this
        says: there the blocks are worked on side by side.
    warm_start : bool
        Start from the last fit.
    random_state : int, Generator, RandomState or None
        For draws.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_, coef_std_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Posterior means and standard deviations; of the second class of two, else of each class.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        At x = 0.
    posterior_ : Posterior or list of Posterior
        Over the coefficients and, last, the intercept at the mean of the features (at 0 if they were not centred).
    log_evidence_ : float or ndarray of shape (n_classes,)
        log p(y), or a bound or an approximation: see `evidence_kind_`. One per class against the rest.
    multi_class_ : {"softmax", "one-vs-rest"}
        What was done; of two classes "one-vs-rest".
    prior_scale_, prior_mean_ : float or ndarray
    converged_, n_iter_, trace_ : bool, int or ndarray, ndarray or list

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.linear import BayesianLogisticRegression
    >>> X = np.array([[-2.0], [-1.0], [-0.5], [0.4], [1.2], [2.5]])
    >>> model = BayesianLogisticRegression(prior_scale=2.0).fit(X, ["no", "no", "yes", "no", "yes", "yes"])
    >>> model.predict([[3.0]]).tolist(), model.evidence_kind_
    (['yes'], 'lower bound')
    """

    _name = "logistic"
    _extras = ("multi_class_",)

    def __init__(
        self,
        *,
        multi_class: str = "one-vs-rest",
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
        super().__init__(n_jobs=n_jobs, **shared_options(locals()))
        self.multi_class = multi_class

    def _family(self) -> Family:
        return FAMILIES["logit"]

    def _link(self, x: Array) -> Array:
        return np.asarray(expit(x))

    def family_name(self) -> str:
        return SOFTMAX.name if self._is_joint else self._name

    # --- several classes by one softmax

    def _choose_way(self, checkpoint: StrPath | None = None) -> str:
        """How the classes are fitted, "softmax" or "one-vs-rest"."""
        wanted: str = check_choice("multi_class", self.multi_class, ("one-vs-rest", "softmax"))
        if len(self.classes_) == 2 or wanted == "one-vs-rest":
            return "one-vs-rest"
        if resolve(self.engine) not in (Auto(), GaussianKL()):
            raise ValueError(f"multi_class='softmax' is fitted by engine 'gkl', got engine={self.engine!r:.80}")
        if self.ard or "prior_mean" in self._prior().parameters:
            raise ValueError(
                "multi_class='softmax' has one prior scale and a prior mean of 0: leave ard and prior_mean out"
            )
        if checkpoint is not None:
            raise ValueError("checkpoint is for one fit per class, and a softmax fits all together: leave it out")
        return wanted

    @property
    def _is_joint(self) -> bool:
        return getattr(self, "multi_class_", "") == "softmax"

    @property
    def _has_residuals(self) -> bool:  # type: ignore[override]
        return not self._is_joint

    def _fit_all(self, problems: list[LinearProblem]) -> list[LearntFit]:
        self.multi_class_ = self._choose_way()
        return self._fit_together(problems) if self._is_joint else super()._fit_all(problems)

    def _fit_in_blocks(self, problems: list[LinearProblem], checkpoint: StrPath | None) -> list[LearntFit]:
        self.multi_class_ = self._choose_way(checkpoint)
        return self._fit_together(problems) if self._is_joint else super()._fit_in_blocks(problems, checkpoint)

    def _fit_together(self, problems: list[LinearProblem]) -> list[LearntFit]:
        earlier = [fit for fit in self._earlier(len(problems)) if fit is not None]
        return fit_together(SOFTMAX, problems, self._given(), self._wish(), earlier, self.verbose)

    def _absorbed(self, X: Rows, codes: list[Array], weight: Array | None, offset: Array | None) -> Self:
        if self._is_joint or (self.multi_class == "softmax" and len(self.classes_) > 2):
            raise ValueError("partial_fit is for multi_class='one-vs-rest': all classes together need all rows at once")
        return super()._absorbed(X, codes, weight, offset)

    def _store(self, design: Design, fits: list[LearntFit], dtype: Any) -> Self:
        super()._store(design, fits, dtype)
        if self._is_joint:
            self.__dict__.update(attributes_of_all(fits))
        return self

    def _log_rates(self, latents: list[LinearPredictors]) -> tuple[Array, Array]:
        if not self._is_joint:
            return super()._log_rates(latents)
        yes = log_probabilities(SOFTMAX, latents)
        others = [np.logaddexp.reduce(np.delete(yes, k, axis=1), axis=1) for k in range(yes.shape[1])]
        return yes, np.stack(others, axis=1)

    def _quantiles(self, latents: list[LinearPredictors], q: Array, dtype: Any) -> Array:
        if self._is_joint:
            return probability_quantiles(SOFTMAX, latents, q, dtype)
        return super()._quantiles(latents, q, dtype)

    def _draw_places(self, rows: Any, offset: PerRow, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        if self._is_joint:
            return draw_places(SOFTMAX, self._fits, rows, offset, count, rng)
        return super()._draw_places(rows, offset, count, rng)
