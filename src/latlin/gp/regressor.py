"""Gaussian process regression with any noise: exact for Gaussian, approximate with an honest evidence otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from latlin.distributed.opening import is_blocked
from latlin.gp.approximation import Approximation
from latlin.gp.archive import options_to_save
from latlin.gp.choice import Approximated
from latlin.gp.draws import ProcessDraws, central_levels
from latlin.gp.latent import Process, copy_kernel, default_kernel, resolve_engine
from latlin.gp.learning import AveragedProcess, Search, check_search, fit_process
from latlin.gp.search import Optimizer
from latlin.gp.setting import Likelihood, Setting, family_like, resolve_likelihood, target_scale
from latlin.gp.training import Training, open_journal, open_training
from latlin.gp.validation import choose_on_validation
from latlin.hyper.marginals import HyperparameterTable
from latlin.inference.diagnosis.dispersion import dispersion_about
from latlin.inference.engine import Engine
from latlin.numerics.alerts import MisfitWarning, alert
from latlin.numerics.archive import Archived
from latlin.numerics.arrays import (
    Array,
    check_convertible,
    check_measurable,
    check_numeric,
    check_summable,
    check_visible,
)
from latlin.numerics.options import check_whole, float_array
from latlin.numerics.reported import Reported
from latlin.numerics.rng import RandomState, generator
from latlin.potentials.base import Potential
from latlin.potentials.checks import naming_rows
from latlin.potentials.families import wider_family
from latlin.potentials.predictive import Predictive, censored_pit, residuals_of

#: rows that tell how counts vary; of more, evenly spaced ones are looked at
MOST_ROWS = 5000


class GaussianProcessRegressor(Approximated, ProcessDraws, Archived, Reported, RegressorMixin, BaseEstimator):
    """Gaussian process regression with a choice of noise and of engine.

    Parameters
    ----------
    kernel : scikit-learn kernel, default constant × RBF
        The default starts from the spread of X and the size of y. Cloned; the fitted one is `kernel_`.
    likelihood : str or Potential
        Noise of the targets around the latent function ("gaussian", "student-t", "laplace", "cauchy", "logistic",
        "huber"); counts with rate exp(latent) ("poisson", "negative-binomial", "zero-inflated-poisson", …); amounts
        and times of size exp(latent) ("gamma", "log-normal", "weibull", …); shares ("beta"); classes 0, 1, 2, … by
        cuts of the latent line ("ordinal"). A potential brings its own parameters, its observation is replaced by the
        targets.
    engine : {"auto", "laplace", "lvb", "ep", "gkl"} or engine
        "auto" is exact for Gaussian noise and Gaussian KL, a lower bound on the evidence, otherwise.
    approximation : {"auto", "exact", "inducing", "vecchia", "state-space"} or object
        How the process is made small enough for many rows, by its name or an object with its options. "auto" is exact
        up to 2000 rows and beyond takes what suits rows, columns and kernel; `message_` says which and why.
    n_inducing : int or "auto", optional
        Number of inducing inputs of approximation "inducing", which "auto" then takes.
    n_neighbours : int, optional
        Number of neighbours of approximation "vecchia", which "auto" then takes.
    likelihood_params : dict, optional
        First values of a named likelihood's parameters, such as {"scale": 0.1, "df": 3}, in the units of y. By default
        the scale is 0.3 standard deviations of y and df is 4.
        What belongs to each row, {"trials": …} or {"event": …}, has one number per row of `fit`; new rows are of one
        trial unless `trials` says otherwise, and their times are observed.
    fixed_likelihood : sequence of str
        Parameters of the likelihood that evidence maximisation leaves alone, such as ("df",).
    validation_grid : dict of sequences, optional
        Values of likelihood parameters to choose from by the log probability of a held-out part (they are then fixed);
        kernel parameters are fitted to the rest by evidence. Challis (2013), §5.1 does so because evidence
        maximisation over both gave poor predictions.
    validation_fraction : float
        Share of the rows held out for `validation_grid`.
    optimizer : {"l-bfgs-b"}, callable or None
        Maximises the evidence over kernel and likelihood parameters within their bounds; None keeps them. A callable is
        called as scikit-learn does it: `optimizer(negative_evidence, first, bounds=…)` → (best, value).
    n_restarts : int
        Further starts, drawn around the first parameters.
    normalise_y : bool
        Give the latent function the mean and the scale of the targets (location noise only).
    max_iter : int
        Steps of the optimiser at most.
    hyperparameters : {"auto", "maximise", "integrate", "fixed"}
        What is done with the free parameters of kernel and likelihood: their penalised optimum, an average over their
        posterior, or nothing. "auto" integrates up to 200 rows and 8 parameters.
    priors : dict, Prior or None
        Of these parameters by name (`hyperparameters_` shows them), from `latlin.priors`; `Flat()` for all gives plain
        evidence maximisation. Weakly informative in the units of the data unless given.
    random_state : int, Generator or None
        For restarts and the validation split.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    kernel_ : kernel at the fitted parameters
    likelihood_ : Potential at the fitted parameters
    posterior_ : Posterior
        Over the latent function at the training inputs.
    log_evidence_ : float
        Log marginal likelihood of y with every constant; `evidence_kind_` says whether it is exact, a bound
        or an approximation.
    jitter_ : float
        What was added to the diagonal of the kernel matrix, because it was numerically singular; usually 0.
    theta_ : ndarray
        Free parameters, the kernel's first, as `log_marginal_likelihood` takes them.
    hyperparameters_ : HyperparameterTable
        Name, mean, sd, quantiles, at_bound and prior of each free parameter.
    approximation_ : Approximation
        The one that served; `message_` says why "auto" took it.
    inducing_inputs_ : ndarray of shape (M, n_features), or one per class
        Of approximation "inducing".
    converged_, n_iter_, trace_, message_
    dispersion_ : float
        Of Poisson counts and binomial successes: Pearson's statistic per degree of freedom, 1 where they vary as the
        family says.
    finding_ : str
        Of these: that they are overdispersed, and the likelihood to try; empty where they are not.

    References
    ----------
    Challis (2013), §5.1 and B.6; Gutteridge (2021), §7.1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.05 * rng.standard_normal(40)
    >>> y[20] = 8.0
    >>> robust = GaussianProcessRegressor(likelihood="student-t").fit(X, y)
    >>> bool(abs(robust.predict(X[20:21])[0] - np.sin(X[20, 0])) < 0.1)
    True
    """

    _saved = (
        "process_",
        "approximation_",
        "y_train_?[N]",
        "hyperparameters_",
        "dispersion_?",
        "finding_?",
        "n_features_in_",
        "feature_names_in_?[D]",
        "process_.X[N, D]",
    )

    def __init__(
        self,
        kernel: Any = None,
        *,
        likelihood: str | Potential = "gaussian",
        engine: str | Engine = "auto",
        approximation: str | Approximation = "auto",
        n_inducing: int | str | None = None,
        n_neighbours: int | None = None,
        likelihood_params: Mapping[str, Any] | None = None,
        fixed_likelihood: Sequence[str] = (),
        validation_grid: Mapping[str, Sequence[float]] | None = None,
        validation_fraction: float = 0.25,
        optimizer: str | Optimizer | None = "l-bfgs-b",
        n_restarts: int = 0,
        normalise_y: bool = False,
        max_iter: int = 200,
        hyperparameters: str = "auto",
        priors: Any = None,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.likelihood = likelihood
        self.engine = engine
        self.approximation = approximation
        self.n_inducing = n_inducing
        self.n_neighbours = n_neighbours
        self.likelihood_params = likelihood_params
        self.fixed_likelihood = fixed_likelihood
        self.validation_grid = validation_grid
        self.validation_fraction = validation_fraction
        self.optimizer = optimizer
        self.n_restarts = n_restarts
        self.normalise_y = normalise_y
        self.max_iter = max_iter
        self.hyperparameters = hyperparameters
        self.priors = priors
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, checkpoint: Any = None) -> Self:
        """Fit kernel and likelihood parameters by evidence, and the posterior at the best of them.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), or rows in blocks
            A memory-mapped array of more than 64 MiB, a Dask collection, or blocks of rows, are fitted by inducing
            points, block by block.
        y : array of shape (n_samples,)
            Blocks of rows hold their own.
        checkpoint : path, optional
            Keep the best parameters so far in this file; if it exists, go on from it.
        """
        rng, wanted = generator(self.random_state), check_search(self.hyperparameters, self.priors)
        data = open_training(X, y, int(rng.integers(2**31))) if is_blocked(X) else Training(X, y)
        given = (check_numeric("X", data.X), check_convertible("y", check_visible("y", data.y)))
        inputs, targets = validate_data(self, *given, dtype=np.float64, y_numeric=True)
        inputs, targets = check_summable("X", inputs), check_measurable("y", targets.astype(float))
        with naming_rows():
            given = (self.likelihood_params, self.fixed_likelihood)
            likelihood, rows = resolve_likelihood(self.likelihood, *given, targets)
            if data.blocks is None:
                likelihood.observe(rows)
        data = data._replace(X=inputs, y=rows)
        setting = self._setting(likelihood, inputs, targets)
        choice = self._choose(setting, data.n_rows, inputs.shape[1], data.blocks is not None)
        search = Search(
            choice.approximation,
            resolve_engine(self.engine, likelihood.template),
            self.optimizer,
            check_whole("n_restarts", self.n_restarts),
            check_whole("max_iter", self.max_iter, 1),
            choice.reason,
            open_journal(checkpoint, self, data),
        )
        if self.validation_grid is not None and (data.blocks is not None or rows.ndim == 2):
            what = "rows in memory, got blocks" if data.blocks is not None else "rows without trials or events"
            raise ValueError(f"validation_grid needs {what}")
        if self.validation_grid is not None:
            setting = choose_on_validation(
                setting,
                inputs,
                rows,
                self.validation_grid,
                self.validation_fraction,
                search,
                rng,
                self.verbose,
            )
        process, table = fit_process(setting, data, search, rng, wanted, self.verbose)
        self.approximation_ = choice.approximation
        if data.blocks is None:
            self.y_train_ = targets
        self._store(process, table)
        self._look_at_counts(inputs, rows)
        return self

    def _look_at_counts(self, X: Array, y: Array) -> None:
        """How observations vary, where their family leaves that no freedom."""
        wider = wider_family(self.likelihood_)
        if not wider:
            return
        rows = slice(None, None, max(1, len(y) // MOST_ROWS))
        means, variances = self.process_.marginals(X[rows])
        found = dispersion_about(self.process_.setting.likelihood.observe(y[rows]), means, variances)
        self.dispersion_, self.finding_ = found.ratio, found.words(wider, "likelihood")
        if self.finding_:
            alert(self.finding_, MisfitWarning)

    def _setting(self, likelihood: Likelihood, X: Array, y: Array) -> Setting:
        location = likelihood.template.observation[0] == "loc"
        if self.normalise_y and not location:
            raise ValueError("normalise_y needs a likelihood that adds noise to the latent function")
        # the process has mean zero, so its size is that of y, not of its deviations
        size = float(np.sqrt(np.mean(y**2))) or 1.0 if location and not self.normalise_y else 1.0
        kernel = default_kernel(X, size) if self.kernel is None else copy_kernel(self.kernel)
        return (
            Setting(kernel, likelihood, float(y.mean()), target_scale(y))
            if self.normalise_y
            else Setting(kernel, likelihood)
        )

    def _store(self, process: Process | AveragedProcess, table: HyperparameterTable) -> None:
        found, self.hyperparameters_, self.process_ = process.found, table, process
        self._of_classes = self._all_processes = [process]
        self.kernel_, self.likelihood_ = found.setting.kernel, found.setting.likelihood.template
        self.posterior_ = process.posterior
        self.log_evidence_, self.evidence_kind_ = self.posterior_.log_evidence, self.posterior_.evidence_kind
        self.theta_, self.jitter_ = found.setting.theta, found.latent.jitter
        self.converged_, self.n_iter_, self.trace_ = found.converged, found.n_iter, found.trace
        self.message_ = found.message

    def _check_before_saving(self) -> None:
        check_is_fitted(self)

    def _options_to_save(self) -> dict[str, Any]:
        return options_to_save(super()._options_to_save())

    def _after_loading(self) -> None:
        self._store(self.process_, self.hyperparameters_)

    def predict(
        self, X: ArrayLike, return_std: bool = False, return_cov: bool = False, *, trials: Any = None
    ) -> Array | tuple[Array, Array]:
        """Mean of the targets at new inputs.

        With location noise that is the mean of the latent function (also where the noise has none, as Cauchy's), and
        the standard deviations and covariance are the latent function's, without noise, as in scikit-learn. For counts
        and ordered classes mean and standard deviation are those of a new observation; of successes, among `trials`
        (one number, or one per row; one trial unless given).
        """
        if return_std and return_cov:
            raise ValueError("ask for one of return_std and return_cov")
        new = self._checked(X)
        beside = self._beside(trials, len(new))
        if self._location:
            return self._latent(new, return_std, return_cov)
        if return_cov:
            raise ValueError("return_cov is for noise added to the latent function; see predict_latent")
        predictive = self.process_.predictive(new, beside)
        return (predictive.mean, np.sqrt(predictive.variance)) if return_std else predictive.mean

    def predict_latent(
        self, X: ArrayLike, return_std: bool = False, return_cov: bool = False
    ) -> Array | tuple[Array, Array]:
        """Mean, and standard deviations or covariance, of the latent function at new inputs."""
        if return_std and return_cov:
            raise ValueError("return_std and return_cov cannot both be True; the diagonal of cov holds the variances")
        return self._latent(self._checked(X), return_std, return_cov)

    def predictive(self, X: ArrayLike, *, trials: Any = None) -> Predictive:
        """The distribution of new targets: `.log_density(y)`, `.cdf(y)`, `.quantile(q)`, `.sample(n)`, `.mean`."""
        new = self._checked(X)
        return self.process_.predictive(new, self._beside(trials, len(new)))

    def predict_quantiles(self, X: ArrayLike, quantiles: ArrayLike = (0.05, 0.5, 0.95), *, trials: Any = None) -> Array:
        """Quantiles of new targets, noise included, of shape (n_samples, n_quantiles)."""
        return self.predictive(X, trials=trials).quantile(np.atleast_1d(np.asarray(quantiles, float))[:, None]).T

    def predict_interval(self, X: ArrayLike, coverage: float = 0.9, *, trials: Any = None) -> Array:
        """An interval that holds a new target with probability `coverage`: columns low and high.

        It is central; of whole numbers, one of its ends moves to where the probability is nearest to `coverage`.
        """
        central_levels(coverage)
        return self.predictive(X, trials=trials).interval(coverage).T

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the predictions: 1 is perfect, 0 is the mean of y."""
        return float(super().score(X, check_visible("y", y), sample_weight))

    def quantile_residuals(self, X: ArrayLike, y: ArrayLike, random_state: RandomState = 0) -> Array:
        """Randomised quantile residuals (Dunn and Smyth, 1996): standard normal if the model is right.

        y has one number per row, or successes and trials, or times, events and ends of intervals, side by side.
        """
        rows, rng = float_array("y", y), generator(random_state)
        if rows.ndim == 1:
            return residuals_of(self.predictive(X).pit(rows, rng))
        names = self._columns_of(rows)
        if "trials" in names:
            return residuals_of(self.predictive(X, trials=rows[:, 1]).pit(rows[:, 0], rng))
        return residuals_of(censored_pit(self.predictive(X), rows, rng))

    def log_predictive_density(self, X: ArrayLike, y: ArrayLike) -> Array:
        """log p(y | training data) of each new target; y as in `quantile_residuals`.

        Of a censored time it is the log probability of what is known of it.
        """
        rows = float_array("y", y)
        if rows.ndim == 1:
            return self.predictive(X).log_density(rows)
        self._columns_of(rows)
        return self.process_.log_density(self._checked(X), rows)

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: RandomState = 0, *, trials: Any = None) -> Array:
        """Joint draws of new targets, noise included, of shape (n_rows, n_samples)."""
        new, count = self._checked(X), check_whole("n_samples", n_samples)
        return self.process_.sample(new, count, random_state, self._beside(trials, len(new))).T

    def leave_one_out(self) -> Array:
        """log p(y_n | the other targets) for every training row, at the fitted parameters."""
        check_is_fitted(self)
        return self.process_.leave_one_out()

    def log_marginal_likelihood(
        self, theta: ArrayLike | None = None, eval_gradient: bool = False
    ) -> float | tuple[float, Array]:
        """Log evidence of the training data at `theta` (default: the fitted one), and its gradient.

        Parameters
        ----------
        theta : array, optional
            Kernel parameters as `kernel_.theta`, followed or not by the likelihood's; see `theta_`.
        eval_gradient : bool
        """
        check_is_fitted(self)
        process = self.process_
        setting = process.setting if theta is None else process.setting.at(np.asarray(theta, float))
        latent = process.found.latent
        if theta is not None:
            latent = process.fitter.fit(setting, latent)
        value = latent.posterior.log_evidence
        return (value, process.fitter.gradient(latent)) if eval_gradient else value

    def _beside(self, trials: Any, rows: int) -> dict[str, Array]:
        """What belongs to new rows, by the name of the likelihood's argument."""
        if trials is None:
            return {}
        if "trials" not in self.likelihood_.parameters:
            raise ValueError(
                f"trials is for successes, got a process with {type(self.likelihood_).__name__} likelihood"
            )
        count = np.asarray(trials, float)
        if count.shape not in ((), (rows,)):
            raise ValueError(f"trials must be one number or one per row of X ({rows}), got shape {count.shape}")
        return {"trials": np.broadcast_to(count, rows)}

    def _columns_of(self, y: Array) -> tuple[str, ...]:
        """What the columns of a table of observations hold."""
        family = family_like(self.likelihood_)
        names = () if family is None else family.columns
        if y.ndim != 2 or not 1 < y.shape[1] <= len(names):
            known = f"(n,) or with columns {', '.join(names)}" if len(names) > 1 else "(n,), one number per row"
            raise ValueError(f"y must have shape {known}, got shape {y.shape}")
        return names

    @property
    def _location(self) -> bool:
        return type(self.likelihood_)._predictive is Potential._predictive

    def _latent(self, new: Array, return_std: bool, return_cov: bool) -> Array | tuple[Array, Array]:
        if return_cov:
            return self.process_.means(new), self.process_.covariance(new)
        if not return_std:
            return self.process_.means(new)
        means, variances = self.process_.marginals(new)
        return means, np.sqrt(variances)

    def _checked(self, X: ArrayLike) -> Array:
        check_is_fitted(self)
        return check_summable("X", validate_data(self, check_numeric("X", X), dtype=np.float64, reset=False))
