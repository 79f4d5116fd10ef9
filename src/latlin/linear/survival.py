"""Regression of survival times, some of them censored."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from latlin.diagnostics.calibration import concordance
from latlin.inference.engine import Engine
from latlin.linear._base import shared_options
from latlin.linear._predict import LinearPredictors, log_density, predictive
from latlin.linear._regression import AUTO, ChosenFamily
from latlin.linear._rows import column_of, join_response
from latlin.numerics.arrays import Array
from latlin.numerics.options import AutoOrNumbers, PerRow, Rows, StrPath, float_array
from latlin.numerics.rng import RandomState
from latlin.potentials.families import FAMILIES, TIMES
from latlin.potentials.predictive import censored_pit
from latlin.potentials.survival import warn_of_codes
from latlin.priors.base import PriorsLike


class BayesianSurvivalRegression(ChosenFamily):
    """Times to an event with size exp(xᵀw + b), w_j ~ N(0, (prior_scale/sd_j)²): an accelerated failure time model.

    Parameters
    ----------
    family : {"weibull", "exponential", "log-logistic", "auto"}
        exp(xᵀw + b) is the scale of a Weibull time (63 % of events come before it), the mean of an exponential one, the
        median of a log-logistic one. "auto" keeps the simplest family whose log evidence is within one nat of the
        best; `family_` and `choice_` say which and why.
    shape : "auto" or float
        Of "weibull" times: above one the hazard grows. Of "log-logistic" times: log time has scale 1/shape.
    engine : str or engine object
        "auto", "laplace", "ep", "gkl", "map", or an object of `latlin.engines`.
    prior_scale : "auto", float or array of shape (n_features,)
        Prior standard deviation of a coefficient, for features of standard deviation one when `standardise`. "auto"
        learns it (see `hyperparameters`).
    ard : bool
        Learn one prior scale per feature (automatic relevance determination); needs prior_scale="auto".
    fit_intercept : bool
        Include an intercept, with a wide prior of its own around the logarithm of the mean rate.
    intercept_scale : float, optional
        Standard deviation of that prior, 5 unless given.
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
    family_, choice_ : str
        The family that was fitted, and what "auto" chose and why.
    parameters_ : dict
        The family's own parameters, given or learnt, by name.
    coef_, coef_std_ : ndarray of shape (n_features,)
        exp(coefficient) multiplies the time when the feature grows by one unit.
    intercept_ : float
        At x = 0.
    posterior_, log_evidence_, evidence_kind_, prior_scale_, converged_, n_iter_, trace_
        As of `BayesianLinearRegression`.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.linear import BayesianSurvivalRegression
    >>> X = np.array([[0.0], [0.5], [1.0], [1.5], [2.0], [2.5]])
    >>> times, event = [1.0, 2.0, 2.0, 6.0, 9.0, 8.0], [1, 1, 1, 1, 1, 0]
    >>> model = BayesianSurvivalRegression(prior_scale=1.0).fit(X, times, event=event)
    >>> bool(np.all(np.diff(model.predict(X)) > 0.0)), model.predict_survival(X[:1], [0.0, 1e9]).round(9).tolist()
    (True, [[1.0, 0.0]])
    """

    _families = MappingProxyType({name: FAMILIES[name] for name in TIMES})
    _candidates = ("exponential", "weibull", "log-logistic")

    def __init__(
        self,
        family: str = "weibull",
        *,
        shape: AutoOrNumbers = AUTO,
        engine: str | Engine = "auto",
        prior_scale: AutoOrNumbers = "auto",
        ard: bool = False,
        fit_intercept: bool = True,
        intercept_scale: float | None = None,
        standardise: bool = True,
        hyperparameters: str = "auto",
        priors: PriorsLike = None,
        warm_start: bool = False,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(**shared_options(locals()))
        self.family = family
        self.shape = shape

    def _columns(self) -> int:
        return 3

    def fit(
        self,
        X: Rows,
        y: PerRow = None,
        sample_weight: PerRow = None,
        offset: PerRow = None,
        *,
        event: PerRow = None,
        upper: PerRow = None,
        checkpoint: StrPath | None = None,
        **table: Any,
    ) -> Self:
        """Learn from rows X (n, n_features), dense or sparse, and times y (n,).

        Parameters
        ----------
        X : data frame, array, sparse matrix, Dask collection, large memory map or blocks of shape (n, n_features)
            Columns of texts, categories and truth values become numbers. Rows that are not all in memory are fitted
            block by block.
        y : array of shape (n,), (n, 2) or (n, 3), or name of a column of X
            Positive times, or times, events and upper ends side by side (as blocks of rows hold them).
        sample_weight : array of shape (n,), optional
            A row of weight 2 counts as two rows.
        offset : array of shape (n,), optional
            Added to the linear predictor, a logarithm, with coefficient one.
        event : array of shape (n,) or name of a column of X, optional
            1 or True where the event was seen at y, 0 where it comes later (right-censored), 2 where it came earlier,
            3 where it lies between y and `upper`. All are seen unless given.
        upper : array of shape (n,) or name of a column of X, optional
            Ends of the intervals of events coded 3; elsewhere it may have no number.
        checkpoint : path, optional
            For rows in blocks: keep the state of the fit in this file, and go on from it if it exists.
        **table
            How columns become numbers: see `BayesianLinearRegression.fit`.
        """
        read = self._read(X, table, y=y, sample_weight=sample_weight, offset=offset, event=event, upper=upper)
        X, y = read.pop("X"), join_response(read.pop("y"), event=read.pop("event"), upper=read.pop("upper"))
        if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] > 1:
            warn_of_codes(y[:, 1])
        return self._fit_chosen(self._fit, X, y, read, checkpoint)

    def _centre(self, at: LinearPredictors) -> Array:
        """The median: a mean need not exist."""
        return predictive(self._likelihood(), at).quantile(np.full(len(at.mean), 0.5))

    def predict_survival(self, X: Rows, times: ArrayLike, offset: PerRow = None) -> Array:
        """P(no event up to each time | x, data) for every row, posterior integrated, shape (n, number of times)."""
        moments = np.atleast_1d(float_array("times", times))
        if moments.ndim != 1 or not np.all(moments >= 0.0):
            raise ValueError(f"times must hold numbers of at least zero, got {times!r}")
        _, (at,), dtype = self._latents(X, offset)
        described = predictive(self._likelihood(), at)
        return (1.0 - described.cdf(np.broadcast_to(moments[:, None], (len(moments), len(at.mean))))).T.astype(dtype)

    def log_predictive_density(
        self, X: Rows, y: PerRow, offset: PerRow = None, *, event: PerRow = None, upper: PerRow = None
    ) -> Array:
        """log density of each time, or log probability where it is censored, in nat, posterior integrated."""
        _, (at,), _ = self._latents(X, offset)
        observed = self._observed_times(X, y, event, upper)
        if observed.shape[:1] != at.mean.shape:
            raise ValueError(f"y must have {len(at.mean)} rows, got shape {observed.shape}")
        return log_density(self._observed(observed), at)

    def quantile_residuals(
        self,
        X: Rows,
        y: PerRow,
        offset: PerRow = None,
        random_state: RandomState = None,
        *,
        event: PerRow = None,
        upper: PerRow = None,
    ) -> Array:
        """Randomised quantile residuals (Dunn and Smyth, 1996), drawn where the event may be if that is not known."""
        return super().quantile_residuals(X, self._observed_times(X, y, event, upper), offset, random_state)

    def _pit(self, X: Rows, y: PerRow, offset: PerRow, random_state: RandomState) -> Array:
        """Those of censored times are drawn where the event may be."""
        _, (at,), _ = self._latents(X, offset)
        described = predictive(self._likelihood(), at)
        return censored_pit(described, float_array("y", y), self._generator(random_state))

    def score(
        self, X: Rows, y: PerRow, sample_weight: PerRow = None, *, event: PerRow = None, upper: PerRow = None
    ) -> float:
        """Harrell's concordance: the share of pairs whose order is known and that are predicted in this order.

        A pair is known where one event was certainly before the other; half a point for equal predictions. ½ is
        chance, 1 perfect.
        """
        table = self._observed_times(X, y, event, upper)
        weight = np.ones(len(table)) if sample_weight is None else np.asarray(sample_weight, float)
        known = {"event": 1.0, **dict(zip(("time", "event", "upper"), table.T, strict=False))}
        return concordance(**known, predicted=self.predict_latent(X), weight=weight)

    def _observed_times(self, X: Rows, y: PerRow, event: PerRow, upper: PerRow) -> Array:
        """Times, and events and ends beside them as far as these are given."""
        y, event, upper = (column_of(self, X, *given) for given in (("y", y), ("event", event), ("upper", upper)))
        observed = np.asarray(join_response(y, event=event, upper=upper) if np.ndim(y) == 1 else y, float)
        return observed[:, None] if observed.ndim == 1 else observed
