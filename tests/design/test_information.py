"""Information gains of any likelihood by brute force, and designs of questions and counts."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, xlogy

from latlin import potentials
from latlin.design import SequentialDesign
from latlin.design.directions import equivalent_noise, expected_information

MEAN = np.array([-3.0, 0.0, 0.4, 2.0])
VARIANCE = np.array([0.5, 4.0, 1e-4, 30.0])
X = np.linspace(-9.0, 9.0, 6001)


def brute(log_p):
    """I(y; x) on a fine grid of x, for log_p(x) of shape (outcomes, x) that sum to one."""
    gains = []
    for m, v in zip(MEAN, VARIANCE, strict=True):
        weight = stats.norm.pdf(X) * (X[1] - X[0])
        p = np.exp(log_p(m + np.sqrt(v) * X))
        total = p @ weight
        gains.append(np.sum(xlogy(p, p) @ weight) - np.sum(xlogy(total, total)))
    return np.array(gains)


def test_yes_or_no():
    wanted = brute(lambda x: np.log(np.maximum(np.stack([expit(x), expit(-x)]), 1e-300)))
    np.testing.assert_allclose(expected_information(potentials.Logit(1), MEAN, VARIANCE), wanted, atol=1e-8)
    assert np.all(wanted < np.log(2))


def test_counts():
    variance = np.array([0.5, 0.4, 1e-4, 0.1])
    counts = np.arange(150)[:, None]
    gains = []
    for m, v in zip(MEAN, variance, strict=True):
        weight = stats.norm.pdf(X) * (X[1] - X[0])
        p = stats.poisson.pmf(counts, np.exp(m + np.sqrt(v) * X))
        total = p @ weight
        gains.append(np.sum(xlogy(p, p) @ weight) - np.sum(xlogy(total, total)))
    np.testing.assert_allclose(expected_information(potentials.Poisson(0), MEAN, variance), gains, atol=1e-6)


def test_gaussian_noise_has_a_closed_form_and_other_noise_is_near_a_long_sum():
    wanted = 0.5 * np.log1p(VARIANCE / 0.49)
    gaussian = potentials.Gaussian(0.0, 0.7)
    np.testing.assert_allclose(expected_information(gaussian, MEAN, VARIANCE), wanted, atol=1e-6)
    np.testing.assert_allclose(equivalent_noise(wanted, VARIANCE), 0.49, rtol=1e-10)
    # Laplace noise: entropy of y less that of the noise, 1 + log 2b
    y = np.linspace(-60.0, 60.0, 60_001)
    density = potentials.Laplace(scale=0.5).predictive(np.zeros(len(y)), np.full(len(y), 4.0))
    log_p = density.log_density(y)
    entropy = -np.sum(np.exp(log_p) * log_p) * (y[1] - y[0])
    found = expected_information(potentials.Laplace(scale=0.5), np.zeros(1), np.array([4.0]))
    assert found[0] == pytest.approx(entropy - 1.0, abs=1e-5)


def questions(seed=0, dim=6):
    rng = np.random.default_rng(seed)
    prior = potentials.Gaussian(0.0, 1.0)
    design = SequentialDesign(None, prior, likelihood=potentials.Logit(1), dim=dim)
    return design, 2.0 * rng.standard_normal(dim), rng


def test_the_first_question_is_the_most_informative_of_all():
    design, truth, rng = questions()
    rows = rng.standard_normal((12, 6))
    design.observe(rows[:4], (rows[:4] @ truth > 0).astype(float))
    gains = design.information_gain(rows)
    projected = design.posterior.density.project(rows)
    np.testing.assert_allclose(
        gains, expected_information(potentials.Logit(1), projected.mean, projected.variance), atol=1e-12
    )
    np.testing.assert_array_equal(design.suggest(1, candidates=rows)[0], rows[np.argmax(gains)])
    # a question that was nearly repeated tells less the second time
    doubled = np.concatenate([rows, rows[[np.argmax(gains)]] * 1.001])
    chosen = design.suggest(2, candidates=doubled)
    assert not np.allclose(chosen[0], chosen[1], rtol=0.01)


def test_chosen_questions_tell_more_than_random_ones():
    errors = np.zeros((4, 2))
    for seed in range(4):
        for j in range(2):
            design, truth, rng = questions(seed, dim=4)
            pool = rng.standard_normal((60, 4)) * rng.choice([0.2, 2.0], (60, 1))
            uniform = rng.random(60)
            for _ in range(8):
                pick = rng.integers(60) if j else np.flatnonzero((pool == design.suggest(1, pool)[0]).all(axis=1))[0]
                design.observe(pool[pick], float(uniform[pick] < expit(pool[pick] @ truth)))
            errors[seed, j] = design.posterior.density.entropy
    assert errors[:, 0].mean() < errors[:, 1].mean() - 0.3


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda d: d.suggest(1), "candidates must be given"),
        (lambda d: d.joint_information_gain(np.ones((1, 6))), "Gaussian noise"),
        (lambda d: d.observe(np.ones((1, 6)), [0.5]), "label"),
        (lambda d: SequentialDesign(None, potentials.Laplace(), dim=2), "noise_variance or likelihood"),
        (
            lambda d: SequentialDesign(None, potentials.Laplace(), 1.0, likelihood=potentials.Logit(1), dim=2),
            "not both",
        ),
        (lambda d: SequentialDesign(None, potentials.Laplace(), likelihood="logit", dim=2), "likelihood must be"),
        (lambda d: expected_information(potentials.Poisson(0), np.array([12.0]), np.ones(1)), "counts of up to"),
        (
            lambda d: expected_information(potentials.Tweedie(1.0, 1.5, 1.0), np.zeros(1), np.ones(1)),
            "summed or integrated",
        ),
    ],
)
def test_bad_input_gets_a_sentence(call, match):
    with pytest.raises(ValueError, match=match):
        call(questions()[0])
