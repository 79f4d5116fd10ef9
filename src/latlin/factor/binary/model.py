"""Binary latent factors: x = Σ s_i μ_i + noise, s_i in {0, 1}; the bound, updates that raise it, and fits.

    s_i ~ Bernoulli(π_i),  x | s ~ N(Σ s_i μ_i, σ²I),  and with relevances  μ_i ~ N(0, α_i⁻¹ I)

Lau (2020), eqs. 1–2, 23. There q(μ) has one variance per factor; here it is N(M, S) with one K×K covariance S
shared by all features, which holds that form as a special case: it is as cheap, and its bound is tighter. With moments
of q(s)

    T = ΛᵀX,  E = Σ_n ⟨ssᵀ⟩ = ΛᵀΛ + diag Σ(λ − λ²),  ⟨μ_iᵀμ_j⟩ = M_iᵀM_j + D S_ij = Q_ij

the bound is (8), corrected, every constant included:

    F = H(q(s)) + Σ_i [n_i log π_i + (N − n_i) log(1 − π_i)] − ½ND log 2πσ²
        − (‖X‖² − 2⟨T, M⟩ + ⟨E, Q⟩)/2σ² + ½[D Σ log α_i + D log det S + KD − Σ α_i Q_ii],

the last bracket, −KL(q(μ) ‖ p(μ | α)), being absent when μ is a point (maximum likelihood).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.linalg import blas
from scipy.stats import skew
from sklearn.decomposition import NMF, FastICA
from sklearn.exceptions import ConvergenceWarning

from latlin.factor.binary.latents import (
    BinaryLatents,
    LatentEngine,
    RowProblem,
    independent_entropy,
    independent_latents,
)
from latlin.numerics.arrays import LOG_SQRT_2PI
from latlin.numerics.ascent import Ascent, Measure, Rules, ascend
from latlin.numerics.linalg import Array, cholesky
from latlin.numerics.progress import progress, watch
from latlin.numerics.threads import one_blas_thread

#: π stays this far from 0 and 1
MARGIN = 1e-10


class Data(NamedTuple):
    """The rows, Fortran-ordered once for BLAS as well, their sum of squares and the least noise variance."""

    rows: Array
    square: float
    floor: float


class BinaryState(NamedTuple):
    """q(s) by its moments, q(μ), and the parameters."""

    means: Array  # Λ, N×K
    second: Array  # E, K×K
    entropy: float  # H(q(s))
    product: Array  # T, K×D
    features: Array  # M, K×D
    covariance: Array  # S, K×K; zero when μ is a point
    relevance: Array  # α, K; zero when μ is a point
    probability: Array  # π, K
    noise: float  # σ²

    @property
    def feature_second(self) -> Array:
        """Q = MMᵀ + DS."""
        outer = blas.dgemm(1.0, self.features.T, self.features.T, trans_a=1)
        return outer + self.features.shape[1] * self.covariance


def make_data(rows: Array, noise_floor: float) -> Data:
    """`noise_floor` is a share of the mean variance of the features."""
    variance = float(rows.var(axis=0).mean()) if len(rows) > 1 else 0.0
    return Data(rows, float(np.einsum("nd,nd->", rows, rows)), max(noise_floor * variance, 1e-300))


def row_problem(rows: Array, state: BinaryState) -> RowProblem:
    """The energies of rows given q(μ), π and σ²."""
    second = state.feature_second / state.noise
    field = blas.dgemm(1.0 / state.noise, state.features.T, rows.T, trans_a=1).T
    odds = np.log(state.probability) - np.log1p(-state.probability)
    none = float(np.log1p(-state.probability).sum())
    return RowProblem(field, second, odds - 0.5 * np.diagonal(second), none)


def replace_latents(rows: Array, state: BinaryState, latents: BinaryLatents) -> BinaryState:
    """The state with another q(s)."""
    product = blas.dgemm(1.0, rows.T, latents.means.T, trans_b=1).T
    return state._replace(means=latents.means, second=latents.second, entropy=latents.entropy, product=product)


def infer_latents(data: Data, state: BinaryState, engine: LatentEngine) -> BinaryState:
    """q(s) ← the engine's best: (10), (35)."""
    return replace_latents(data.rows, state, engine.infer(row_problem(data.rows, state), state.means))


def update_probability(state: BinaryState) -> BinaryState:
    """π_i ← Σ_n λ_ni / N."""
    return state._replace(probability=np.clip(state.means.mean(axis=0), MARGIN, 1.0 - MARGIN))


def square_error(data: Data, state: BinaryState) -> float:
    """⟨‖X − Sμ‖²⟩ = ‖X‖² − 2⟨T, M⟩ + ⟨E, Q⟩."""
    fit = np.vdot(state.product, state.features)
    return float(data.square - 2.0 * fit + np.vdot(state.second, state.feature_second))


def update_noise(data: Data, state: BinaryState) -> BinaryState:
    """σ² ← ⟨‖X − Sμ‖²⟩ / ND, (36) corrected; at least the floor."""
    return state._replace(noise=max(square_error(data, state) / data.rows.size, data.floor))


class FeaturePrior(Protocol):
    """How the features are learnt: as points, or with relevances."""

    def update(self, state: BinaryState) -> BinaryState:
        """Features (and relevances) that maximise the bound; factors found useless may be gone."""

    def divergence(self, state: BinaryState) -> float:
        """KL(q(μ) ‖ p(μ))."""


class PointFeatures:
    """Maximum likelihood: M = E⁻¹T; a factor that is never on keeps no weight."""

    def update(self, state: BinaryState) -> BinaryState:
        values, vectors = np.linalg.eigh(state.second)
        kept = values > 1e-13 * max(values[-1], 1e-300)
        basis = vectors[:, kept]
        features = (basis / values[kept]) @ (basis.T @ state.product)
        k = len(features)
        return state._replace(features=features, covariance=np.zeros((k, k)), relevance=np.zeros(k))

    def divergence(self, state: BinaryState) -> float:
        return 0.0


class RelevantFeatures:
    """q(μ) = N(M, S) with S = (E/σ² + diag α)⁻¹, M = ST/σ², and α_i at its best, one after the other.

    Given the others, with cavity precision h = 1/S_ii − α_i and a = M_i/S_ii, the bound maximised over q(μ) is largest
    at α_i = Dh²/(‖a‖² − Dh) when ‖a‖² > Dh and at ∞ otherwise. (24) and (34) move towards the same point, only slowly:
    a useless α_i then grows by h an iteration for ever. A factor with α_i = ∞ has μ_i = 0 and is removed.
    """

    def update(self, state: BinaryState) -> BinaryState:
        state = self.posterior(state)
        for i in range(len(state.relevance)):
            if np.isfinite(np.delete(state.relevance, i)).any():
                state = self.relevance(state, i)
        return drop(state, np.flatnonzero(~np.isfinite(state.relevance)))

    @staticmethod
    def posterior(state: BinaryState) -> BinaryState:
        """q(μ) for given α: (31)–(32), corrected and jointly over the factors."""
        precision = state.second / state.noise + np.diag(state.relevance)
        covariance = cholesky(precision, name="E/σ² + diag α", max_jitter=1e-10).inverse()
        features = blas.dgemm(1.0 / state.noise, state.product.T, covariance).T
        return state._replace(features=features, covariance=covariance)

    @staticmethod
    def relevance(state: BinaryState, i: int) -> BinaryState:
        """α_i and q(μ) jointly; S and M follow by one rank-one update."""
        column, feature = state.covariance[:, i].copy(), state.features[i].copy()
        dim, own, old = len(feature), column[i], state.relevance[i]
        h = 1.0 / own - old
        excess = float(feature @ feature) / own**2 - dim * h
        new = dim * h * h / excess if excess > 0.0 and h > 1e-10 / own else np.inf
        # S ← S − S_i S_iᵀ δ/(1 + δS_ii) and M ← M − S_i M_iᵀ δ/(1 + δS_ii), δ = α_new − α_old
        share = (new - old) / (1.0 + (new - old) * own) if np.isfinite(new) else 1.0 / own
        relevance = state.relevance.copy()
        relevance[i] = new
        return state._replace(
            relevance=relevance,
            covariance=state.covariance - share * np.outer(column, column),
            features=state.features - share * np.outer(column, feature),
        )

    def divergence(self, state: BinaryState) -> float:
        alive = np.isfinite(state.relevance)
        alpha, dim = state.relevance[alive], state.features.shape[1]
        if not len(alpha):
            return 0.0
        log_det = cholesky(state.covariance[np.ix_(alive, alive)], name="S").log_det
        square = np.diagonal(state.feature_second)[alive]
        return float(-0.5 * (dim * (np.log(alpha).sum() + log_det + len(alpha)) - alpha @ square))


def drop(state: BinaryState, factors: NDArray[np.intp]) -> BinaryState:
    """The state without some factors: q(s) and q(μ) of the others stay. The entropy is that of independent latents."""
    if not len(factors):
        return state
    keep = np.setdiff1d(np.arange(len(state.probability)), factors)
    block = np.ix_(keep, keep)
    means = np.ascontiguousarray(state.means[:, keep])
    return BinaryState(
        means,
        state.second[block],
        independent_entropy(means),
        state.product[keep],
        state.features[keep],
        state.covariance[block],
        state.relevance[keep],
        state.probability[keep],
        state.noise,
    )


def bound(data: Data, state: BinaryState, prior: FeaturePrior) -> float:
    """F, every constant included."""
    n, size = len(data.rows), data.rows.size
    active = state.means.sum(axis=0)
    latent = active @ np.log(state.probability) + (n - active) @ np.log1p(-state.probability) + state.entropy
    likelihood = -size * (LOG_SQRT_2PI + 0.5 * np.log(state.noise)) - 0.5 * square_error(data, state) / state.noise
    return float(latent + likelihood - prior.divergence(state))


# --- Fits of binary factors: many short climbs on a part of the rows, one long one on all, and removals that pay.
#
# A step is q(μ) (and relevances), σ², π, then q(s): Lau (2020), §1 and §3.2. Each part raises the bound, so the bound
# never falls. Relevances remove a factor only when its feature is worth nothing; two factors that share a feature, or
# one that explains three rows, are stable under every single update. `drop_superfluous` tries what the bound says of
# the model without them.


# --- Where mean-field EM for binary factors starts: non-negative factorisation, independent components, chance.
#
# From chance it finds three to seven of the eight 4×4 features of Lau (2020); from a factorisation usually all.
# Every start gives activations Λ, N×K: inside (0, 1), or 1 for a factor that takes a constant background.

Start = Callable[[Array, int, np.random.Generator], Array]
#: starting activations stay this far from 0 and 1
EDGE = 0.02
#: share of the sum of squares from which negative values, or a background, count
SHARE = 0.05


def start_by_factorisation(rows: Array, count: int, rng: np.random.Generator) -> Array:
    """Weights of a non-negative factorisation, each scaled by its largest.

    Data with negative values, or with a background, are shifted first; a factor that is always on takes the shift.
    """
    least = np.quantile(rows, 0.01, axis=0)
    negative = float((np.minimum(rows, 0.0) ** 2).sum())
    shifts = count > 1 and (negative > SHARE * float((rows**2).sum()) or _is_large(np.maximum(least, 0.0), rows))
    shifted = np.maximum(rows - least if shifts else rows, 0.0)
    seed = int(rng.integers(2**31))
    nmf = NMF(count - shifts, init="random", max_iter=300, tol=1e-4, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        weights = nmf.fit_transform(shifted)
    tops = np.quantile(weights, 0.98, axis=0)
    return np.hstack([_clipped(weights / np.where(tops > 0.0, tops, 1.0)), np.ones((len(rows), int(shifts)))])


def start_by_components(rows: Array, count: int, rng: np.random.Generator) -> Array:
    """Independent components read as two-valued; factors beyond their number start at chance."""
    number = min(count, *rows.shape, np.linalg.matrix_rank(rows - rows.mean(axis=0)))
    if number < 1:
        return start_by_chance(rows, count, rng)
    seed = int(rng.integers(2**31))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ica = FastICA(number, whiten="unit-variance", max_iter=300, random_state=seed)
        sources = ica.fit_transform(rows)
    # a standardised Bernoulli(p) has skewness (1 − 2p)/√(p(1 − p)) and values −√(p/(1−p)), √((1−p)/p)
    skewness = np.nan_to_num(skew(sources, axis=0))
    p = np.clip(0.5 * (1.0 - skewness / np.sqrt(4.0 + skewness**2)), 0.01, 0.99)
    low, gap = -np.sqrt(p / (1.0 - p)), 1.0 / np.sqrt(p * (1.0 - p))
    on = (sources - low) / gap
    # x = Σ s_i μ_i + b: swap on and off, s_i → 1 − s_i, where that brings b to zero
    features = ica.mixing_ * gap
    rest = rows.mean(axis=0) - features @ on.mean(axis=0)
    swap = np.linalg.lstsq(features, -rest, rcond=None)[0] > 0.5
    on = np.hstack([_clipped(np.where(swap, 1.0 - on, on)), start_by_chance(rows, count - number, rng)])
    if count > 1 and _is_large(rest + features @ swap, rows):
        on[:, -1] = 1.0
    return on


def start_by_chance(rows: Array, count: int, rng: np.random.Generator) -> Array:
    """Activations uniform on (¼, ¾), as in the source."""
    return 0.25 + 0.5 * rng.random((len(rows), count))


def _is_large(background: Array, rows: Array) -> bool:
    """Whether a constant row explains more than its share of the data."""
    return float((background**2).sum()) > SHARE * float((rows**2).sum()) / len(rows)


def _clipped(activations: Array) -> Array:
    return np.clip(activations, EDGE, 1.0 - EDGE)


STARTS: dict[str, Start] = {"nmf": start_by_factorisation, "ica": start_by_components, "random": start_by_chance}


#: rows on which starts are compared
SAMPLE = 1000
SHORT = Rules(gradient_tol=1e-3, objective_tol=1e-6, max_iter=40, monotone=True)
#: sizes of the starts, as shares of the number of factors allowed, when relevances decide
SHARES = (1.0, 2.0 / 3.0, 0.5, 1.0 / 3.0)


@dataclass(frozen=True)
class BinaryOptions:
    """What a fit needs to know besides the rows."""

    count: int
    prior: FeaturePrior
    engine: LatentEngine
    starts: tuple[str, ...]
    n_init: int
    n_jobs: int | None
    noise_floor: float
    rules: Rules
    verbose: bool

    @property
    def removes(self) -> bool:
        """Whether the number of factors is learnt."""
        return isinstance(self.prior, RelevantFeatures)


def binary_fit(rows: Array, options: BinaryOptions, rng: np.random.Generator) -> Ascent[BinaryState]:
    """The best of many starts, carried to convergence on all rows."""
    with one_blas_thread():
        return _fit(rows, options, rng)


def _fit(rows: Array, options: BinaryOptions, rng: np.random.Generator) -> Ascent[BinaryState]:
    data = make_data(rows, options.noise_floor)
    part = data
    if len(rows) > SAMPLE:
        chosen = np.sort(rng.choice(len(rows), SAMPLE, replace=False))
        part = make_data(np.ascontiguousarray(rows[chosen]), options.noise_floor)
    count = options.n_init * len(options.starts)
    starts = watch(_starts(part.rows, options, rng), "binary factor analysis, starts", count, options.verbose)
    climbs = Parallel(n_jobs=options.n_jobs)(
        delayed(_short_climb)(part, activations, options) for activations in starts
    )
    best = max(climbs, key=lambda found: found.trace[-1]).state
    if options.removes:
        best = drop_superfluous(part, best, options)
        if len(best.probability) == 1 and noise_bound(part) > bound(part, best, options.prior):
            return _nothing(data, best)
    if part is not data:
        best = extend_to_all_rows(data, best, options)
    return climb(data, best, options, options.rules, warn=True)


def _short_climb(data: Data, activations: Array, options: BinaryOptions) -> Ascent[BinaryState]:
    return climb(data, begin_state(data, activations, options), options, SHORT, warn=False)


def noise_bound(data: Data) -> float:
    """The bound of the model with no factor: log N(X | 0, σ²I) at its largest."""
    return -data.rows.size * (LOG_SQRT_2PI + 0.5 * np.log(data.square / data.rows.size) + 0.5)


def _nothing(data: Data, state: BinaryState) -> Ascent[BinaryState]:
    """The end of a fit that needs no factor."""
    empty = drop(state, np.array([0]))._replace(noise=data.square / data.rows.size)
    message = "binary factor analysis: noise alone has the higher bound, no factor is left"
    return Ascent(empty, np.array([noise_bound(data)]), 0.0, True, 1, 0.0, message)


def _starts(rows: Array, options: BinaryOptions, rng: np.random.Generator) -> Iterator[Array]:
    for number in range(options.n_init):
        share = SHARES[number % len(SHARES)] if options.removes else 1.0
        for name in options.starts:
            yield STARTS[name](rows, max(1, round(share * options.count)), rng)


def begin_state(data: Data, activations: Array, options: BinaryOptions) -> BinaryState:
    """A state with these activations: least-squares features, and noise and probabilities to match."""
    k, dim = activations.shape[1], data.rows.shape[1]
    empty = np.zeros((k, dim))
    latents = independent_latents(activations)
    state = BinaryState(*latents, empty, empty, np.zeros((k, k)), np.zeros(k), np.full(k, 0.5), 1.0)
    state = PointFeatures().update(replace_latents(data.rows, state, latents))
    state = update_noise(data, update_probability(state))
    scale = max(data.square / data.rows.size, data.floor)
    least = 0.01 * float(data.rows.var(axis=0).mean())
    return state._replace(relevance=np.full(k, 1.0 / scale), noise=max(state.noise, least))


def climb(data: Data, state: BinaryState, options: BinaryOptions, rules: Rules, *, warn: bool) -> Ascent[BinaryState]:
    """The ascent loop on one start."""

    def step(old: BinaryState) -> tuple[BinaryState, Measure]:
        new = update_all(data, old, options)
        return new, Measure(bound(data, new, options.prior), _change(old, new))

    label = "binary factor analysis"
    return ascend(step, state, rules, label=label, verbose=options.verbose and warn, warn=warn)


def update_all(data: Data, state: BinaryState, options: BinaryOptions) -> BinaryState:
    """Features and relevances, noise, probabilities, latents."""
    state = update_noise(data, options.prior.update(state))
    return infer_latents(data, update_probability(state), options.engine)


def _change(old: BinaryState, new: BinaryState) -> float:
    """Largest change of a feature, relative to the largest entry of all."""
    if old.features.shape != new.features.shape:
        return np.inf
    scale = float(np.abs(new.features).max())
    return float(np.abs(new.features - old.features).max()) / max(scale, 1e-300)


def drop_superfluous(data: Data, state: BinaryState, options: BinaryOptions) -> BinaryState:
    """Remove factors, the least used first, as long as a short climb without one ends at a higher bound."""
    value = bound(data, state, options.prior)
    tried = 0
    with progress("binary factor analysis, factors one by one", None, options.verbose) as bar:
        while tried < len(state.probability) and len(state.probability) > 1:
            weight = state.means.sum(axis=0) * (state.features**2).sum(axis=1)
            candidate = np.argsort(weight)[tried]
            without = infer_latents(data, drop(state, np.array([candidate])), options.engine)
            found = climb(data, without, options, SHORT, warn=False)
            if found.trace[-1] > value:
                state, value, tried = found.state, float(found.trace[-1]), 0
            else:
                tried += 1
            bar.advance(f"{len(state.probability)} left")
    return state


def extend_to_all_rows(data: Data, state: BinaryState, options: BinaryOptions) -> BinaryState:
    """The state found on some rows, with the latents of all rows."""
    means, _ = options.engine.describe(row_problem(data.rows, state))
    blank = state._replace(means=np.ascontiguousarray(means))
    return infer_latents(data, blank, options.engine)
