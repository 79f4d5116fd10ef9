"""Ordinal regression: ordered classes between learnt cut points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latlin.inference.engine import Engine
from latlin.linear._base import shared_options
from latlin.linear._predict import (
    LinearPredictors,
    central_levels,
    check_levels,
    draw_observations,
    draw_weights,
    log_density,
)
from latlin.linear._problem import LabelCoding, check_offsets
from latlin.linear._rows import ClassIndex, column_of
from latlin.linear.classifiers import Classification
from latlin.numerics.arrays import Array
from latlin.numerics.options import check_whole
from latlin.numerics.rng import RandomState
from latlin.potentials.families import Family, Ordered
from latlin.potentials.ordinal import Ordinal, cut_words
from latlin.potentials.predictive import nearest_interval


class BayesianOrdinalRegression(Classification):
    """P(y ≤ k) = F(cut_k − xᵀw): ordered classes, one coefficient per feature, cut points learnt by the evidence.

    Parameters
    ----------
    link : {"probit", "logit"}
        F is the distribution function of the standard normal or of the logistic distribution.
    cuts : "auto" or array of shape (n_classes − 1,)
        Cut points; "auto" learns them (see `hyperparameters`). They take the place of an intercept.
    order : sequence, optional
        The labels from lowest to highest; sorted unless given.
    engine : str or engine object
        "auto", "laplace", "ep", "gkl", "ai-kl", "map", or an object of `latlin.engines`.
    prior_scale : "auto", float or array of shape (n_features,)
        Prior standard deviation of a coefficient, for features of standard deviation one when `standardise`. "auto"
        learns it (see `hyperparameters`).
    ard : bool
        Learn one prior scale per feature (automatic relevance determination); needs prior_scale="auto".
    standardise : bool
        Measure `prior_scale` in standard deviations of the features. Coefficients stay in the user's units.
    hyperparameters : {"auto", "maximise", "integrate", "fixed"}
        What is done with everything that is "auto": its penalised optimum, an average over its posterior, or nothing.
        "auto" integrates where that is cheap: few hyperparameters and small problems.
    priors : dict, Prior or None
        Of what is learnt, by name, from `latlin.priors`; `Flat()` for all gives plain evidence maximisation. Weakly
        informative in the units of the data unless given; `hyperparameters_` shows them.
    warm_start : bool
        Start from the last fit.
    random_state : int, Generator, RandomState or None
        For draws.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        From lowest to highest.
    coef_, coef_std_ : ndarray of shape (1, n_features)
    intercept_ : ndarray of shape (1,)
        Shift of the linear predictor x·coef_ + intercept_ to which `cuts_` belong; not a free parameter.
    modelled_ : str
        The link and the cut points, in a line.
    cuts_ : ndarray of shape (n_classes − 1,)
    posterior_, log_evidence_, evidence_kind_, prior_scale_, converged_, n_iter_, trace_
        As of `BayesianLinearRegression`.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.linear import BayesianOrdinalRegression
    >>> X = np.linspace(-2, 2, 12)[:, None]
    >>> y = ["low", "low", "low", "mid", "low", "mid", "mid", "high", "mid", "high", "high", "high"]
    >>> model = BayesianOrdinalRegression(order=["low", "mid", "high"]).fit(X, y)
    >>> model.predict([[-2.0], [0.0], [2.0]]).tolist()
    ['low', 'mid', 'high']
    """

    _absorbs_shifts = True

    _name = "ordinal"

    def __init__(
        self,
        *,
        link: str = "probit",
        cuts: Any = "auto",
        order: Sequence[Any] | None = None,
        engine: str | Engine = "auto",
        prior_scale: Any = "auto",
        ard: bool = False,
        standardise: bool = True,
        hyperparameters: str = "auto",
        priors: Any = None,
        warm_start: bool = False,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(**shared_options(locals()), fit_intercept=False)
        self.link = link
        self.cuts = cuts
        self.order = order

    def _family(self) -> Family:
        return Ordered(Ordinal(0.0, [0.0], self.link), "ordered", n_classes=len(self.classes_))

    def _given(self) -> dict[str, Any]:
        return {"prior_scale": self.prior_scale, "cuts": self.cuts}

    @property
    def cuts_(self) -> Array:
        """The cut points of the linear predictor."""
        return self._fitted_value("cuts")

    @property
    def modelled_(self) -> str:
        """The link and the cut points, in a line."""
        return cut_words(self.link, self.classes_, self.cuts_ - float(np.ravel(self.intercept_)[0]))

    def _ordered(self, classes: NDArray[Any]) -> NDArray[Any]:
        if self.order is None:
            return classes
        order = np.asarray(self.order)
        if order.ndim != 1 or not np.array_equal(np.sort(order), classes):
            raise ValueError(f"order must list the labels {classes.tolist()}, got {self.order!r:.80}")
        return order

    def _codings(self) -> list[LabelCoding]:
        return [ClassIndex(self.classes_)]

    def _log_probabilities(self, latents: list[LinearPredictors]) -> Array:
        (at,) = latents
        sites = self._likelihood()
        parts = [log_density(sites.observe(np.full(len(at.mean), k)), at) for k in range(len(self.classes_))]
        table = np.stack(parts, axis=1)
        return table - np.logaddexp.reduce(table, axis=1, keepdims=True)

    def predict_quantiles(self, X: Any, quantiles: ArrayLike = (0.05, 0.5, 0.95), offset: Any = None) -> NDArray[Any]:
        """The lowest class with at least that much probability up to it, shape (n, number of quantiles)."""
        q = check_levels("quantiles", quantiles)
        below = np.cumsum(self.predict_proba(X, offset), axis=1)[:, :-1, None] < q
        return self.classes_[np.sum(below, axis=1)]

    def predict_interval(self, X: Any, coverage: float = 0.9, offset: Any = None) -> NDArray[Any]:
        """The interval of classes whose probability is nearest to `coverage`: columns lowest and highest.

        It is the central one with one of its ends moved.
        """
        central_levels(coverage)
        upto = np.cumsum(self.predict_proba(X, offset), axis=1)
        row = np.arange(len(upto))
        ends = nearest_interval(
            lambda q: np.sum(upto[:, :-1] < q[:, None], axis=1),
            lambda k: np.where(k < 0, 0.0, upto[row, np.maximum(k, 0).astype(int)]),
            coverage,
            row.shape,
            whole=True,
            least=0.0,
        )
        return self.classes_[ends.T.astype(int)]

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: RandomState = None, offset: Any = None
    ) -> NDArray[Any]:
        """Draws of labels at the rows, shape (n, n_samples); a column belongs to one draw of the coefficients."""
        offset, X = column_of(self, X, "offset", offset), self._check_rows(X)
        rng, shift = self._generator(random_state), check_offsets(offset, X.shape[0])
        w, label = draw_weights(self._fits[0].posterior, check_whole("n_samples", n_samples), rng)
        x = np.asarray(self._design.rows(X) @ w.T)
        x += 0.0 if shift is None else shift[:, None]
        drawn = draw_observations(self._likelihood(), x.T, label, rng)
        return self.classes_[drawn.T.astype(int)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # classes that are not ordered along one direction cannot be separated by one linear predictor
        tags.classifier_tags.poor_score = True
        return tags
