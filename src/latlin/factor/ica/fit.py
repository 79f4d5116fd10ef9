"""Fits of noisy ICA: starts from FastICA and from random rotations, short climbs, removals that pay, one long climb.

Near small noise variational EM turns the mixing matrix only at the rate of the noise, so where it starts decides: from
principal axes it stalls far from the sources, from FastICA it refines what that found.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed
from sklearn.decomposition import FastICA, MiniBatchDictionaryLearning
from sklearn.exceptions import ConvergenceWarning

from latlin.factor.ica.model import (
    MOST_SHAPE,
    IcaData,
    IcaState,
    SourceEngine,
    SourceModel,
    bound,
    drop,
    find_switched_off,
    make_data,
    products,
    tie_noise,
    update_common_relevance,
    update_mixing,
    update_noise_prior,
    update_separate_relevance,
    update_slow_relevance,
)
from latlin.numerics.ascent import Ascent, Measure, Rules, ascend
from latlin.numerics.linalg import Array
from latlin.numerics.progress import progress, watch
from latlin.numerics.threads import one_blas_thread

#: how the prior precisions of the columns are learnt
RELEVANCES: dict[str, Callable[[IcaState], IcaState]] = {
    "separate": update_separate_relevance,
    "slow": update_slow_relevance,
    "common": update_common_relevance,
}
#: rows on which starts are compared
SAMPLE = 4000
SHORT = Rules(gradient_tol=1e-3, objective_tol=1e-6, max_iter=30, monotone=True)
#: sizes of the starts, as shares of the sources allowed, when relevances decide
SHARES = (1.0, 2.0 / 3.0, 0.5, 1.0 / 3.0)
#: weights of the absolute codes, relative to the size of a row, when there are more sources than features
PENALTIES = (0.1, 0.3, 1.0)
#: steps with the noise variances held together
WARM = 10
#: failed removals in a row after which no more are tried
PATIENCE = 2


@dataclass(frozen=True)
class IcaOptions:
    """What a fit needs to know besides the rows."""

    count: int
    model: SourceModel
    engine: SourceEngine
    ard: bool
    relevance: str
    start_shape: float
    n_init: int
    n_jobs: int | None
    rules: Rules
    verbose: bool


class MixingStart(NamedTuple):
    """A mixing matrix (D×K) and the sources that go with it (N×K)."""

    mixing: Array
    sources: Array


def ica_fit(rows: Array, options: IcaOptions, rng: np.random.Generator) -> Ascent[IcaState]:
    """The best of several starts, carried to convergence; `rows` are centred."""
    with one_blas_thread():
        return _fit(rows, options, rng)


def _fit(rows: Array, options: IcaOptions, rng: np.random.Generator) -> Ascent[IcaState]:
    data = make_data(rows)
    part = data
    if len(rows) > SAMPLE:
        chosen = np.sort(rng.choice(len(rows), SAMPLE, replace=False))
        part = make_data(np.ascontiguousarray(rows[chosen]))
    starts = watch(_starts(part.rows, options, rng), "noisy ICA, starts", 3 * options.n_init, options.verbose)
    climbs = Parallel(n_jobs=options.n_jobs)(
        delayed(_short_climb)(part, start, alike, options) for start, alike in starts
    )
    best = max(climbs, key=lambda found: found.trace[-1]).state
    if options.ard:
        best = drop_superfluous(part, best, options)
    if part is not data:
        best = extend_to_all_rows(data, best, options)
    found = climb(data, best, options, options.rules, warn=True)
    while options.ard and len(found.state.shape) > 1 and len(gone := find_switched_off(found.state)):
        found = climb(data, drop(found.state, int(gone[0])), options, options.rules, warn=True)
    return found


def _short_climb(data: IcaData, start: MixingStart, alike: bool, options: IcaOptions) -> Ascent[IcaState]:
    state = begin(data, start, options)
    return climb(data, warm_up(data, state, options) if alike else state, options, SHORT, warn=False)


def _starts(rows: Array, options: IcaOptions, rng: np.random.Generator) -> Iterator[tuple[MixingStart, bool]]:
    """Starts, and whether their noise variances are held together at first."""
    for number in range(options.n_init):
        share = SHARES[number % len(SHARES)] if options.ard else 1.0
        count = max(1, round(share * options.count))
        if count > rows.shape[1]:
            # FastICA and rotations know no more sources than features
            for penalty in PENALTIES:
                yield start_by_sparse_coding(rows, count, penalty, rng), True
            continue
        yield start_by_fast_ica(rows, count, "logcosh", rng), True
        yield start_by_fast_ica(rows, count, "exp", rng), False
        yield start_by_rotation(rows, count, rng), True


def start_by_fast_ica(rows: Array, count: int, contrast: str, rng: np.random.Generator) -> MixingStart:
    """scikit-learn's FastICA on the leading directions."""
    seed = int(rng.integers(2**31))
    ica = FastICA(_rank(rows, count), fun=contrast, whiten="unit-variance", max_iter=300, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        sources = ica.fit_transform(rows)
    return _filled(MixingStart(ica.mixing_, sources), count, rng)


def start_by_sparse_coding(rows: Array, count: int, penalty: float, rng: np.random.Generator) -> MixingStart:
    """More sources than features: a dictionary whose codes are sparse, by scikit-learn.

    Directions are what rows of one large source show, so rows are coded in units of their own typical size.
    """
    seed, size = int(rng.integers(2**31)), float(np.sqrt(np.mean(rows**2)))
    coder = MiniBatchDictionaryLearning(
        count, alpha=penalty, transform_algorithm="lasso_lars", batch_size=256, max_iter=20, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sources = coder.fit_transform(rows / size)
    used = np.maximum(sources.std(axis=0), 1e-3)
    return MixingStart(np.ascontiguousarray(size * (coder.components_ * used[:, None]).T), sources / used)


def start_by_rotation(rows: Array, count: int, rng: np.random.Generator) -> MixingStart:
    """The leading principal directions, whitened and turned at random."""
    left, values, right = np.linalg.svd(rows, full_matrices=False)
    rank = _rank(rows, count)
    turn = np.linalg.qr(rng.standard_normal((rank, rank)))[0]
    root = np.sqrt(len(rows))
    return _filled(
        MixingStart((right[:rank].T * values[:rank] / root) @ turn, root * left[:, :rank] @ turn), count, rng
    )


def _rank(rows: Array, count: int) -> int:
    return max(1, min(count, *rows.shape, int(np.linalg.matrix_rank(rows))))


def _filled(start: MixingStart, count: int, rng: np.random.Generator) -> MixingStart:
    """More sources than directions: the others start small, at chance."""
    extra = count - start.mixing.shape[1]
    small = 1e-3 * np.abs(start.mixing).max()
    mixing = np.hstack([start.mixing, small * rng.standard_normal((len(start.mixing), extra))])
    return MixingStart(mixing, np.hstack([start.sources, rng.standard_normal((len(start.sources), extra))]))


def begin(data: IcaData, start: MixingStart, options: IcaOptions) -> IcaState:
    """A state at a start, with one noise variance for all features."""
    n, k = start.sources.shape
    dim = len(start.mixing)
    error = float(((data.rows - start.sources @ start.mixing.T) ** 2).mean())
    # least squares leaves the noise of d − K directions only
    noise = max(error * dim / max(dim - k, 1), 1e-3 * float(data.squares.mean()) / n)
    means = np.ascontiguousarray(start.sources)
    tau = np.full((dim, 1), 1.0 / noise)
    size = (tau * start.mixing**2).sum(axis=0) + dim / n
    return IcaState(
        means=means,
        squares=means**2 + 0.01,
        second=means.T @ means,
        product=products(data.rows, means),
        scale_moments=np.full((3, k), np.nan),
        prior=np.zeros(k),
        entropy=0.0,
        mixing=np.ascontiguousarray(start.mixing),
        spread=np.eye(k) / n,
        noise_shape=0.5 * n + 1.0,
        noise_rate=np.full(dim, (0.5 * n + 1.0) * noise),
        prior_shape=1.0,
        prior_rate=noise,
        relevance=dim / size,
        shape=np.full(k, options.start_shape),
        scale=np.full(k, 0.7),
    )


def warm_up(data: IcaData, state: IcaState, options: IcaOptions) -> IcaState:
    """A few steps with the noise variances held together.

    Where the data hardly tell them apart, variances that part early, while the sources are still wrong, do not come
    back.
    """
    pooling = MOST_SHAPE * len(data.rows)
    state = state._replace(prior_shape=pooling, prior_rate=state.prior_rate * pooling)
    for _ in range(WARM):
        state = update_all(data, state, options, tie_noise)
    return state


def climb(data: IcaData, state: IcaState, options: IcaOptions, rules: Rules, *, warn: bool) -> Ascent[IcaState]:
    """The ascent loop on one start."""

    def step(old: IcaState) -> tuple[IcaState, Measure]:
        new = update_all(data, old, options, update_noise_prior)
        return new, Measure(bound(data, new), _change(old, new))

    return ascend(step, state, rules, label="noisy ICA", verbose=options.verbose and warn, warn=warn)


def update_all(
    data: IcaData, state: IcaState, options: IcaOptions, noise_prior: Callable[[IcaState], IcaState]
) -> IcaState:
    """Sources with their shapes and scales, mixing and noise, the noise's prior, relevances."""
    state = noise_prior(update_mixing(data, options.engine.infer(data, state, options.model)))
    return RELEVANCES[options.relevance](state)


def _change(old: IcaState, new: IcaState) -> float:
    """Largest change of a loading, in units of its source's scale, relative to the largest."""
    before, after = old.mixing * old.scale, new.mixing * new.scale
    return float(np.abs(after - before).max() / max(float(np.abs(after).max()), 1e-300))


def drop_superfluous(data: IcaData, state: IcaState, options: IcaOptions) -> IcaState:
    """Remove sources, those that explain least first, as long as a short climb without one ends at a higher bound."""
    value = bound(data, state)
    failed = 0
    with progress("noisy ICA, sources one by one", None, options.verbose) as bar:
        while failed < min(PATIENCE, len(state.shape)) and len(state.shape) > 1:
            explained = (state.mixing**2).sum(axis=0) * state.squares.sum(axis=0)
            found = climb(data, drop(state, int(np.argsort(explained)[failed])), options, SHORT, warn=False)
            if found.trace[-1] > value:
                state, value, failed = found.state, float(found.trace[-1]), 0
            else:
                failed += 1
            bar.advance(f"{len(state.shape)} left")
    return state


def extend_to_all_rows(data: IcaData, state: IcaState, options: IcaOptions) -> IcaState:
    """What was found on some rows, ready to go on with all of them."""
    means, squares, _ = options.engine.describe(data.rows, state, options.model)
    moments = np.full_like(state.scale_moments, np.nan)
    return state._replace(means=means, squares=squares, scale_moments=moments)


def normalise_sources(state: IcaState) -> IcaState:
    """Sources of scale 1, each one's largest loading positive, those that explain most first; the bound stays."""
    peaks = np.take_along_axis(state.mixing, np.abs(state.mixing).argmax(axis=0)[None], axis=0)[0]
    factor = np.where(peaks < 0.0, -1.0, 1.0) * state.scale
    explained = (state.mixing**2).sum(axis=0) * state.squares.sum(axis=0)
    order = np.argsort(-explained, kind="stable")
    c = factor[order]
    block = np.ix_(order, order)
    return state._replace(
        means=state.means[:, order] / c,
        squares=state.squares[:, order] / c**2,
        second=state.second[block] / np.outer(c, c),
        product=state.product[order] / c[:, None],
        scale_moments=state.scale_moments[:, order],
        prior=state.prior[order] + len(state.means) * np.log(np.abs(c)),
        entropy=state.entropy - len(state.means) * float(np.log(np.abs(c)).sum()),
        mixing=state.mixing[:, order] * c,
        spread=state.spread[block] * np.outer(c, c),
        relevance=state.relevance[order] / c**2,
        shape=state.shape[order],
        scale=np.ones(len(order)),
    )
