"""From the estimator's words to small objects: what each algorithm takes, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from latlin.diagnostics.inference_data import inference_data
from latlin.mixture.climbs import ESTIMATES, Options
from latlin.mixture.model import WEIGHT_PRIORS, Belief, Mixture
from latlin.mixture.moments import ComponentMoments, combine, scale_moments
from latlin.mixture.monte_carlo import CONTROL_VARIATES
from latlin.mixture.priors import STRUCTURES, FeatureSummary, PriorWords
from latlin.mixture.schedules import Adam, Constant, RobbinsMonro, StepRule, resolve_step
from latlin.mixture.sweep import CompleteRows, FloatRows, slices
from latlin.numerics.arrays import check_countable
from latlin.numerics.ascent import Rules
from latlin.numerics.linalg import Array
from latlin.numerics.options import check_choice, check_number, check_whole, float_array
from latlin.numerics.reported import Reported
from latlin.numerics.rng import RandomState, generator
from latlin.numerics.stored import storable


class Defaults(NamedTuple):
    """What an algorithm does by default otherwise."""

    step: StepRule
    max_iter: int
    tol: float
    n_draws: int
    remedy: str


_NOISY = "raise max_iter, batch_size or tol, or choose another step"
_DRAWS = "raise max_iter, n_draws or tol, or choose another step"
DEFAULTS = {
    "cavi": Defaults(Constant(), 1000, 1e-4, 1, "raise max_iter or tol"),
    "natural": Defaults(Constant(), 1000, 1e-4, 1, "raise max_iter or tol"),
    "stochastic-natural": Defaults(RobbinsMonro(delay=10.0), 3000, 1e-5, 1, _NOISY),
    "gradient": Defaults(Adam(), 3000, 1e-4, 1, "raise max_iter or tol, or choose another step"),
    "sgd": Defaults(Adam(), 3000, 1e-5, 1, _NOISY),
    "score": Defaults(Adam(), 3000, 1e-5, 20, _DRAWS),
    "pathwise": Defaults(Adam(), 3000, 1e-5, 1, _DRAWS),
    "iwae": Defaults(Adam(), 3000, 1e-5, 5, _DRAWS),
}
#: climbs whose steps are optimal, all else held
EXACT = ("cavi", "natural")
NOISY = {"stochastic-natural", "sgd", "score", "pathwise", "iwae"}
MINI_BATCH = {"stochastic-natural", "sgd"}
MISSING = {"cavi", "natural"}
BLOCKWISE = {"cavi", "natural", "stochastic-natural", "gradient"}


class MixtureOptions(Protocol):
    """The arguments of a mixture's constructor that are read here."""

    n_components: int
    covariance: str
    algorithm: str
    weight_prior: str
    weight_concentration: float | None
    mean_prior: ArrayLike | None
    mean_precision: float
    mean_covariance: ArrayLike | None
    fixed_covariance: ArrayLike
    degrees_of_freedom: float | None
    covariance_prior: ArrayLike | None
    step: str | StepRule | None
    batch_size: int
    batch: str
    n_draws: int | None
    control_variate: str | None
    labels: str
    temperature: float
    max_iter: int | None
    tol: float | None
    evaluate_every: int | None


def check_settings(est: MixtureOptions) -> None:
    """Refuse settings that mean nothing, with a sentence."""
    check_choice("covariance", est.covariance, STRUCTURES)
    check_choice("algorithm", est.algorithm, DEFAULTS)
    check_choice("weight_prior", est.weight_prior, WEIGHT_PRIORS)
    check_choice("control_variate", est.control_variate, [*CONTROL_VARIATES, None])
    check_choice("labels", est.labels, ["exact", "gumbel"])
    check_choice("batch", est.batch, ["uniform", "active"])
    for name, lowest in (("n_components", 1), ("n_init", 1), ("split_merge", 0), ("batch_size", 1)):
        check_whole(name, getattr(est, name), lowest)
    for name in ("n_draws", "max_iter", "evaluate_every", "stream_size"):
        if getattr(est, name) is not None:
            check_whole(name, getattr(est, name), 1)
    for name in ("mean_precision", "temperature"):
        check_number(name, getattr(est, name), above=0.0)
    for name in ("weight_concentration", "degrees_of_freedom"):
        if getattr(est, name) is not None:
            check_number(name, getattr(est, name), above=0.0)
    if est.tol is not None:
        check_number("tol", est.tol, least=0.0)
    _check_algorithm(est)


def _check_algorithm(est: MixtureOptions) -> None:
    euclidean = est.algorithm in ESTIMATES
    if euclidean and (est.covariance != "fixed" or est.weight_prior != "dirichlet"):
        raise ValueError(
            f"algorithm={est.algorithm!r} is for covariance='fixed' with weight_prior='dirichlet', got "
            f"covariance={est.covariance!r}, weight_prior={est.weight_prior!r}; 'cavi', 'natural' and "
            "'stochastic-natural' work for every covariance"
        )
    if not euclidean and est.step is not None and isinstance(resolve_step(est.step), Adam):
        raise ValueError(f"step='adam' is for Euclidean gradients, not for algorithm={est.algorithm!r}")
    if est.algorithm == "score" and est.control_variate is not None and est.n_draws == 1:
        raise ValueError("n_draws must be at least 2 for algorithm='score' with a control variate, got 1")


def build_mixture(est: MixtureOptions, summary: FeatureSummary) -> Mixture:
    """The priors in the user's words, completed from the data's summary."""
    concentration = est.weight_concentration
    if concentration is None:
        concentration = 1.0 / est.n_components
    weights = WEIGHT_PRIORS[est.weight_prior](float(concentration), est.n_components)
    words = PriorWords(
        est.mean_prior,
        float(est.mean_precision),
        est.mean_covariance,
        est.fixed_covariance,
        est.degrees_of_freedom,
        est.covariance_prior,
    )
    return Mixture(weights, STRUCTURES[est.covariance](words, summary))


def step_of(est: MixtureOptions) -> StepRule:
    """The step rule asked for, or the algorithm's own; coordinate ascent has only one."""
    if est.step is None or est.algorithm == "cavi":
        return DEFAULTS[est.algorithm].step
    return resolve_step(est.step)


def options_of(est: MixtureOptions, n: int) -> Options:
    """The settings of the climb."""
    batches = -(-n // min(est.batch_size, n))
    updates = est.evaluate_every or (batches if est.algorithm in MINI_BATCH else 1)
    if est.algorithm not in MINI_BATCH | {"iwae"}:
        updates = 1
    draws = est.n_draws or DEFAULTS[est.algorithm].n_draws
    return Options(step_of(est), est.batch_size, draws, est.control_variate, est.labels, est.temperature, updates)


def rules_of(est: MixtureOptions, updates: int) -> Rules:
    """When the climb stops."""
    own = DEFAULTS[est.algorithm]
    tol = own.tol if est.tol is None else float(est.tol)
    steps = -(-(est.max_iter or own.max_iter) // updates)
    change = 1e-2 if est.algorithm in NOISY else 1e-3 * tol
    return Rules(tol, change, steps, est.algorithm == "cavi", own.remedy)


#: rows that a spread takes
FEWEST = 2.0


def check_sum(weights: Array | None) -> None:
    """Weights that add up to enough rows for a spread."""
    if weights is not None and weights.sum() < FEWEST:
        raise ValueError(
            f"sample_weight must add up to at least {FEWEST:g} rows, got {weights.sum():.3g}: multiply by a constant"
        )


def check_weights(sample_weight: ArrayLike | None, n: int) -> Array | None:
    """Weights as a vector, or None."""
    if sample_weight is None:
        return None
    weights = float_array("sample_weight", sample_weight)
    if weights.ndim == 0:
        weights = np.full(n, float(weights))
    if weights.shape != (n,):
        raise ValueError(f"sample_weight must have shape ({n},), got shape {weights.shape}")
    if not np.isfinite(weights).all() or (weights < 0.0).any() or not weights.any():
        raise ValueError("sample_weight must be finite, not negative, and not all zero")
    return check_countable("sample_weight", weights)


def check_rows(values: FloatRows, components: int, missing_allowed: bool) -> None:
    """Enough rows, something observed in every feature, and no missing entries where they cannot be used."""
    seen = np.zeros(values.shape[1])
    for part in slices(len(values) if missing_allowed else 0):
        seen += ~np.isnan(values[part]).all(axis=0)
        if seen.all():
            break
    check_seen(len(values), seen if missing_allowed else np.ones_like(seen), components)


def check_seen(n: int, seen: Array, components: int) -> None:
    """Enough rows, and something observed in every feature."""
    if n < components:
        raise ValueError(
            f"n_components={components} needs at least as many rows with positive weight, got n_samples={n}"
        )
    if not seen.all():
        raise ValueError(f"feature {int(np.flatnonzero(seen == 0)[0])} of X has no observed value")


def check_blocks(est: MixtureOptions, truth: object, checkpoint: object) -> None:
    """Refuse what needs all rows in memory."""
    if est.algorithm not in BLOCKWISE:
        raise ValueError(f"algorithm={est.algorithm!r} needs the rows in memory; {sorted(BLOCKWISE)} work for blocks")
    if est.batch != "uniform":
        raise ValueError(f"batch={est.batch!r} needs the rows in memory; use 'uniform' for blocks of rows")
    if truth is not None:
        raise ValueError("truth is for rows in memory; leave it out for blocks of rows")
    if checkpoint is not None and est.algorithm in NOISY:
        raise ValueError(f"checkpoint is for 'cavi', 'natural' and 'gradient', not for algorithm={est.algorithm!r}")


def learns_scale(est: MixtureOptions) -> bool:
    """Whether the scale of the prior covariance is learnt: the default one, by the two exact climbs."""
    given = est.covariance_prior is not None or est.covariance == "fixed"
    return est.algorithm in EXACT and not given


# --- Stochastic natural gradients on a stream: constant memory, one pass.
#
# What is remembered are moments *per row*; a block moves them by ρ_t towards its own, and the belief is that of the
# number of rows the stream stands for. Source: Gutteridge (2021), eqs. 4.13–4.15.


@storable
class Stream(NamedTuple):
    """Where a stream stands."""

    mixture: Mixture
    share: ComponentMoments  # moments of one average row
    seen: float  # total weight of the rows so far
    t: int
    bound: float


STREAM_STEP = RobbinsMonro(delay=10.0)


def belief_of(stream: Stream, size: float | None) -> Belief:
    """q given the moments of as many rows as the stream stands for."""
    return stream.mixture.belief(scale_moments(stream.share, stream.seen if size is None else size))


def begin(mixture: Mixture, moments: ComponentMoments) -> Stream:
    """A stream that has seen nothing but starts from these moments."""
    return Stream(mixture, scale_moments(moments, 1.0 / moments.counts.sum()), 0.0, 0, -np.inf)


def absorb(stream: Stream, block: CompleteRows, step: StepRule, batch_size: int, size: float | None) -> Stream:
    """One natural-gradient step per mini-batch of the block."""
    for part in slices(len(block), batch_size):
        weights = None if block.weights is None else block.weights[part]
        stream = _advance(stream, CompleteRows(block.values[part], weights), step, size)
    return stream


def _advance(stream: Stream, batch: CompleteRows, step: StepRule, size: float | None) -> Stream:
    mixture, own = stream.mixture, batch.total
    stream = stream._replace(seen=stream.seen + own)
    whole = stream.seen if size is None else max(size, stream.seen)
    belief = belief_of(stream, whole)
    evaluation = mixture.evaluate(batch, belief)
    # the bound, its sum over rows estimated from this batch: (N/S) Σ ln Σ_k ρ_nk − KL
    kl = mixture.kl(belief)
    bound = whole / own * (evaluation.bound + kl) - kl
    rho = min(step.length(stream.t), 1.0)  # type: ignore[attr-defined]
    target = scale_moments(evaluation.moments, 1.0 / own)
    share = combine(mixture.components, stream.share, 1.0 - rho, target, rho)
    return stream._replace(share=share, t=stream.t + 1, bound=bound)


# --- Draws of the parameters of a mixture from q(π) q(θ).


class MixtureDraws(NamedTuple):
    """Draws of π, μ and Λ⁻¹: the first axis counts them, the others are those of the fitted attributes."""

    weights: Array
    means: Array
    covariances: Array


class ParameterDraws(Reported):
    """What a fitted mixture says of its parameters by draws."""

    if TYPE_CHECKING:
        mixture_: Any
        posterior_: Any
        random_state: RandomState
        n_features_in_: int

    def sample_posterior(self, n_samples: int = 1, random_state: RandomState = None) -> MixtureDraws:
        """Draws of weights, means and covariances from the posterior, one per entry of the first axis of each."""
        check_is_fitted(self, "posterior_")
        rng = generator(self.random_state if random_state is None else random_state)
        count, belief = check_whole("n_samples", n_samples, 1), self.posterior_
        weights = self.mixture_.weights.draw_weights(belief.weights, count, rng)
        return MixtureDraws(weights, *self.mixture_.components.draw_parameters(belief.components, count, rng))

    def to_arviz(self, n_samples: int = 1000, random_state: RandomState = None) -> Any:
        """Draws as an `arviz.InferenceData` (of ArviZ 1, a `DataTree`); needs ArviZ."""
        draws = self.sample_posterior(n_samples, random_state)
        names = getattr(self, "feature_names_in_", None)
        features = [f"x{j}" for j in range(self.n_features_in_)] if names is None else [str(name) for name in names]
        coords = {"component": range(draws.weights.shape[1]), "feature": features}
        posterior = {name: values[None] for name, values in draws._asdict().items()}
        return inference_data({"posterior": posterior}, coords, {"weights": ["component"], "means": list(coords)})
