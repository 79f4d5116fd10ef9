"""The scikit-learn face of the mixture."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from latlin.distributed.blocks import make_rows_dense
from latlin.distributed.checkpoints import CheckpointFiles, digest_of, signature
from latlin.distributed.opening import is_blocked, open_blocks, refuse_checkpoint, remember_columns, rowwise
from latlin.mixture import settings
from latlin.mixture.climbs import Climb, EuclideanClimb, NaturalClimb, make_climb
from latlin.mixture.fitting import MixtureFit, Recorder, check_truth, fit_mixture, learn_scale, record_starts
from latlin.mixture.fixed import RootBelief
from latlin.mixture.model import Belief, Data, Mixture, read_rows
from latlin.mixture.monte_carlo import importance_bound
from latlin.mixture.priors import SAMPLE, SampledRows, make_sample, seed_labels, summarise
from latlin.mixture.schedules import StepRule
from latlin.mixture.settings import STREAM_STEP, ParameterDraws, Stream, absorb, begin, belief_of
from latlin.mixture.sweep import CompleteRows, FloatRows, active_chances, make_rows, slices, widen
from latlin.numerics.archive import Archived
from latlin.numerics.arrays import check_numeric, check_summable
from latlin.numerics.linalg import Array
from latlin.numerics.options import check_whole
from latlin.numerics.rng import RandomState, generator

IMPORTANCE_REPEATS = 50
#: times that the scale of the prior covariance is learnt again after a climb
SCALE_ROUNDS = 3


class BayesianGaussianMixture(ParameterDraws, Archived, DensityMixin, BaseEstimator):
    """Bayesian Gaussian mixture: one exact bound, every algorithm to climb it.

    Parameters
    ----------
    n_components : int
        Largest number of components K; superfluous ones are emptied.
    covariance : {"full", "tied", "diagonal", "spherical", "fixed"}
        "fixed" knows the covariance (`fixed_covariance`); the others learn it under normal-Wishart (full, tied) or
        normal-gamma (diagonal, spherical) priors.
    algorithm : {"cavi", "natural", "stochastic-natural", "gradient", "sgd", "score", "pathwise", "iwae"}
        Coordinate ascent; natural gradients; natural gradients of mini-batches; Euclidean gradients of all the data,
        of mini-batches, or estimated by score function or path; the importance-weighted bound. The first three
        work for every covariance, the others for "fixed" with Dirichlet weights.
    weight_prior : {"dirichlet", "stick-breaking"}
    weight_concentration : float, default 1/n_components
        α₀ of the Dirichlet, or γ of the sticks.
    mean_prior : array of shape (n_features,), default the median
    mean_precision : float
        β₀, as how many rows the prior mean counts (not for "fixed").
    mean_covariance : scalar, vector or matrix, default the spread of the data
        C₀ of "fixed".
    fixed_covariance : scalar, vector or matrix
        Σ of "fixed".
    degrees_of_freedom : float, default n_features + 2, or 3 for diagonal and spherical
        ν₀ of the precisions.
    covariance_prior : scalar, vector or matrix, default the spread of the data over n_components^(2/n_features)
        Ψ₀; with the default degrees of freedom it is the prior mean of a covariance. By default "cavi" and "natural"
        multiply it by the factor that maximises the bound.
    step : str or schedule, default by algorithm
        "robbins-monro", "exponential", "constant", "adam", or an object of `latlin.mixture.schedules`.
    batch_size : int, default 256
        Rows of a mini-batch ("sgd", "stochastic-natural", `partial_fit`).
    batch : {"uniform", "active"}
        How rows of a mini-batch are drawn: all alike, or those far from the mean more often, each with a weight of one
        over its probability (Horvitz and Thompson 1952), so that sums stay unbiased. "active" is for rows in memory.
    n_draws : int, default by algorithm
        Monte Carlo draws per iteration ("score", "pathwise", "iwae").
    control_variate : {"baseline", "regression", None}
        Of "score"; with None its noise grows with the data and it does not converge.
    labels : {"exact", "gumbel"}
        "pathwise" may draw relaxed labels at `temperature` instead of summing them out.
    temperature : float
    n_init : int
        k-means++ starts, each followed by a short run. With "cavi" or "natural" on up to 50,000 rows all that beat
        those before are continued, so that more starts never end lower; else the best.
    split_merge : int
        Split and merge moves that may fail after convergence ("cavi"); those without hope are not tried.
    max_iter : int, default by algorithm
        Updates at most.
    tol : float, default by algorithm
        "cavi", "natural", "gradient": largest move of a component's share of the data at convergence, and a thousand
        times the largest relative change of the bound. The noisy algorithms: relative change of the mean bound
        between two windows of 50 evaluations.
    evaluate_every : int, default 1, or one pass over the data for mini-batches
        Updates between two evaluations of the bound.
    stream_size : int, default the rows seen so far
        How many rows a stream of `partial_fit` stands for.
    random_state : int, Generator or None
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    weights_, means_, covariances_ : ndarray
        E[π], E[μ] and E[Λ]⁻¹ (in the covariance's own shape).
    posterior_ : Belief
        Parameters of q(π) q(θ).
    log_evidence_, evidence_kind_ : float, str
        Evidence lower bound with every constant; the kind is "lower bound", or "approximation" after `partial_fit`,
        which sees one block. `lower_bound_` and `bound_kind_` are the same.
    importance_bound_ : BoundEstimate
        The tighter bound climbed by "iwae", with its standard error.
    covariance_prior_factor_ : float
        What the default covariance of the prior was multiplied by; 1 where it was not learnt.
    n_active_ : int
        Components that answer for at least one row.
    trace_ : ndarray
        The bound after each evaluation.
    history_ : Trace
        Bound, log-likelihood error (when `fit` is given the truth), seconds and iterations.
    converged_, n_iter_, message_

    References
    ----------
    Gutteridge (2021), corrected; Hoffman et al. (2013); Tucker et al. (2018).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(-4, 1, (50, 2)), rng.normal(4, 1, (50, 2))])
    >>> mixture = BayesianGaussianMixture(5, random_state=0).fit(X)
    >>> mixture.n_active_
    2
    """

    _saved = (
        *("mixture_", "posterior_", "lower_bound_", "bound_kind_", "n_iter_", "n_active_", "n_features_in_"),
        *("converged_?", "message_?", "n_seen_?", "history_?", "_stream?", "feature_names_in_?[D]"),
        "covariance_prior_factor_?",
        "posterior_.components.mean[K, D]",
    )

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance: str = "full",
        algorithm: str = "cavi",
        weight_prior: str = "dirichlet",
        weight_concentration: float | None = None,
        mean_prior: ArrayLike | None = None,
        mean_precision: float = 0.01,
        mean_covariance: ArrayLike | None = None,
        fixed_covariance: ArrayLike = 1.0,
        degrees_of_freedom: float | None = None,
        covariance_prior: ArrayLike | None = None,
        step: str | StepRule | None = None,
        batch_size: int = 256,
        batch: str = "uniform",
        n_draws: int | None = None,
        control_variate: str | None = "baseline",
        labels: str = "exact",
        temperature: float = 0.5,
        n_init: int = 3,
        split_merge: int = 10,
        max_iter: int | None = None,
        tol: float | None = None,
        evaluate_every: int | None = None,
        stream_size: int | None = None,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.covariance = covariance
        self.algorithm = algorithm
        self.weight_prior = weight_prior
        self.weight_concentration = weight_concentration
        self.mean_prior = mean_prior
        self.mean_precision = mean_precision
        self.mean_covariance = mean_covariance
        self.fixed_covariance = fixed_covariance
        self.degrees_of_freedom = degrees_of_freedom
        self.covariance_prior = covariance_prior
        self.step = step
        self.batch_size = batch_size
        self.batch = batch
        self.n_draws = n_draws
        self.control_variate = control_variate
        self.labels = labels
        self.temperature = temperature
        self.n_init = n_init
        self.split_merge = split_merge
        self.max_iter = max_iter
        self.tol = tol
        self.evaluate_every = evaluate_every
        self.stream_size = stream_size
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.algorithm in settings.MISSING
        return tags

    def fit(
        self,
        X: ArrayLike,
        y: object = None,
        sample_weight: ArrayLike | None = None,
        truth: tuple[ArrayLike, ...] | None = None,
        *,
        checkpoint: Any = None,
    ) -> Self:
        """Fit the mixture.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            May contain NaN for missing entries with algorithm "cavi" or "natural". With these, "gradient" and
            "stochastic-natural" X may be a Dask array or data frame, a large memory-mapped array or
            `latlin.distributed` blocks: an update is then one pass over its blocks, mini-batches are taken where
            the rows are.
        y : ignored
        sample_weight : array of shape (n_samples,), optional
            A row of weight two counts as two rows.
        truth : (weights, means) or (weights, means, covariances), optional
            The mixture the data came from; `history_` then has the log-likelihood error.
        checkpoint : path, optional
            Of rows in blocks (not for "stochastic-natural"): where to keep the state (`checkpoint.0` and so on, a file
            per climb), and to go on from. The short runs that choose a start are done again.
        """
        settings.check_settings(self)
        if is_blocked(X):
            return self._fit_blocks(X, sample_weight, truth, checkpoint)
        refuse_checkpoint(checkpoint)
        values, weights = self._validated(X, sample_weight, reset=True)
        settings.check_sum(weights)
        settings.check_rows(values, self.n_components, self.algorithm in settings.MISSING)
        data = make_rows(values, weights)
        if self.batch == "active" and isinstance(data, CompleteRows):
            data = replace(data, chances=active_chances(values))
        return self._fit_rows(data, values, truth, CheckpointFiles(None, ""))

    def _fit_blocks(self, X: Any, sample_weight: Any, truth: Any, checkpoint: Any) -> Self:
        settings.check_blocks(self, truth, checkpoint)
        blocks = make_rows_dense(open_blocks(X, weight=sample_weight))
        data = read_rows(blocks, self.algorithm in settings.MISSING)
        remember_columns(self, X, data.dim)
        settings.check_seen(len(data), data.seen, self.n_components)
        files = CheckpointFiles(checkpoint, signature(self, digest_of(data.blocks, checkpoint)))
        return self._fit_rows(data, None, None, files)

    def _fit_rows(self, data: Data, values: FloatRows | None, truth: Any, files: CheckpointFiles) -> Self:
        mixture, sample = self._prepared(data)
        options, rng = settings.options_of(self, len(data)), generator(self.random_state)
        climb = make_climb(self.algorithm, mixture, data, options, rng)
        starts = record_starts(climb, sample, self.n_components, self.n_init)
        several = self.algorithm in settings.EXACT and len(data) <= SAMPLE
        fits = []
        for start in starts if several else starts[-1:]:
            # each has its own numbers, so that more starts change none of the earlier
            begun, state = (climb.with_rng(start.rng), start.begin) if several else (climb, start.tried)
            recorder = Recorder(mixture, values, options.updates, check_truth(truth, mixture))
            fits.append(self._fit_from(begun, state, recorder, sample, files))
        fit, climb, self.covariance_prior_factor_ = max(fits, key=lambda found: found[0].bound)
        return self._store_fit(climb.mixture, fit, climb)

    def _fit_from(
        self, climb: Climb[Any], state: Any, recorder: Recorder, sample: SampledRows, files: CheckpointFiles
    ) -> tuple[MixtureFit, Climb[Any], float]:
        """The fit from one start, the climb with the priors it ended with, and the factor of the prior covariance."""
        learnt, factor = settings.learns_scale(self), 1.0
        if learnt and isinstance(climb, NaturalClimb):
            climb, state, factor = learn_scale(climb, state, factor, files)
        task: dict[str, Any] = {
            "sample": sample,
            "label": f"mixture ({self.algorithm})",
            "verbose": self.verbose,
            "files": files,
        }
        rules = settings.rules_of(self, recorder.updates)
        moves = self.split_merge if self.algorithm == "cavi" else 0
        fit = fit_mixture(climb, state, rules, recorder, moves=moves, **task)
        for _ in range(SCALE_ROUNDS if learnt and fit.converged else 0):
            assert isinstance(climb, NaturalClimb)  # others do not learn it
            # components that moves have made may ask for another scale
            again, state, changed = learn_scale(climb, climb.start(fit.moments), factor, files)
            if again is climb:
                break
            climb, factor = again, changed
            fit = fit_mixture(climb, state, rules, recorder, moves=0, **task)
        return fit, climb, factor

    def _validated(
        self, X: ArrayLike, sample_weight: ArrayLike | None, *, reset: bool
    ) -> tuple[FloatRows, Array | None]:
        """Rows of positive weight, float32 kept, and their weights."""
        finite = "allow-nan" if self.algorithm in settings.MISSING else True
        kinds = [np.float64, np.float32]
        values = validate_data(
            self, check_numeric("X", X), reset=reset, dtype=kinds, order="C", ensure_all_finite=finite
        )
        check_summable("X", values)
        weights = settings.check_weights(sample_weight, len(values))
        if weights is None or weights.all():
            return values, weights
        return values[weights > 0.0], weights[weights > 0.0]

    def _prepared(self, data: Data) -> tuple[Mixture, SampledRows]:
        """Priors and a sample for seeding, both from at most 50,000 rows, evenly spaced."""
        rows, weights = data.every(-(-len(data) // SAMPLE))
        summary = summarise(rows, weights, self.n_components)
        return settings.build_mixture(self, summary), make_sample(rows, weights, data.total, summary)

    def _store_fit(self, mixture: Mixture, fit: MixtureFit, climb: Climb[Any]) -> Self:
        self._store(mixture, fit.belief, fit.counts)
        self.lower_bound_ = fit.bound
        self.bound_kind_ = "lower bound"
        self.converged_ = fit.converged
        self.n_iter_ = fit.n_iter
        self.history_ = fit.trace
        self.message_ = fit.message
        if self.algorithm == "iwae" and isinstance(climb, EuclideanClimb):
            draws = climb.options.n_draws
            point = RootBelief.of(fit.belief)
            estimate = importance_bound(mixture, climb.data, point, draws, IMPORTANCE_REPEATS, climb.rng)
            self.importance_bound_ = estimate
        return self

    def _store(self, mixture: Mixture, belief: Belief, counts: Array) -> None:
        self.mixture_ = mixture
        self.posterior_ = belief
        self.weights_ = mixture.weights.mean(belief.weights)
        self.means_ = belief.components.mean
        self.covariances_ = mixture.components.covariances(belief.components)
        self.n_active_ = int((counts >= 1.0).sum())

    #: the bound and its kind, by the names that every estimator has for them
    log_evidence_ = property(lambda self: self.lower_bound_)
    evidence_kind_ = property(lambda self: self.bound_kind_)

    @property
    def trace_(self) -> Array:
        """The bound after each evaluation."""
        return self.history_.bound

    def _check_before_saving(self) -> None:
        check_is_fitted(self, "posterior_")

    def _after_loading(self) -> None:
        active = self.n_active_
        self._store(self.mixture_, self.posterior_, np.zeros(0))
        self.n_active_ = active
        # a file that is not ours may hold numbers of other lengths: they must answer
        self.score_samples(np.zeros((1, self.n_features_in_)))

    def partial_fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Absorb a block of a stream by stochastic natural gradients, one step per mini-batch.

        The first block sets the priors' defaults and the start. float32 blocks are not copied. `lower_bound_` is
        then an estimate from the last mini-batch, of the rows seen so far or of `stream_size`.
        """
        settings.check_settings(self)
        first = not hasattr(self, "_stream")
        values, weights = self._validated(X, sample_weight, reset=first)
        data = make_rows(values, weights)
        if not isinstance(data, CompleteRows):
            raise ValueError("partial_fit takes no missing entries (NaN); use fit with algorithm='cavi'")
        if first:
            self._stream = self._begun(data)
        step = STREAM_STEP if self.step is None else settings.step_of(self)
        self._stream = absorb(self._stream, data, step, self.batch_size, self.stream_size)
        whole = max(self._stream.seen, self.stream_size or 0.0)
        self._store(self._stream.mixture, belief_of(self._stream, whole), self._stream.share.counts * whole)
        self.lower_bound_ = self._stream.bound
        self.bound_kind_ = "approximation"
        self.n_iter_ = self._stream.t
        self.n_seen_ = self._stream.seen
        return self

    def _begun(self, data: CompleteRows) -> Stream:
        """The start of a stream: the best of a few seedings of the first block."""
        settings.check_rows(data.values, self.n_components, missing_allowed=False)
        rng = generator(self.random_state)
        mixture, sample = self._prepared(data)
        block = CompleteRows(sample.rows, sample.weights)
        starts = [
            sample.moments(mixture, seed_labels(sample, self.n_components, rng), self.n_components)
            for _ in range(self.n_init)
        ]
        bounds = [mixture.evaluate(block, mixture.belief(moments)).bound for moments in starts]
        return begin(mixture, starts[int(np.argmax(bounds))])

    def _each(self, X: ArrayLike, ask: str, width: int | None) -> Array:
        """Ask the mixture about blocks of rows; rows with missing entries by pattern, of the features they have."""
        check_is_fitted(self, "posterior_")
        kinds = [np.float64, np.float32]
        finite = "allow-nan" if self.algorithm in settings.MISSING else True
        values = validate_data(
            self, check_numeric("X", X), reset=False, dtype=kinds, order="C", ensure_all_finite=finite
        )
        check_summable("X", values)
        missing = np.isnan(values)
        shape = (len(values),) if width is None else (len(values), width)
        answer = np.empty(shape)
        patterns, labels = np.unique(missing, axis=0, return_inverse=True)
        for index, pattern in enumerate(patterns):
            chosen = np.flatnonzero(labels.ravel() == index)
            mixture, belief = _seen(self.mixture_, self.posterior_, ~pattern)
            for part in slices(len(chosen)):
                rows = widen(values[chosen[part]][:, ~pattern])
                answer[chosen[part]] = getattr(mixture, ask)(rows, belief)
        return answer

    @rowwise
    def predict_proba(self, X: ArrayLike) -> Array:
        """Responsibilities of the components for each row, shape (n_samples, n_components)."""
        return softmax(self._each(X, "log_joint", self.n_components), axis=1)

    @rowwise
    def predict(self, X: ArrayLike) -> NDArray[np.intp]:
        """The component most responsible for each row."""
        return self._each(X, "log_joint", self.n_components).argmax(axis=1)

    def fit_predict(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Any:
        """Fit and predict the same rows."""
        return self.fit(X, sample_weight=sample_weight).predict(X)

    @rowwise
    def score_samples(self, X: ArrayLike) -> Array:
        """Log density of each row under the posterior predictive: a mixture of Student's t (normals if "fixed")."""
        return self._each(X, "log_predictive", None)

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Mean log density of the rows under the posterior predictive."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> tuple[Array, NDArray[np.intp]]:
        """Draws of the posterior predictive and their components."""
        check_is_fitted(self, "posterior_")
        rng = generator(self.random_state if random_state is None else random_state)
        labels = rng.choice(self.n_components, size=check_whole("n_samples", n_samples), p=self.weights_)
        return self.mixture_.components.draw(self.posterior_.components, labels, rng), labels


def _seen(mixture: Mixture, belief: Belief, kept: NDArray[np.bool_]) -> tuple[Mixture, Belief]:
    """The mixture of some of the features."""
    if kept.all():
        return mixture, belief
    structure, params = mixture.components.restrict(belief.components, kept)
    return Mixture(mixture.weights, structure), Belief(belief.weights, params)
