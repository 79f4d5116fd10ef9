"""Gradients: finite differences for the exact ones, the exact ones for the mean of every estimator."""

from itertools import combinations

import numpy as np
import pytest
from scipy.special import gammaincinv, gammaln, logsumexp, softmax

from latlin.mixture.fixed import FixedParams, FreeVector, Gradient, KnownCovariance, RootBelief
from latlin.mixture.gradients import (
    Draws,
    compare_estimators,
    draw,
    exact_gradient,
    importance_bound,
    importance_gradient,
    in_root,
    label_cost_gradient,
    natural_gradient,
    path_gradient,
    relaxed_labels,
    relaxed_labels_pullback,
    score_gradient,
)
from latlin.mixture.model import Belief, DirichletWeights, Mixture, StickWeights
from latlin.mixture.moments import gather_moments
from latlin.mixture.monte_carlo import relaxed_moments, weigh
from latlin.mixture.sweep import make_rows

DRAWS = 100_000


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-2, 1, (7, 2)), rng.normal(1.5, 1, (8, 2))])
    sigma = np.array([[1.2, 0.4], [0.4, 0.7]])
    mixture = Mixture(
        DirichletWeights(0.6, 2), KnownCovariance(np.array([0.3, -0.2]), np.array([[6.0, 1.0], [1.0, 4.0]]), sigma)
    )
    root = np.array([[[0.6, 0.0], [0.2, 0.4]], [[0.5, 0.0], [-0.1, 0.3]]])
    point = RootBelief(np.array([5.3, 3.1]), np.array([[-1.6, -2.2], [1.0, 1.9]]), root)
    data = make_rows(x, None)
    return mixture, data, point, mixture.evaluate(data, point.belief()).moments


def bound_at(mixture, data, alpha, mean, covariance):
    return mixture.evaluate(data, Belief(alpha, FixedParams(mean, covariance))).bound


def central(f, x, index, h=1e-5):
    up, down = x.copy(), x.copy()
    up[index] += h
    down[index] -= h
    return (f(up) - f(down)) / (2 * h)


def test_exact_gradient_passes_finite_differences(problem):
    mixture, data, point, moments = problem
    gradient = exact_gradient(mixture, point, moments)
    cov = point.root @ point.root.transpose(0, 2, 1)
    for k in range(2):
        slope = central(lambda a: bound_at(mixture, data, a, point.mean, cov), point.alpha, k)
        assert gradient.alpha[k] == pytest.approx(slope, rel=1e-7)
        for d in range(2):
            slope = central(lambda m: bound_at(mixture, data, point.alpha, m, cov), point.mean, (k, d))
            assert gradient.mean[k, d] == pytest.approx(slope, rel=1e-7)
            slope = central(lambda c: bound_at(mixture, data, point.alpha, point.mean, c), cov, (k, d, d))
            assert gradient.covariance[k, d, d] == pytest.approx(slope, rel=1e-6)

        def off_diagonal(t, k=k):
            moved = cov.copy()
            moved[k, 0, 1] += t[0]
            moved[k, 1, 0] += t[0]
            return bound_at(mixture, data, point.alpha, point.mean, moved)

        slope = central(off_diagonal, np.zeros(1), 0)
        assert 2 * gradient.covariance[k, 0, 1] == pytest.approx(slope, rel=1e-6)


def test_free_coordinates_round_trip_and_chain_rule(problem):
    mixture, data, point, moments = problem
    coordinates = FreeVector.of(mixture.components, 2)
    flat = coordinates.flatten(point)
    for a, b in zip(coordinates.unflatten(flat), point, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
    gradient = coordinates.pull_back(point, in_root(exact_gradient(mixture, point, moments), point))
    for i in range(len(flat)):
        slope = central(lambda f: mixture.evaluate(data, coordinates.unflatten(f).belief()).bound, flat, i)
        assert gradient[i] == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_natural_gradient_of_length_one_reaches_the_optimum(problem):
    mixture, _, point, moments = problem
    step = natural_gradient(mixture, point, moments)
    best = mixture.belief(moments)
    precision = np.linalg.inv(point.root @ point.root.transpose(0, 2, 1))
    new_precision = -2 * (-0.5 * precision + step.second)
    first = np.einsum("kde,ke->kd", precision, point.mean) + step.first
    np.testing.assert_allclose(point.alpha + step.alpha, best.weights, rtol=1e-12)
    np.testing.assert_allclose(np.linalg.inv(new_precision), best.components.covariance, rtol=1e-10)
    np.testing.assert_allclose(
        np.linalg.solve(new_precision, first[..., None])[..., 0], best.components.mean, rtol=1e-10
    )


def assert_mean_is(terms: Gradient, exact: Gradient):
    """Every coordinate's mean within four standard errors."""
    for term, target in zip(terms, exact, strict=True):
        error = term.std(axis=0, ddof=1) / np.sqrt(len(term))
        assert (np.abs(term.mean(axis=0) - target) <= 4 * error + 1e-12).all()


def test_pathwise_estimator_is_unbiased(problem):
    mixture, _, point, moments = problem
    draws = draw(point, DRAWS, np.random.default_rng(1))
    terms = path_gradient(mixture, point, draws, moments.counts, moments.mean)
    assert_mean_is(terms, in_root(exact_gradient(mixture, point, moments), point))


def test_plain_score_estimator_is_unbiased(problem):
    mixture, _, point, moments = problem
    draws = draw(point, DRAWS, np.random.default_rng(2))
    terms = score_gradient(mixture, point, draws, moments, None)
    assert_mean_is(terms, in_root(exact_gradient(mixture, point, moments), point))


@pytest.mark.parametrize("variate", ["baseline", "regression"])
def test_score_estimator_with_control_variate_is_unbiased_and_less_noisy(problem, variate):
    mixture, _, point, moments = problem
    rng = np.random.default_rng(3)
    groups = [
        score_gradient(mixture, point, draw(point, 100, rng), moments, variate).average() for _ in range(DRAWS // 100)
    ]
    terms = Gradient(*(np.stack(part) for part in zip(*groups, strict=True)))
    assert_mean_is(terms, in_root(exact_gradient(mixture, point, moments), point))
    plain = score_gradient(mixture, point, draw(point, 10_000, rng), moments, None)
    assert terms.mean.var() < plain.mean.var() / 100 / 5


def test_mean_of_the_mini_batch_gradients_over_all_batches_is_the_exact_gradient(problem):
    mixture, data, point, moments = problem
    gradients = []
    for chosen in combinations(range(len(data)), 2):
        own = mixture.evaluate(data.take(np.array(chosen), len(data) / 2), point.belief()).moments
        gradients.append(in_root(exact_gradient(mixture, point, own), point))
    exact = in_root(exact_gradient(mixture, point, moments), point)
    for part, target in zip(zip(*gradients, strict=True), exact, strict=True):
        np.testing.assert_allclose(np.mean(part, axis=0), target, rtol=1e-9, atol=1e-9)


def test_mini_batches_are_drawn_evenly_and_weighted_up(problem):
    _, data, _, _ = problem
    rng = np.random.default_rng(4)
    batches = [data.batch(5, rng) for _ in range(2000)]
    assert all(batch.total == pytest.approx(len(data)) for batch in batches)
    assert all(len(np.unique(batch.values, axis=0)) == 5 for batch in batches)
    sums = np.stack([batch.weights @ batch.values for batch in batches])
    error = sums.std(axis=0) / np.sqrt(len(sums))
    assert (np.abs(sums.mean(axis=0) - data.values.sum(axis=0)) < 4 * error).all()


def test_importance_gradient_is_that_of_the_importance_bound(problem):
    """Against the derivative of the bound at common random numbers, along random directions."""
    mixture, data, point, _ = problem
    rng = np.random.default_rng(5)
    coordinates = FreeVector.of(mixture.components, 2)
    flat = coordinates.flatten(point)
    sets, size, h = 600, 3, 1e-4
    uniform, noise = rng.random((sets * size, 2)), rng.standard_normal((sets * size, 2, 2))

    def at(vector):
        place = coordinates.unflatten(vector)
        log_y = np.log(gammaincinv(place.alpha, uniform))
        log_pi = log_y - logsumexp(log_y, axis=1, keepdims=True)
        log_w = weigh(mixture, data, place, Draws(log_pi, np.zeros_like(log_pi), noise)).log_weights
        return logsumexp(log_w.reshape(sets, size), axis=1)

    gradients = np.stack(
        [
            coordinates.pull_back(point, importance_gradient(mixture, data, point, draw(point, size, rng)))
            for _ in range(sets)
        ]
    )
    for direction in rng.standard_normal((3, len(flat))):
        slopes = (at(flat + h * direction) - at(flat - h * direction)) / (2 * h)
        along = gradients @ direction
        error = np.sqrt((slopes.var() + along.var()) / sets)
        assert abs(slopes.mean() - along.mean()) < 4 * error


def test_importance_bound_rises_from_the_elbo_to_the_evidence():
    """D = 1, N = 6, K = 2: the evidence by summing over all labels."""
    x = np.array([-2.1, -1.2, -2.4, 1.1, 2.6, 1.6])[:, None]
    mixture = Mixture(DirichletWeights(0.8, 2), KnownCovariance(np.zeros(1), np.full((1, 1), 4.0), np.eye(1)))
    data = make_rows(x, None)
    moments = gather_moments(mixture.components, x, np.ones(6), (x[:, 0] > 0).astype(int), 2)
    for _ in range(50):
        elbo, moments = mixture.evaluate(data, mixture.belief(moments))
    point = RootBelief.of(mixture.belief(moments))
    rng = np.random.default_rng(6)
    estimates = [importance_bound(mixture, data, point, size, 1000 // size + 100, rng) for size in (1, 5, 50)]
    values = [elbo] + [estimate.value for estimate in estimates]
    errors = [0.0] + [estimate.standard_error for estimate in estimates]
    for low, high, a, b in zip(values, values[1:], errors, errors[1:], strict=False):
        assert high >= low - 4 * np.hypot(a, b)
    assert values[-1] > elbo
    assert values[-1] <= exact_evidence(x, 0.8) + 4 * errors[-1]


def exact_evidence(x, concentration):
    terms = []
    for code in range(2 ** len(x)):
        labels = (code >> np.arange(len(x))) & 1
        counts = np.bincount(labels, minlength=2)
        term = gammaln(2 * concentration) - gammaln(2 * concentration + len(x))
        term += (gammaln(concentration + counts) - gammaln(concentration)).sum()
        for k in range(2):
            own = x[labels == k, 0]
            cov = np.eye(len(own)) + 4.0
            square = own @ np.linalg.solve(cov, own) if len(own) else 0.0
            log_det = np.linalg.slogdet(2 * np.pi * cov)[1] if len(own) else 0.0
            term += -0.5 * (square + log_det)
        terms.append(term)
    return logsumexp(terms)


def test_relaxed_labels_pull_gradients_back_through_the_softmax():
    rng = np.random.default_rng(7)
    log_r = np.log(softmax(rng.normal(size=(4, 3)), axis=1))
    noise, target = rng.gumbel(size=(4, 3)), rng.normal(size=(4, 3))
    z = relaxed_labels(log_r, noise, 0.7)
    gradient = relaxed_labels_pullback(z, 0.7, target)
    slope = central(lambda l: (target * relaxed_labels(l, noise, 0.7)).sum(), log_r, (2, 1))
    assert gradient[2, 1] == pytest.approx(slope, rel=1e-7)
    joint = rng.normal(size=(4, 3))
    cost = central(lambda t: (t * (joint - log_r)).sum(), z, (1, 2))
    assert label_cost_gradient(joint, log_r)[1, 2] == pytest.approx(cost, rel=1e-7)


def test_cold_relaxed_labels_have_the_mean_of_the_responsibilities(problem):
    mixture, data, point, moments = problem
    rng = np.random.default_rng(8)
    counts = np.stack([relaxed_moments(mixture, data, point.belief(), 1e-3, rng).counts for _ in range(2000)])
    error = counts.std(axis=0) / np.sqrt(2000)
    assert (np.abs(counts.mean(axis=0) - moments.counts) <= 4 * error + 1e-9).all()


def test_comparison_finds_the_unbiased_estimators_and_ranks_their_noise(problem):
    mixture, data, point, _ = problem
    table = compare_estimators(mixture, data, point, repeats=150, batch_sizes=(5,), n_draws=(1, 8), random_state=0)
    rows = {row.name: row for row in table}
    for name in ("mini-batch, S = 5", "score, baseline, L = 8", "pathwise, L = 1", "pathwise, L = 8"):
        assert rows[name].bias < 3 * rows[name].bias_noise
    assert rows["pathwise, L = 8"].variance < rows["score, baseline, L = 8"].variance
    assert rows["score, baseline, L = 8"].variance < rows["score, plain, L = 8"].variance
    assert str(table).count("\n") == len(table) + 1


def test_gradients_of_other_mixtures_are_refused(problem):
    mixture, _, point, moments = problem
    with pytest.raises(ValueError, match="covariance='fixed'"):
        exact_gradient(Mixture(StickWeights(1.0, 2), mixture.components), point, moments)
