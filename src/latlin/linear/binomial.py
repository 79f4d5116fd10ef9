"""Regression of successes among trials."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from latlin.distributed.opening import rowwise
from latlin.inference.engine import Engine
from latlin.linear._base import shared_options
from latlin.linear._model_checks import Dispersed
from latlin.linear._predict import (
    LinearPredictors,
    central_levels,
    check_levels,
    draw_observations,
    log_density,
    predictive,
)
from latlin.linear._regression import Regression
from latlin.linear._rows import column_of, join_response
from latlin.numerics.arrays import Array
from latlin.numerics.options import AutoOrNumbers, PerRow, Rows, StrPath, float_array, real_array
from latlin.numerics.rng import RandomState
from latlin.potentials.families import FAMILIES, Family, find_family
from latlin.potentials.predictive import Predictive
from latlin.priors.base import PriorsLike


class BayesianBinomialRegression(Dispersed, Regression):
    """Successes among trials with chance F(xᵀw + b), w_j ~ N(0, (prior_scale/sd_j)²).

    Parameters
    ----------
    family : {"binomial", "beta-binomial"}
        "beta-binomial" chances vary from row to row about F, so that successes vary more.
    link : {"logit", "probit", "cloglog"}
        F is the logistic function, the normal distribution function, or 1 − exp(−e^x); "beta-binomial" has "logit".
    precision : "auto" or float
        Of "beta-binomial": how little the chances vary.
    engine : str or engine object
        "auto", "laplace", "ep", "gkl", "map", or an object of `latlin.engines`.
    prior_scale : "auto", float or array of shape (n_features,)
        Prior standard deviation of a coefficient, for features of standard deviation one when `standardise`. "auto"
        learns it (see `hyperparameters`).
    ard : bool
        Learn one prior scale per feature (automatic relevance determination); needs prior_scale="auto".
    fit_intercept : bool
        Include an intercept, with a wide prior of its own around the value zero.
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
    parameters_ : dict
        The family's own parameters, given or learnt, by name.
    dispersion_ : float
        Pearson's statistic of the training data per degree of freedom; 1 if successes vary as the family says.
    finding_ : str
        What that says where it is beyond chance, or empty.
    coef_, coef_std_ : ndarray of shape (n_features,)
    intercept_ : float
        At x = 0.
    posterior_, log_evidence_, evidence_kind_, prior_scale_, converged_, n_iter_, trace_
        As of `BayesianLinearRegression`.

    Notes
    -----
    Without `trials` every row is one trial, and predictions are of a chance: `predict` is the probability of a success.
    With `trials` they are of successes among so many.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.linear import BayesianBinomialRegression
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> model = BayesianBinomialRegression(prior_scale=2.0).fit(X, [1, 3, 6, 9], trials=10)
    >>> model.predict([[1.5]]).round(2), model.predict_interval([[1.5]], trials=10).tolist()
    (array([0.46]), [[2.0, 7.0]])
    """

    def __init__(
        self,
        family: str = "binomial",
        *,
        link: str = "logit",
        precision: AutoOrNumbers = "auto",
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
        self.link = link
        self.precision = precision

    @classmethod
    def families(cls) -> tuple[str, ...]:
        """Names of the families."""
        return ("binomial", "beta-binomial")

    def family_name(self) -> str:
        return self.family

    def _columns(self) -> int:
        return 2

    def _family(self) -> Family:
        family = find_family(self.family, {name: FAMILIES[name] for name in self.families()})
        return family.fixed(link=self.link) if "link" in family.template.parameters else family

    def _given(self) -> dict[str, Any]:
        return {"prior_scale": self.prior_scale, **{name: getattr(self, name) for name in self._family().parameters}}

    def fit(
        self,
        X: Rows,
        y: PerRow = None,
        sample_weight: PerRow = None,
        offset: PerRow = None,
        *,
        trials: PerRow = None,
        checkpoint: StrPath | None = None,
        **table: Any,
    ) -> Self:
        """Learn from rows X (n, n_features), dense or sparse, and successes y (n,).

        Parameters
        ----------
        X : data frame, array, sparse matrix, Dask collection, large memory map or blocks of shape (n, n_features)
            Columns of texts, categories and truth values become numbers. Rows that are not all in memory are fitted
            block by block.
        y : array of shape (n,) or (n, 2), or name of a column of X
            Successes, or successes and trials side by side (as blocks of rows hold them).
        sample_weight : array of shape (n,) or name of a column of X, optional
            A row of weight 2 counts as two rows.
        offset : array of shape (n,) or name of a column of X, optional
            Added to the linear predictor with coefficient one.
        trials : int, array of shape (n,) or name of a column of X, optional
            One unless given.
        checkpoint : path, optional
            For rows in blocks: keep the state of the fit in this file, and go on from it if it exists.
        **table
            How columns become numbers: see `BayesianLinearRegression.fit`.
        """
        read = self._read(X, table, y=y, sample_weight=sample_weight, offset=offset, trials=trials)
        read["y"] = join_response(read["y"], trials=read.pop("trials"))
        return self._fit(**read, checkpoint=checkpoint)

    def _new(self, at: LinearPredictors, trials: PerRow) -> Predictive:
        """Successes of new rows among trials."""
        return predictive(self._likelihood().replace(trials=_per_row(trials, len(at.mean))), at)

    def _chances(self, at: LinearPredictors, q: Array) -> Array:
        """Quantiles of the chance, shape (n, len(q)); a chance rises with the linear predictor."""
        x = at.quantile(q)
        return np.asarray(self._likelihood().predictive(x, np.zeros_like(x)).mean)

    @rowwise
    def predict(
        self,
        X: Rows,
        offset: PerRow = None,
        *,
        return_std: bool = False,
        return_cov: bool = False,
        trials: PerRow = None,
    ) -> Any:
        """The chance of a success in each row, posterior integrated; the mean number of them among trials.

        `return_std` also gives the standard deviation of a new number of successes; there is no `return_cov`.
        """
        if return_cov:
            raise ValueError("return_cov has no closed form for chances; take the covariance of draws of sample_y")
        _, (at,), dtype = self._latents(X, offset)
        described = self._new(at, column_of(self, X, "trials", trials, 1.0))
        mean = np.asarray(described.mean).astype(dtype)
        return (mean, np.sqrt(described.variance).astype(dtype)) if return_std else mean

    def predict_quantiles(
        self, X: Rows, quantiles: ArrayLike = (0.05, 0.5, 0.95), offset: PerRow = None, *, trials: PerRow = None
    ) -> Array:
        """Quantiles of the chance at each row, or of new successes among trials, shape (n, number of quantiles)."""
        q = check_levels("quantiles", quantiles)
        _, (at,), dtype = self._latents(X, offset)
        trials = column_of(self, X, "trials", trials)
        if trials is None:
            return self._chances(at, q).astype(dtype)
        return self._new(at, trials).quantile(np.broadcast_to(q[:, None], (len(q), len(at.mean)))).T.astype(dtype)

    def predict_interval(
        self, X: Rows, coverage: float = 0.9, offset: PerRow = None, *, trials: PerRow = None
    ) -> Array:
        """The central interval of the chance, or one of new successes among trials: columns low and high.

        That of successes has the probability nearest to `coverage`: whole numbers seldom allow exactly that.
        """
        ends = central_levels(coverage)
        _, (at,), dtype = self._latents(X, offset)
        trials = column_of(self, X, "trials", trials)
        if trials is None:
            return self._chances(at, ends).astype(dtype)
        return self._new(at, trials).interval(coverage).T.astype(dtype)

    def log_predictive_density(self, X: Rows, y: PerRow, offset: PerRow = None, *, trials: PerRow = None) -> Array:
        """log P(y | x, data) of each row, in nat, posterior integrated; y as in `fit`."""
        _, (at,), _ = self._latents(X, offset)
        y, trials = column_of(self, X, "y", y), column_of(self, X, "trials", trials)
        observed = real_array("y", join_response(y, trials=trials) if np.ndim(y) == 1 else y)
        if observed.shape[:1] != at.mean.shape:
            raise ValueError(f"y must have {len(at.mean)} rows, got shape {observed.shape}")
        return log_density(self._observed(observed), at)

    def _pit(self, X: Rows, y: PerRow, offset: PerRow, random_state: RandomState) -> Array:
        _, (at,), _ = self._latents(X, offset)
        observed = real_array("y", y)
        successes, trials = observed.T if observed.ndim == 2 else (observed, 1.0)
        return self._new(at, trials).pit(successes, self._generator(random_state))

    def sample_y(
        self,
        X: Rows,
        n_samples: int = 1,
        random_state: RandomState = None,
        offset: PerRow = None,
        *,
        trials: PerRow = None,
    ) -> Array:
        """Joint draws of successes at the rows, shape (n, n_samples); a column is one draw of the coefficients."""
        rng = self._generator(random_state)
        x, label = self._drawn_predictors(X, n_samples, rng, offset)
        count = _per_row(column_of(self, X, "trials", trials, 1.0), len(x))
        return draw_observations(self._likelihood().replace(trials=count), x.T, label, rng).T


def _per_row(trials: PerRow, count: int) -> Array:
    """One number of trials for each of so many rows."""
    found = float_array("trials", trials)
    if found.shape not in ((), (count,)):
        raise ValueError(f"trials must have shape ({count},), one number per row, got shape {found.shape}")
    return np.broadcast_to(found, count)
