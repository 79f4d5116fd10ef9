"""Split and merge moves: moments, promises kept, and ways out of a local optimum."""

import numpy as np
import pytest
from scipy.special import softmax

from latlin.mixture import BayesianGaussianMixture
from latlin.mixture.climbs import make_climb
from latlin.mixture.fitting import entropy_between, evidence, expected, rank_moves
from latlin.mixture.moments import gather_moments
from latlin.mixture.settings import options_of
from latlin.mixture.sweep import make_rows

COVARIANCES = ["fixed", "spherical", "diagonal", "full", "tied"]
CENTRES = np.array([[0.0, 0.0, 6.0], [9.0, 0.0, 0.0], [0.0, 9.0, 0.0], [-9.0, 0.0, 0.0]])


def rows(size=80, spread=1.0):
    rng = np.random.default_rng(0)
    return np.repeat(CENTRES, size, axis=0) + spread * rng.standard_normal((4 * size, 3))


def begun(X, labels, covariance, components=5, weight_prior="dirichlet"):
    """A climb, its sample, and a state a step after hard labels."""
    model = BayesianGaussianMixture(components, covariance=covariance, weight_prior=weight_prior)
    data = make_rows(X, None)
    mixture, sample = model._prepared(data)
    climb = make_climb("cavi", mixture, data, options_of(model, len(X)), np.random.default_rng(0))
    state = climb.start(sample.moments(mixture, labels, components))
    for _ in range(3):
        state, _ = climb.step(state)
    return climb, sample, state


@pytest.mark.parametrize("weight_prior", ["dirichlet", "stick-breaking"])
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_the_bound_from_moments(covariance, weight_prior):
    X = rows(spread=3.0)
    climb, sample, state = begun(X, np.arange(len(X)) % 5, covariance, weight_prior=weight_prior)
    mixture, belief = climb.mixture, climb.belief(state)
    r = softmax(mixture.log_joint(sample.rows, belief), axis=1)
    entropy = entropy_between(r, np.ones(len(r)))
    log_weights = mixture.weights.expected_log(belief.weights)
    value = expected(mixture.components, state.target, belief.components, log_weights) + entropy - mixture.kl(belief)
    assert value == pytest.approx(state.bound, rel=1e-12)
    held = evidence(mixture, state.target) + entropy
    assert state.bound < held < climb.step(state)[0].bound


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_moments_merged_and_parted_are_those_of_the_rows(covariance):
    X = rows()
    labels = np.repeat([0, 1, 2, 3, 4], 64)
    structure = begun(X, labels, covariance)[0].mixture.components
    ones = np.ones(len(X))
    moments = gather_moments(structure, X, ones, labels, 5)
    joined = gather_moments(structure, X, ones, np.where(labels == 3, 1, labels), 5)
    merged = structure.split_merge.merged(structure, moments, 1, 3)
    np.testing.assert_allclose(merged.counts, joined.counts)
    np.testing.assert_allclose(merged.mean[[0, 1, 2, 4]], joined.mean[[0, 1, 2, 4]])
    np.testing.assert_allclose(merged.scatter, joined.scatter, atol=1e-9)
    own = np.isin(labels, [1, 3])
    parts = gather_moments(structure, X[own], ones[own], (labels[own] == 3).astype(np.intp), 2)
    parted = structure.split_merge.parted(structure, merged, 1, 3, parts)
    for got, want in zip(parted, moments, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-9)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_promises_are_kept(covariance):
    """The bound after a move is at least what was promised: other responsibilities were held, now all are free."""
    X = rows()
    labels = np.repeat([0, 1, 2, 3], 80)
    labels[200:240] = 4  # two components in one cluster
    climb, sample, state = begun(X, labels, covariance, components=6)
    moves = rank_moves(climb, sample, state)
    assert len(moves) > 1
    for move in moves:
        assert climb.start(move.moments).bound - state.bound > move.promise - 1e-6


@pytest.mark.parametrize("covariance", ["fixed", "diagonal", "full"])
def test_moves_leave_a_bad_start(covariance):
    X, truth = rows(), np.repeat([0, 1, 2, 3], 80)
    labels = np.where(truth == 3, 2, truth)  # one component for two clusters, two for another
    labels[:40] = 3
    climb, sample, state = begun(X, labels, covariance, components=4)
    best = begun(X, truth, covariance, components=4)[2].bound
    assert state.bound < best - 20.0
    for _ in range(2):
        found = [climb.start(move.moments) for move in rank_moves(climb, sample, state)[:1]]
        state = found[0]
        for _ in range(10):
            state, _ = climb.step(state)
    assert state.bound == pytest.approx(best, abs=1.0)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_what_has_no_hope_is_not_tried(covariance):
    X = rows()
    climb, sample, state = begun(X, np.repeat([0, 1, 2, 3], 80), covariance, components=4)
    assert rank_moves(climb, sample, state) == []


def test_a_fit_with_moves_is_better_and_never_falls():
    rng = np.random.default_rng(3)
    X = 8.0 * rng.standard_normal((10, 2))[rng.integers(10, size=600)] + rng.standard_normal((600, 2))
    fits = [BayesianGaussianMixture(12, n_init=1, split_merge=s, random_state=5).fit(X) for s in (0, 10)]
    assert fits[1].lower_bound_ > fits[0].lower_bound_ + 1.0
    bounds = fits[1].trace_
    assert (np.diff(bounds) > -1e-9 * np.abs(bounds[1:])).all()
    assert fits[1].converged_
